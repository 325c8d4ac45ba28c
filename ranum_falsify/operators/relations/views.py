"""Views: which elements of an earlier tensor a field holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect
from torch import Tensor

from ranum_falsify.domain.site import Site
from ranum_falsify.network import spec_of
from ranum_falsify.network.evaluate import apply
from ranum_falsify.network.registry import OperatorSpec
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.operators.relations.matching import Field, fields_of, is_a, kind, reduced_dims, source

_MOVING = ("Expand", "Flatten", "Gather", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")

_LARGEST = 2**20
"""Elements of larger tensors are told apart only where none is moved."""


@dataclass(frozen=True)
class View:
    """Elements of a tensor, in a shape.

    `places` are which element of the tensor, counted in rows, each one is; None where the view is the tensor itself.
    """

    field: Field
    shape: tuple[int, ...]
    places: Tensor | None = None


def view_of(site: Site, field: Field, shape: tuple[int, ...] | None = None) -> View | None:
    """Return the view of a field as a whole, perhaps broadcast to a shape; None if its shape is not known."""
    known = site.find_known(field)
    if known is None:
        return None
    view = View(source(field), known.shape)
    return view if shape is None or shape == known.shape else _broadcast(view, shape)


def operand_views(site: Site, view: View) -> list[View] | None:
    """Return, for a view of an elementwise node's output, the corresponding views of its operands, constants included.

    Absent operands are left out.
    """
    op = view.field
    assert isinstance(op, Operation)
    known = site.find_known(op)
    if known is None:
        return None
    found = list[View]()
    for field in fields_of(op):
        if field is None:
            continue
        whole = view_of(site, field, known.shape)
        chosen = None if whole is None else _choose(whole, view)
        if chosen is None:
            return None
        found.append(chosen)
    return found


def look_through(site: Site, view: View) -> View:
    """Return the same elements as a view of the earliest tensor that nodes only move."""
    while (op := _find_moving(view.field)) is not None:
        moved, *rest = fields_of(op)
        known = site.find_known(moved)
        if known is None or not 0 < known.size <= _LARGEST or not all(_is_static(field) for field in rest):
            break
        places = torch.arange(known.size).reshape(known.shape)
        outputs = apply(spec_of(op), op, [places, *[_value(spec_of(op), i, x) for i, x in enumerate(rest, 1)]])
        index = view.field.index if isinstance(view.field, OutputSelect) else 0
        result = outputs[index]
        inner = View(source(moved), tuple(result.shape), result.reshape(-1))
        chosen = _choose(inner, view)
        if chosen is None:
            break
        view = chosen
    return view


def is_same_view(a: View, b: View) -> bool:
    """Tell whether two views hold the same elements of one tensor, computed once."""
    return a.field is b.field and a.shape == b.shape and is_same_place(a, b)


def _find_moving(field: Field) -> Operation | None:
    if isinstance(field, OutputSelect):
        return field.operation if kind(field.operation) in _MOVING else None
    return is_a(field, *_MOVING)


def _is_static(field: Field) -> bool:
    return field is None or isinstance(field, np.ndarray)


def _value(spec: OperatorSpec, position: int, field: Field) -> Tensor | np.ndarray | None:
    """Return a constant operand as its row's function reads it."""
    assert field is None or isinstance(field, np.ndarray)
    return field if field is None or spec.operands[position] in spec.static else to_torch(field)


def _choose(inner: View, outer: View) -> View | None:
    """Return the elements of a view at the places of another, which is of a tensor of the first one's shape."""
    if outer.places is None:
        return replace(inner, shape=outer.shape)
    places = inner.places
    return replace(outer, field=inner.field, places=outer.places if places is None else places[outer.places])


def _broadcast(view: View, shape: tuple[int, ...]) -> View | None:
    size, sides = math.prod(view.shape), zip(reversed(view.shape), reversed(shape), strict=False)
    fits = len(view.shape) <= len(shape) and all(own in (1, other) for own, other in sides)
    if not fits or max(size, math.prod(shape)) > _LARGEST:
        return None  # an operand that is not read element by element, such as one of a fused operator
    places = torch.arange(size).reshape(view.shape).expand(shape).reshape(-1)
    return View(view.field, shape, places)


def lies_in_section(site: Site, part: View, whole: View) -> bool:
    """Tell whether each element of a view is one of those that a node, the other view, reduces to one there."""
    op = whole.field
    assert isinstance(op, Operation)
    operand, *axes = fields_of(op)
    x = site.find_known(operand)
    if x is None or source(operand) is not part.field or any(isinstance(field, Operation) for field in axes):
        return False
    given = axes[0] if axes else None
    dims = reduced_dims(op, len(x.shape), given if isinstance(given, np.ndarray) else None)
    kept = [1 if dim in dims else size for dim, size in enumerate(x.shape)]
    if not dims or x.size > _LARGEST:
        return False
    count = math.prod(kept)
    sections = torch.arange(count).reshape(kept).expand(x.shape).reshape(-1)
    chosen = sections if part.places is None else sections[part.places]
    places = torch.arange(count) if whole.places is None else whole.places
    return part.shape == whole.shape and torch.equal(chosen, places)


def kind_in(view: View) -> str:
    """Return the ONNX name of the operator that computes what is viewed; the empty string where none does."""
    return kind(view.field) if isinstance(view.field, Operation) else ""


def list_absent(view: View) -> list[bool]:
    """Return which operands after the first the node lacks that computes what is viewed."""
    return [field is None for field in fields_of(view.field)[1:]] if isinstance(view.field, Operation) else []


def is_same_place(a: View, b: View) -> bool:
    """Tell whether two views hold the elements at the same places of two tensors."""
    if a.places is None or b.places is None:
        return a.places is b.places
    return torch.equal(a.places, b.places)


def lower_end(site: Site, view: View) -> float:
    """Return a number that nothing in the tensor of a view is below."""
    known = site.find_known(view.field)
    return -math.inf if known is None else known.extremes[0]


def upper_end(site: Site, view: View) -> float:
    """Return a number that nothing in the tensor of a view is above."""
    known = site.find_known(view.field)
    return math.inf if known is None else known.extremes[1]


def are_positive(site: Site, *views: View) -> bool:
    """Tell whether no number of some views is negative."""
    return all(lower_end(site, view) >= 0 for view in views)
