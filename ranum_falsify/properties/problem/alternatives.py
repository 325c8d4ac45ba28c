"""Conditions on inputs that are alternatives in disguise: at least one element of a mask is true."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ranum_falsify.properties.formula.formula import Comparison, Formula, Junction, Kind
from ranum_falsify.properties.formula.terms import Const, Gather, Reduce, Term

_LARGEST = 2.0**40
"""Limits up to this size, times a number of elements, are exact in float64."""

Alternatives = tuple[Formula, ...]


def alternatives_of(formula: Formula) -> Iterator[Alternatives]:
    """Yield sets of formulas: wherever a formula holds, so does at least one of each set.

    The least of some numbers is at most c where one of them is; the mean of integers is only where one of them is, and
    their sum, of n, only where one of them is at most c / n.

    Args:
        formula: A condition that is no conjunction.
    """
    if isinstance(formula, Junction):
        if formula.any:
            yield formula.parts
    elif isinstance(formula, Comparison):
        if formula.any and math.prod(np.broadcast_shapes(formula.left.shape, formula.right.shape)) > 1:
            yield from _split_elements(formula)
            return
        for small, large, strict in _inequalities(formula):
            yield from _split_reduction(small, large, strict, formula)


def _split_elements(formula: Comparison) -> Iterator[Alternatives]:
    """Yield the comparisons of the elements, one of which suffices."""
    shape = np.broadcast_shapes(formula.left.shape, formula.right.shape)
    left, right = (_elements(side, shape) for side in (formula.left, formula.right))
    yield tuple(
        Comparison(formula.kind, a, b, formula.negated, source=formula.source) for a, b in zip(left, right, strict=True)
    )


def _elements(term: Term, shape: tuple[int, ...]) -> list[Term]:
    if isinstance(term, Const):
        return [Const(number) for number in np.broadcast_to(term.array, shape).reshape(-1)]
    positions = np.broadcast_to(np.arange(term.size).reshape(term.shape), shape)
    return [Gather(term, position) for position in positions.reshape(-1, 1)]


def _inequalities(formula: Comparison) -> Iterator[tuple[Term, Term, bool]]:
    """Yield both sides of each `small <= large`, or strictly, that follows from a comparison of all elements."""
    if formula.kind != "==":
        small, large = (formula.right, formula.left) if formula.negated else (formula.left, formula.right)
        yield small, large, (formula.kind == "<") != formula.negated
    elif not formula.negated:
        yield formula.left, formula.right, False
        yield formula.right, formula.left, False


def _split_reduction(small: Term, large: Term, strict: bool, formula: Comparison) -> Iterator[Alternatives]:
    """Yield, for each element of a reduction, the elements that it reduces, one of which keeps its bound."""
    reduced, bound, is_upper = (small, large, True) if isinstance(large, Const) else (large, small, False)
    if not isinstance(reduced, Reduce) or not isinstance(bound, Const):
        return
    if np.broadcast_shapes(reduced.shape, bound.shape) != reduced.shape or not (abs(bound.array) <= _LARGEST).all():
        return
    if reduced.kind != ("min" if is_upper else "max") and not (reduced.kind in ("sum", "mean") and _is_exact(reduced)):
        return
    groups = _groups(reduced)
    limits = np.broadcast_to(bound.array, reduced.shape).reshape(-1)
    if reduced.kind in ("sum", "mean"):
        limits = _share_limits(limits / (groups.shape[1] if reduced.kind == "sum" else 1), is_upper, strict)
        strict = False
    for group, limit in zip(groups, map(Const, limits), strict=True):
        parts = [Gather(reduced.base, np.array([position])) for position in group]
        sides: Sequence[tuple[Term, Term]] = [(part, limit) if is_upper else (limit, part) for part in parts]
        kind: Kind = "<" if strict else "<="
        yield tuple(Comparison(kind, low, high, source=formula.source) for low, high in sides)


def _share_limits(means: np.ndarray, is_upper: bool, strict: bool) -> np.ndarray:
    """Return the integer that one of some integers reaches where their mean reaches a limit.

    Sums that are rounded rise with each number all the same: if all were beyond the limit, so would be their sum.
    """
    if is_upper:
        return np.asarray(np.ceil(means) - 1 if strict else np.floor(means))
    return np.asarray(np.floor(means) + 1 if strict else np.ceil(means))


def _groups(reduced: Reduce) -> np.ndarray:
    """Return the positions in the base that each element of a reduction is made from, as rows."""
    rank = len(reduced.base.shape)
    positions = np.arange(reduced.base.size).reshape(reduced.base.shape)
    kept = [axis for axis in range(rank) if axis not in reduced.axes]
    return positions.transpose(*kept, *reduced.axes).reshape(reduced.size, -1)


def _is_exact(reduced: Reduce) -> bool:
    """Tell whether sums of elements are exact: those of integers."""
    affine = reduced.base.affine
    if affine is None or affine.variable.dtype.kind not in "iub":
        return False
    return all(bool((array == np.round(array)).all()) for array in (affine.scale, affine.offset))
