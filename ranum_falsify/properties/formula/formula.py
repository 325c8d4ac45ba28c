"""Formulas in negation normal form: comparisons and validity goals under conjunctions and disjunctions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.formula.terms import Term, ValidityGoal
from ranum_falsify.properties.language.walk import shorten

Kind = Literal["<=", "<", "=="]


@dataclass(frozen=True, eq=False)
class Truth:
    """A formula whose truth is known."""

    value: bool


@dataclass(frozen=True, eq=False)
class Comparison:
    """`left kind right`, element by element.

    Attributes:
        kind: The comparison; a NaN makes it false.
        left: Left side.
        right: Right side, broadcast against the left one.
        negated: Each element's comparison is negated (then a NaN makes it true).
        any: Whether one element suffices; else all elements must satisfy it.
        source: What the property writes, for messages.
    """

    kind: Kind
    left: Term
    right: Term
    negated: bool = False
    any: bool = False
    source: object = None

    def __post_init__(self) -> None:
        """Refuse to compare nothing.

        Raises:
            PropertyError: A side has no elements.
        """
        left, right = self.left.shape, self.right.shape
        # Files may have 100,000 comparisons, nearly all of equal shapes, for which NumPy takes longest.
        if 0 in (left if left == right else np.broadcast_shapes(left, right)):
            where = "" if self.source is None else f": {shorten(self.source)}"
            raise PropertyError(f"property: nothing is compared, because one side has no elements{where}")


@dataclass(frozen=True, eq=False)
class Goal:
    """No operator of an application receives an invalid input (or, negated, some operator does)."""

    goal: ValidityGoal
    negated: bool = False


@dataclass(frozen=True, eq=False)
class Junction:
    """A conjunction, or a disjunction, of at least two parts."""

    any: bool
    parts: tuple[Formula, ...]


Formula = Truth | Comparison | Goal | Junction


def conjunction(parts: Iterable[Formula]) -> Formula:
    """Return the flattened conjunction."""
    return _junction(False, parts)


def disjunction(parts: Iterable[Formula]) -> Formula:
    """Return the flattened disjunction."""
    return _junction(True, parts)


def _junction(any_: bool, parts: Iterable[Formula]) -> Formula:
    kept: list[Formula] = []
    for part in parts:
        if isinstance(part, Truth):
            if part.value == any_:
                return part
        elif isinstance(part, Junction) and part.any == any_:
            kept.extend(part.parts)
        else:
            kept.append(part)
    if not kept:
        return Truth(not any_)
    return kept[0] if len(kept) == 1 else Junction(any_, tuple(kept))


def negate(formula: Formula) -> Formula:
    """Return the negation, pushed down to comparisons and goals."""
    if isinstance(formula, Truth):
        return Truth(not formula.value)
    if isinstance(formula, Junction):
        return Junction(not formula.any, tuple(negate(part) for part in formula.parts))
    if isinstance(formula, Comparison):
        kind, left, right = formula.kind, formula.left, formula.right
        return Comparison(kind, left, right, not formula.negated, not formula.any, formula.source)
    return replace(formula, negated=not formula.negated)


def describe(formula: Formula, limit: int = 100) -> str:
    """Return a formula on one line, shortened to `limit` characters."""
    if isinstance(formula, Truth):
        text = str(formula.value)
    elif isinstance(formula, Comparison):
        text = " ".join(str(formula.source).split())
        text = f"not {text}" if formula.negated else text
    elif isinstance(formula, Goal):
        text = f"no_invalid_input({formula.goal.call.network}(...))"
        text = f"not {text}" if formula.negated else text
    else:
        word = " | " if formula.any else " & "
        parts = [describe(part) for part in formula.parts[:4]] + ["..."] * (len(formula.parts) > 4)
        text = word.join(parts)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def walk(formulas: Iterable[Formula], more: Callable[[Any], Iterable[Any]] = lambda part: ()) -> Iterator[Any]:
    """Yield formulas, and the formulas and terms that they are made of, each once.

    Args:
        formulas: The formulas.
        more: What else one of these leads to.
    """
    pending: list[Any] = list(formulas)
    seen: set[int] = set()
    while pending:
        part = pending.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, Junction):
            pending += part.parts
        elif isinstance(part, Comparison):
            pending += (part.left, part.right)
        elif isinstance(part, Term):
            pending += part.operands
        pending += more(part)


def applies_network(formula: Formula) -> bool:
    """Whether the truth depends on a network."""
    if isinstance(formula, Comparison):
        return formula.left.applies_network or formula.right.applies_network
    if isinstance(formula, Junction):
        return any(applies_network(part) for part in formula.parts)
    return isinstance(formula, Goal)
