"""Problems as VNN-LIB: assertions that inputs X_i and outputs Y_j of a counterexample satisfy.

Tools read assertions of `<=` and `>=`, and of `or` over `and` of them; nothing is strict.  A strict comparison of one
input or output with a number is said exactly all the same, by the next number of its element type.  VNN-LIB is about
real numbers: an output that is NaN satisfies no assertion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.formula.formula import Comparison, Formula, Goal, Junction, Truth, conjunction, negate
from ranum_falsify.properties.formula.terms import Arg, Const
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.properties.problem.scalars import Compound, Extreme, Number, Quantity, Scalar, Scalars, spell

_MOST_COMPARISONS = 50_000
_FALSEHOOD = ("(<= Y_0 0.0)", f"(>= Y_0 {spell(2.0**128)})")
"""There is no word for what is false; bounds of a network whose numbers are finite show that this is."""


@dataclass(frozen=True)
class Together:
    """A conjunction, or a disjunction, of any number of statements."""

    any: bool
    parts: tuple[Assertion, ...]


Assertion = str | Together
"""A comparison as VNN-LIB writes it, or several."""


def all_of(parts: Iterable[Assertion]) -> Assertion:
    """Return the conjunction."""
    return _join(False, parts)


def any_of(parts: Iterable[Assertion]) -> Assertion:
    """Return the disjunction."""
    return _join(True, parts)


def _join(any_: bool, parts: Iterable[Assertion]) -> Assertion:
    kept: list[Assertion] = []
    for part in parts:
        if isinstance(part, Together) and (part.any == any_ or len(part.parts) == 1):
            kept.extend(part.parts)
        elif isinstance(part, Together) and not part.parts:
            return part  # a false part of a conjunction, a true one of a disjunction
        else:
            kept.append(part)
    return kept[0] if len(kept) == 1 else Together(any_, tuple(kept))


_TRUE, _FALSE = Together(False, ()), Together(True, ())


@dataclass(frozen=True, kw_only=True)
class Naming:
    """What the X and Y of a file are.

    Attributes:
        inputs: The position of the first X of each input variable.
        outputs: The position of the first Y of each output of the network that is one.
        input_count: How many X there are.
        output_count: How many Y there are.
        goals: For each validity goal, by `id`, what is true where it is violated.
    """

    inputs: Mapping[str, int]
    outputs: Mapping[int, int]
    input_count: int
    output_count: int
    goals: Mapping[int, Assertion] = field(default_factory=dict)


@dataclass(frozen=True)
class VnnlibText:
    """A property in VNN-LIB."""

    text: str
    notices: tuple[str, ...] = ()


def at_most(x: Quantity | Compound, bound: float, *, strict: bool = False) -> str:
    """Return the comparison x <= bound, or x < bound, of numbers of the element type of x."""
    return f"(<= {x} {spell(_step(x, bound, -1) if strict else bound)})"


def at_least(x: Quantity | Compound, bound: float, *, strict: bool = False) -> str:
    """Return the comparison x >= bound, or x > bound, of numbers of the element type of x."""
    return f"(>= {x} {spell(_step(x, bound, 1) if strict else bound)})"


def write_vnnlib(problem: Problem, naming: Naming) -> VnnlibText:
    """Return a problem of one network as VNN-LIB.

    Raises:
        PropertyError: VNN-LIB cannot say it.
    """
    writer = _VnnlibWriter(naming)
    violated = negate(conjunction(problem.clauses))
    statement = all_of([writer.state(formula) for formula in (*problem.penalties, violated)])
    lines = ["; What a counterexample satisfies."]
    lines += [f"(declare-const X_{number} Real)" for number in range(naming.input_count)]
    lines += [f"(declare-const Y_{number} Real)" for number in range(naming.output_count)]
    for variable in problem.inputs:
        lines += _bounds(variable, naming.inputs[variable.name])
    parts = statement.parts if isinstance(statement, Together) and not statement.any else (statement,)
    assertions = [line for part in parts for line in _assertion(_alternatives(part))]
    if not any("Y_" in line for line in assertions):
        # Readers want to see the network applied; this is true of any number.
        assertions += _assertion([("(<= Y_0 0.0)",), ("(>= Y_0 0.0)",)])
    lines += assertions
    return VnnlibText("\n".join(lines) + "\n", tuple(writer.notices()))


def _bounds(variable: InputVariable, first: int) -> Iterator[str]:
    pairs = zip(variable.lower.reshape(-1).tolist(), variable.upper.reshape(-1).tolist(), strict=True)
    for number, (lower, upper) in enumerate(pairs, first):
        yield f"(assert (>= X_{number} {spell(lower)}))"
        yield f"(assert (<= X_{number} {spell(upper)}))"


def _alternatives(statement: Assertion) -> list[tuple[str, ...]]:
    """Return the disjunctive normal form: conjunctions of which one is true."""
    if isinstance(statement, str):
        return [(statement,)]
    parts = [_alternatives(part) for part in statement.parts]
    if statement.any:
        made = [alternative for part in parts for alternative in part]
        size = sum(map(len, made))
    else:
        count = float(np.prod([float(len(part)) for part in parts]))
        size = int(min(count * sum(len(part[0]) if part else 0 for part in parts), 1e9))
        made = [] if size > _MOST_COMPARISONS else [sum(choice, ()) for choice in product(*parts)]
    if size > _MOST_COMPARISONS:
        raise PropertyError(
            f"property: as alternatives, which VNN-LIB needs, it has more than {_MOST_COMPARISONS:,} comparisons; "
            "split it"
        )
    return made


def _assertion(alternatives: Sequence[tuple[str, ...]]) -> Iterator[str]:
    alternatives = alternatives or [_FALSEHOOD]
    if len(alternatives) == 1:
        yield from (f"(assert {atom})" for atom in alternatives[0])
        return
    yield "(assert (or"
    yield from (f"    (and {' '.join(atoms)})" for atoms in alternatives)
    yield "))"


class _VnnlibWriter:
    """Writes formulas, and counts what it cannot say exactly."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming
        self._scalars = Scalars(naming.inputs, naming.outputs)
        self._ties = self._sums = 0

    def notices(self) -> Iterator[str]:
        """Yield what is not said exactly, or not in the words that all tools know."""
        if self._ties:
            yield (
                f"{self._ties} strict comparisons are written as <= or >=, which VNN-LIB has alone: where both sides "
                "are equal, the file sees a counterexample, and the property none"
            )
        if self._sums:
            yield f"{self._sums} comparisons are of sums or products, which some tools do not read"

    def state(self, formula: Formula) -> Assertion:
        """Return what is true where a formula is."""
        if isinstance(formula, Truth):
            return _TRUE if formula.value else _FALSE
        if isinstance(formula, Junction):
            return _join(formula.any, [self.state(part) for part in formula.parts])
        if isinstance(formula, Comparison):
            return _join(formula.any, self._elements(formula))
        return self._goal(formula)

    def _goal(self, formula: Goal) -> Assertion:
        if not formula.negated:
            raise PropertyError("property: VNN-LIB cannot say that no operator receives invalid input, as a condition")
        return self._naming.goals[id(formula.goal)]

    def _elements(self, formula: Comparison) -> Iterator[Assertion]:
        left, right = formula.left, formula.right
        if formula.kind == "==" and isinstance(right, Arg):
            left, right = right, left
        if formula.kind == "==" and isinstance(left, Arg) and isinstance(right, Const):
            yield from self._choices(left, right, formula.negated)
            return
        sides = np.broadcast_arrays(self._scalars.of(left), self._scalars.of(right))
        for first, second in zip(*(side.reshape(-1) for side in sides), strict=True):
            yield self._compare(formula, first, second)

    def _compare(self, formula: Comparison, left: Scalar, right: Scalar) -> Assertion:
        if formula.kind != "==":
            is_strict = (formula.kind == "<") != formula.negated
            return self._order(*((right, left) if formula.negated else (left, right)), strict=is_strict)
        both = (self._order(left, right, strict=formula.negated), self._order(right, left, strict=formula.negated))
        return _join(formula.negated, both)

    def _choices(self, arg: Arg, index: Const, negated: bool) -> Iterator[Assertion]:
        """Yield that an argmax or argmin is an index; the first of equal scores is chosen."""
        scores = np.moveaxis(self._scalars.of(arg.base), arg.axis, -1)
        for place, chosen in zip(np.ndindex(arg.shape), np.broadcast_to(index.array, arg.shape).flat, strict=True):
            if chosen not in range(arg.choices):
                yield _TRUE if negated else _FALSE
                continue
            row, best = scores[place], scores[place][int(chosen)]
            parts = []
            for number in range(arg.choices):
                if number == chosen:
                    continue
                pair = (row[number], best) if arg.kind == "argmax" else (best, row[number])
                is_strict = (number < chosen) != negated
                parts.append(self._order(*(pair[::-1] if negated else pair), strict=is_strict))
            yield _join(negated, parts)

    def _order(self, small: Scalar, large: Scalar, *, strict: bool) -> Assertion:
        """Return that one is at most the other, or less."""
        if isinstance(small, Extreme):
            return _join(not small.is_greatest, [self._order(part, large, strict=strict) for part in small.parts])
        if isinstance(large, Extreme):
            return _join(large.is_greatest, [self._order(small, part, strict=strict) for part in large.parts])
        if isinstance(small, Number) and isinstance(large, Number):
            return _TRUE if (small.value < large.value if strict else small.value <= large.value) else _FALSE
        self._sums += isinstance(small, Compound) or isinstance(large, Compound)
        if isinstance(large, Number) and not isinstance(small, Number):
            return at_most(small, large.value, strict=strict)
        if isinstance(small, Number) and not isinstance(large, Number):
            return at_least(large, small.value, strict=strict)
        self._ties += strict
        return f"(<= {small} {large})"


def _step(x: Quantity | Compound, bound: float, way: int) -> float:
    """Return the nearest number of an element type above a bound (`way` 1), or below it (-1)."""
    dtype = x.dtype if isinstance(x, Quantity) else np.dtype(np.float64)  # in which properties compute
    if dtype.kind in "iub":
        return float(np.floor(bound) + 1 if way > 0 else np.ceil(bound) - 1)
    with np.errstate(over="ignore"):
        near = np.asarray(bound, dtype=dtype)
        value = float(near)
        if (value - bound) * way <= 0:
            value = float(np.nextafter(near, np.asarray(way * np.inf, dtype=dtype)))
    if np.isinf(value):
        # Beyond the greatest number there is infinity only: any number above the former tells them apart.
        value = way * 2.0 ** float(np.ceil(np.log2(abs(bound)))) if abs(bound) < 1e308 else value
    return value
