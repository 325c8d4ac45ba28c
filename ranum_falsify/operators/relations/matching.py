"""Reading the nodes around a node: which operator computes a field, from what, and with which constants.

Their answers are certain; where these functions cannot tell, they return None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Identity
from onnx import TensorProto

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.site import Site
from ranum_falsify.network.blackbox import BlackBox
from ranum_falsify.network.registry import row_of, spec_of
from ranum_falsify.operators.support.functions import ints

_DEEPEST = 10
"""No pattern reads further back than this many nodes."""

_WIDE = (TensorProto.FLOAT, TensorProto.DOUBLE)

HALVES = (torch.float16, torch.bfloat16)
WIDENING = frozenset({*((half, torch.float32) for half in HALVES), (torch.float32, torch.float64)})
"""Changes of type that keep every number."""

EXACT = 2.0**53
"""Integers below this are exact floats, and told apart as such."""

_PASSING = ("Unsqueeze", "Squeeze", "Reshape", "Max")
"""Operators between a reduction and its reader that leave its values as they are; some of them, of `Max`."""

Field: TypeAlias = Operation | np.ndarray | None
"""What a node reads: the result of another node, a constant, or nothing."""


def kind(op: Operation) -> str:
    """Return the ONNX name of a node's operator; the empty string for an input, an output of several, a black box."""
    spec = row_of(op)
    return "" if spec is None or isinstance(op, BlackBox) else spec.op_type


def fields_of(op: Operation) -> tuple[Field, ...]:
    """Return what a node reads, in the order of its row, None where absent."""
    return tuple(spec_of(op).operands_of(op))


def source(field: Field) -> Field:
    """Return what a field holds, looking through nodes that pass it on unchanged."""
    while isinstance(field, Identity):
        field = fields_of(field)[0]
    return field


def is_a(field: Field, *op_types: str) -> Operation | None:
    """Return the node that computes a field, if its operator is one of those given."""
    op = source(field)
    return op if isinstance(op, Operation) and kind(op) in op_types else None


def behind(field: Field, *op_types: str) -> Field:
    """Return the first operand of the node that computes a field, if its operator is one of those given, else None."""
    op = is_a(field, *op_types)
    return None if op is None else fields_of(op)[0]


_REPEATABLE = frozenset(
    """Abs Add And Concat Div Equal Expand Flatten Gather GatherElements GatherND Greater GreaterOrEqual Less
    LessOrEqual Max Min Mul Neg Not Or ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum
    ReduceSumSquare Reshape Shape Slice Sqrt Squeeze Sub Transpose Unsqueeze Xor""".split()
)
"""Operators that give the same numbers each time: they move, round exactly, or add up the same memory."""

_TWIN_DEPTH = 8
_TWIN_CONSTANT = 64
"""Most elements of a constant that is compared."""


def is_twin(a: Field, b: Field, depth: int = _TWIN_DEPTH) -> bool:
    """Tell whether two fields are the same numbers: one tensor, or computed twice in the same way."""
    a, b = source(a), source(b)
    if a is b:
        return True
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.size <= _TWIN_CONSTANT and is_same_constant(a, b)
    if not (isinstance(a, Operation) and isinstance(b, Operation)) or not depth:
        return False
    if kind(a) != kind(b) or kind(a) not in _REPEATABLE:
        return False
    row, read, other = spec_of(a), fields_of(a), fields_of(b)
    names = {row.field_of(name) for name in row.attributes} - {*row.operands}
    if not all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names):
        return False
    return len(read) == len(other) and all(is_twin(x, y, depth - 1) for x, y in zip(read, other, strict=True))


