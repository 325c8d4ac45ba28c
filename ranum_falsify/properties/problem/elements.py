"""Elements of tensors that a query names, as terms and comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.formula.formula import Comparison, Formula, Kind, conjunction
from ranum_falsify.properties.formula.terms import Const, Gather, Output, Term, Variable
from ranum_falsify.properties.language.elements import ElementBounds, Elements, NamedTensor

_KINDS: dict[str, tuple[Kind, bool, bool]] = {
    "<=": ("<=", False, False),
    "<": ("<", False, False),
    ">=": ("<=", True, False),
    ">": ("<", True, False),
    "==": ("==", False, False),
    "!=": ("==", False, True),
}
"""For each comparison: the kind of formula, whether the sides change places, and whether it is negated."""


def element_of(elements: Elements, value: Any) -> Term:
    """Return the only one of the elements.

    Args:
        elements: What a query names.
        value: The tensor's value: a term, or a tuple of them for all inputs or outputs of a network.

    Raises:
        PropertyError: The tensor has no such element, or is another than the query declares.
    """
    ((term, _, positions),) = _locate(elements, value)
    return Gather(term, positions.reshape(()))


def bounds_of(bounds: ElementBounds, value: Any) -> Formula:
    """Return the comparisons of elements with numbers, for arguments and errors as in `element_of`."""
    kind, swap, negated = _KINDS[bounds.kind]
    parts = []
    for term, chosen, positions in _locate(bounds.elements, value):
        left: Term = Gather(term, positions)
        right: Term = Const(bounds.values[chosen])
        if swap:
            left, right = right, left
        parts.append(Comparison(kind, left, right, negated=negated, source=bounds))
    return conjunction(parts)


def _locate(elements: Elements, value: Any) -> Iterator[tuple[Term, np.ndarray, np.ndarray]]:
    """Yield the terms that hold elements, which of the elements, and their positions in row-major order."""
    tensor, indices = elements.tensor, elements.indices
    terms = value if isinstance(value, tuple) else (value,)
    if tensor.shape is not None or indices.shape[1] != 1:
        if len(terms) != 1:
            raise PropertyError(
                f"property: {tensor.name} stands for {len(terms)} tensors; number their elements one after another, "
                f"as in {tensor.name}_0"
            )
        _check(tensor, terms[0])
        yield terms[0], np.arange(len(indices)), _ravel(elements, terms[0].shape)
        return
    flat, start = indices[:, 0], 0
    total = sum(term.size for term in terms)
    if flat.max() >= total:
        raise PropertyError(
            f"property: {tensor.name}_{flat.max()}: index {flat.max()} is out of bounds; there are {total} elements"
        )
    if len(terms) == 1:
        yield terms[0], np.arange(len(flat)), flat
        return
    for term in terms:
        chosen = np.nonzero((start <= flat) & (flat < start + term.size))[0]
        if len(chosen):
            yield term, chosen, flat[chosen] - start
        start += term.size


def _ravel(elements: Elements, shape: tuple[int, ...]) -> np.ndarray:
    indices = elements.indices
    if indices.shape[1] != len(shape) or (indices >= np.array(shape, np.int64)).any():
        raise PropertyError(f"property: {elements}: index is out of bounds; the shape is {list(shape)}")
    if not shape:
        return np.zeros(len(indices), np.int64)
    return np.asarray(np.ravel_multi_index(tuple(indices.T), shape))


def _check(tensor: NamedTensor, term: Term) -> None:
    """Refuse a tensor that is not declared as the model has it."""
    if tensor.shape is None:
        return
    dtype = None
    if isinstance(term, Variable):
        dtype = term.dtype.name
    elif isinstance(term, Output):
        dtype = np.dtype(term.call.graph.output_details[term.index].dtype).name
    if term.shape != tensor.shape or (None not in (dtype, tensor.dtype) and dtype != tensor.dtype):
        raise PropertyError(
            f"property: {tensor.name} is declared {tensor.dtype or 'real'} {list(tensor.shape)}, but is "
            f"{dtype or 'real'} {list(term.shape)} in the model"
        )
