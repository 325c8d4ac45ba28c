"""Counterexamples by cases: what they satisfy, split where a disjunction restricts the inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.formula.formula import Comparison, Formula, Junction, Kind, applies_network, describe
from ranum_falsify.properties.formula.terms import Const, Gather, Reduce, Term
from ranum_falsify.properties.problem.box import BoxBuilder, conjuncts

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


_MOST_CASES = 50_000
"""Cases of one disjunction."""

_MOST_COMBINED = 1024
"""Cases of several disjunctions, each combined with each."""

_MOST_IMPLIED = 64
"""Boxes that follow from side conditions, which remain."""


@dataclass
class BoxCase:
    """Counterexamples in one box.

    Attributes:
        box: Where they are.
        violated: What networks compute there, in conjunction.
        penalties: Other conditions on the inputs, in conjunction.
    """

    box: BoxBuilder
    violated: list[Formula] = field(default_factory=list)
    penalties: list[Formula] = field(default_factory=list)

    def copy(self) -> BoxCase:
        """Return a case that can be narrowed on its own."""
        return BoxCase(self.box.copy(), [*self.violated], [*self.penalties])

    def add(self, part: Formula) -> None:
        """Add a condition."""
        if applies_network(part):
            self.violated.append(part)
        elif not self.box.absorb(part):
            self.penalties.append(part)


def split(formula: Formula, box: BoxBuilder) -> list[BoxCase]:
    """Return the cases whose union is where a formula holds.

    Args:
        formula: What a counterexample satisfies.
        box: All inputs; it is narrowed.

    Raises:
        PropertyError: A bound is NaN, or no input satisfies a condition.
    """
    cases = _split(BoxCase(box), conjuncts(formula), _MOST_CASES)
    if len(cases) > _MOST_IMPLIED:
        return cases
    return [narrowed for case in cases for narrowed in _follow_implied(case, _MOST_IMPLIED // len(cases))]


def _split(case: BoxCase, parts: Sequence[Formula], most: int) -> list[BoxCase]:
    """Return the cases of a conjunction, no more than `most` of them; what would make more stays a condition."""
    choices: list[Junction] = []
    for part in parts:
        if isinstance(part, Junction) and part.any and _restricts_inputs(part):
            choices.append(part)
        else:
            case.add(part)
    choices.sort(key=lambda choice: len(choice.parts), reverse=True)
    split_off: list[Junction] = []
    for choice in choices:
        if len(choice.parts) <= most:
            split_off.append(choice)
            most = max(1, min(most, _MOST_COMBINED) // len(choice.parts))
        else:
            _narrow_to_hull(case, choice)
            case.add(choice)
    cases = [case]
    for choice in split_off:
        cases = [
            inner for outer in cases for part in choice.parts for inner in _split(outer.copy(), conjuncts(part), most)
        ]
    return cases


def _follow_implied(case: BoxCase, most: int) -> list[BoxCase]:
    """Return a case in the boxes of alternatives that its side conditions imply, such as that one element is true."""
    cases = [case]
    for penalty in case.penalties:
        for parts in alternatives_of(penalty):
            if len(parts) * len(cases) > most:
                continue
            narrowed = [_narrow(outer, parts) for outer in cases]
            if all(found is not None for found in narrowed):
                cases = [inner for found in narrowed for inner in found or ()]
            if not cases:
                raise PropertyError(f"property: no input satisfies {describe(penalty)}")
    return cases


def _narrow(case: BoxCase, parts: Sequence[Formula]) -> list[BoxCase] | None:
    """Return the parts of a case's box that alternatives leave; None if one of them says nothing about it."""
    found = []
    for part in parts:
        box = case.box.copy()
        if not any([box.absorb(conjunct) for conjunct in conjuncts(part)]):
            return None
        if not box.is_empty:
            found.append(BoxCase(box, case.violated, case.penalties))
    return found


def _restricts_inputs(formula: Formula) -> bool:
    """Tell whether a formula, or a part of it, bounds inputs whatever networks compute."""
    if isinstance(formula, Junction):
        return any(map(_restricts_inputs, formula.parts))
    return isinstance(formula, Comparison) and BoxBuilder.can_narrow(formula)


def _narrow_to_hull(case: BoxCase, choice: Junction) -> None:
    boxes = []
    for part in choice.parts:
        alternative = BoxCase(case.box.copy())
        for conjunct in conjuncts(part):
            alternative.add(conjunct)
        if not alternative.box.is_empty:
            boxes.append(alternative.box)
    if boxes:
        case.box = case.box.hull(boxes)
