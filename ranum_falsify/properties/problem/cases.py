"""Counterexamples by cases: what they satisfy, split where a disjunction restricts the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.formula.formula import Comparison, Formula, Junction, applies_network, describe
from ranum_falsify.properties.problem.alternatives import alternatives_of
from ranum_falsify.properties.problem.box import BoxBuilder, conjuncts

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