def is_same_constant(a: np.ndarray, b: np.ndarray) -> bool:
    """Tell whether two constants are the same, bit by bit: 0 and -0 are not alike."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def is_same(a: Field, b: Field) -> bool:
    """Tell whether two fields hold the same tensor, computed once or by the same change of type."""
    a, b = source(a), source(b)
    if a is not None and a is b:
        return True
    one, other = is_a(a, "Cast"), is_a(b, "Cast")
    # Roundings to types of 16 bits may be left out, by some readers.
    if one is None or other is None or one.to != other.to or one.to not in _WIDE:
        return False
    return is_same(fields_of(one)[0], fields_of(other)[0])


def is_fit(*operands: Interval) -> bool:
    """Tell whether operands have elements, are finite, and are rounded wherever they are read."""
    return all(x.dtype in (torch.float32, torch.float64) and x.size and not x.may_be_infinite for x in operands)


def undo_widening(site: Site, field: Field) -> Field:
    """Return what a field was before a change of type that keeps every number, else the field."""
    cast = is_a(field, "Cast")
    before, after = (None, None) if cast is None else map(site.find_known, (fields_of(cast)[0], cast))
    if cast is None or before is None or after is None or rounds_apart(site, before):
        return field
    return source(fields_of(cast)[0]) if (before.dtype, after.dtype) in WIDENING else field


def rounds_apart(site: Site, x: Interval) -> bool:
    """Tell whether the readers of a tensor may disagree on whether it is rounded.

    ONNX Runtime leaves out roundings to float16 before operators for which it has no float16 kernel, but not before
    those that only move numbers.
    """
    return x.dtype is torch.float16 and "onnxruntime" in site.runtimes


def may_be_rounded_apart(site: Site, x: Interval) -> bool:
    """Tell whether a pattern may read two values of one tensor, because an `Identity` on the way rounds it."""
    if not rounds_apart(site, x):
        return False
    layer: list[Field] = [site.op]
    for _ in range(_DEEPEST):
        layer = [field for op in layer if isinstance(op, Operation) and row_of(op) for field in fields_of(op)]
        if any(isinstance(field, Identity) and isinstance(source(field), Operation) for field in layer):
            return True
        layer = list({id(field): field for field in layer}.values())
    return False


def constant(field: Field) -> float | None:
    """Return the value of a constant whose elements are all the same number."""
    value = source(field)
    if not isinstance(value, np.ndarray) or not value.size or (value.size > 1 and bool((value != value.flat[0]).any())):
        return None
    return float(value.flat[0])


def pairs(op: Operation) -> Iterator[tuple[Field, Field]]:
    """Yield the two operands of a node in both orders."""
    a, b = fields_of(op)
    yield a, b
    yield b, a


def find_other(field: Field, op_type: str, value: float) -> Field:
    """Return what a node of a symmetric operator combines with a constant number; None if it is not such a node."""
    op = is_a(field, op_type)
    if op is None:
        return None
    return next((a for a, b in pairs(op) if constant(b) == value), None)


def find_scale(field: Field, x: Field) -> float | None:
    """Return c where a field is c x with a constant c."""
    if is_same(field, x):
        return 1.0
    op = is_a(field, "Mul", "Div")
    if op is None:
        return None
    for number, rest in ((constant(b), a) for a, b in pairs(op)):
        if number is not None and is_same(rest, x):
            if is_a(op, "Mul"):
                return number
            return 1 / number if number and is_same(fields_of(op)[0], x) else None
    return None


def square_of(field: Field) -> Field:
    """Return x where a field is the square of x, else None."""
    op = is_a(field, "Mul", "Pow")
    if op is None:
        return None
    a, b = fields_of(op)
    if kind(op) == "Mul":
        return source(a) if is_same(a, b) else None
    return source(a) if constant(b) == 2 else None


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """A reduction that a field holds, in a shape that broadcasts with that of its operand.

    The operand has bounds x; the dimensions that are reduced are ascending.
    """

    op: Operation
    operand: Field
    x: Interval
    dims: list[int]

    @property
    def count(self) -> int:
        """Number of elements that are reduced to one."""
        return math.prod(self.x.shape[dim] for dim in self.dims)


def find_reduction(site: Site, field: Field, *op_types: str, shown_by: Field = None) -> Reduced | None:
    """Return the reduction by a given operator that a field holds, looking through nodes that restore dimensions.

    `shown_by` is the field whose shape must broadcast with that of the operand, if a node changes it after `field`.
    """
    inner, op = _behind_expand(field), reach_reduction(field, *op_types)
    if op is None:
        return None
    operand, *axes = fields_of(op)
    moved = op is not source(field)
    x, stands = site.find_known(operand), site.find_known(inner if shown_by is None else shown_by)
    read = site.find_known(field if shown_by is None else shown_by)
    if x is None or stands is None or any(isinstance(field, Operation) for field in axes) or not x.size:
        return None
    # A result of more dimensions would broadcast the operand, whose dimensions would be others there.
    if read is None or len(read.shape) > len(x.shape):
        return None
    if moved and rounds_apart(site, x):
        return None
    dims = reduced_dims(op, len(x.shape), cast(np.ndarray, axes[0]) if axes else None)
    kept = tuple(1 if i in dims else n for i, n in enumerate(x.shape))
    if not dims or (stands.shape != kept and stands.size != 1):
        return None
    return Reduced(op=op, operand=source(operand), x=x, dims=dims)


def find_difference(site: Site, field: Field, op_type: str) -> Reduced | None:
    """Return the reduction of x by an operator where a field is x minus that reduction."""
    difference = is_a(field, "Sub")
    if difference is None:
        return None
    x, reduced = fields_of(difference)
    found = find_reduction(site, reduced, op_type)
    return found if found is not None and is_same(x, found.operand) else None


def reach_reduction(field: Field, *op_types: str) -> Operation | None:
    """Return the reduction that a field may hold, whose shape is not known."""
    op = is_a(_behind_expand(field), *_PASSING, *op_types)
    while op is not None and kind(op) not in op_types:
        op = is_a(_find_passed(op), *_PASSING, *op_types)
    return op


def _behind_expand(field: Field) -> Field:
    return behind(field, "Expand") if is_a(field, "Expand") else field


def _find_passed(op: Operation) -> Field:
    """Return the field that a node passes on in another shape, or, as a maximum with -inf does, as it is."""
    if kind(op) != "Max":
        return fields_of(op)[0]
    passed = [field for field in fields_of(op) if constant(field) != -math.inf]
    return passed[0] if len(passed) == 1 else None


def reduced_dims(op: Operation, rank: int, axes: np.ndarray | None) -> list[int]:
    """Return the dimensions that a reduction reduces, ascending; none where it leaves its operand's shape alone."""
    given = ints(axes)
    if given:
        return sorted({axis % rank for axis in given}) if rank else []
    return [] if op.noop_with_empty_axes else list(range(rank))


def undo_transposes(site: Site, field: Field, dims: Sequence[int]) -> tuple[Field, list[int]]:
    """Return what a field is a transpose of, if it is one, and which dimensions of that are those of the field."""
    while (op := is_a(field, "Transpose")) is not None:
        inner = fields_of(op)[0]
        x = site.find_known(inner)
        if x is None or rounds_apart(site, x):
            break
        order = ints(op.permutation) or list(reversed(range(len(x.shape))))
        field, dims = inner, sorted(order[dim] for dim in dims)
    return field, list(dims)
