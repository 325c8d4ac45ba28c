"""Terms as single numbers of VNN-LIB: inputs X_i, outputs Y_j, constants, sums and products of them, and extremes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import torch

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.formula.terms import Const, Elementwise, Gather, Output, Reduce, Term, Variable


@dataclass(frozen=True)
class Number:
    """A constant."""

    value: float

    def __str__(self) -> str:
        return spell(self.value)


@dataclass(frozen=True)
class Quantity:
    """An element of an input or an output.

    Attributes:
        name: `X_3` or `Y_0`.
        dtype: Its element type.
    """

    name: str
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Compound:
    """A sum, difference, product or quotient."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Extreme:
    """The greatest, or the least, of several."""

    is_greatest: bool
    parts: tuple[Scalar, ...]


Scalar = Number | Quantity | Compound | Extreme


def spell(value: float) -> str:
    """Return a number with digits and point only, exactly.

    Raises:
        PropertyError: It is not finite.
    """
    if not np.isfinite(value):
        raise PropertyError(f"property: VNN-LIB has no number {value}; compare with a finite one")
    text = format(Decimal(float(value)), "f") if value else "0.0"
    return text if "." in text else f"{text}.0"


class Scalars:
    """The elements of terms.

    Args:
        inputs: The position of the first X of each input variable.
        outputs: The position of the first Y of each output.
    """

    def __init__(self, inputs: Mapping[str, int], outputs: Mapping[int, int]) -> None:
        self._inputs, self._outputs = inputs, outputs
        self._known: dict[int, tuple[Term, np.ndarray]] = {}

    def of(self, term: Term) -> np.ndarray:
        """Return an array of `Scalar`, of the term's shape.

        Raises:
            PropertyError: VNN-LIB has no words for it.
        """
        if id(term) not in self._known:
            self._known[id(term)] = term, self._make(term)
        return self._known[id(term)][1]

    def _make(self, term: Term) -> np.ndarray:
        if isinstance(term, Const):
            return _each(Number, term.array)
        if isinstance(term, Variable):
            return _quantities("X", self._inputs[term.name], term.shape, term.dtype)
        if isinstance(term, Output):
            dtype = np.dtype(term.call.graph.output_details[term.index].dtype)
            return _quantities("Y", self._outputs[term.index], term.shape, dtype)
        if isinstance(term, Gather):
            return np.asarray(self.of(term.base).reshape(-1)[term.index], dtype=object)
        if isinstance(term, Reduce):
            return self._reduce(term)
        if isinstance(term, Elementwise) and term.name in _FUNCTIONS:
            operands = np.broadcast_arrays(*(self.of(operand) for operand in term.operands))
            return _each(lambda *values: _apply(term, *values), *operands)
        name = term.name if isinstance(term, Elementwise) else type(term).__name__
        raise PropertyError(f"property: VNN-LIB cannot say {name!r}; it has comparisons, sums and products")

    def _reduce(self, term: Reduce) -> np.ndarray:
        base = np.moveaxis(self.of(term.base), term.axes, range(len(term.axes)))
        columns = base.reshape(int(np.prod(base.shape[: len(term.axes)])), -1)
        made = np.empty(columns.shape[1], dtype=object)
        for number in range(len(made)):
            made[number] = _REDUCTIONS[term.kind](tuple(columns[:, number]))
        return made.reshape(term.shape)


def _each(function: Callable[..., Scalar], *arrays: np.ndarray) -> np.ndarray:
    """Apply a function element by element."""
    made = np.empty(arrays[0].shape, dtype=object)
    for index in np.ndindex(made.shape):
        made[index] = function(*(array[index] for array in arrays))
    return made


def _quantities(letter: str, first: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    return _each(lambda number: Quantity(f"{letter}_{first + int(number)}", dtype), numbers)


def _apply(term: Elementwise, *values: Scalar) -> Scalar:
    """Apply a function to scalars; to numbers as the property does it."""
    if all(isinstance(value, Number) for value in values):
        numbers = [torch.tensor(value.value, dtype=torch.float64) for value in values if isinstance(value, Number)]
        return Number(float(term.function(*numbers)))
    return _FUNCTIONS[term.name](*values)


def _negate(x: Scalar) -> Scalar:
    if isinstance(x, Extreme):
        return Extreme(not x.is_greatest, tuple(_negate(part) for part in x.parts))
    return Number(-x.value) if isinstance(x, Number) else Compound(f"(- {x})")


def _combine(sign: str) -> Callable[[Scalar, Scalar], Scalar]:
    """Return addition, or subtraction, which goes into an extreme."""

    def combine(x: Scalar, y: Scalar) -> Scalar:
        if isinstance(x, Extreme) and isinstance(y, Extreme):
            raise PropertyError(f"property: VNN-LIB cannot say an extreme {sign} an extreme")
        if isinstance(x, Extreme):
            return Extreme(x.is_greatest, tuple(combine(part, y) for part in x.parts))
        if isinstance(y, Extreme):
            return Extreme(y.is_greatest == (sign == "+"), tuple(combine(x, part) for part in y.parts))
        return Compound(f"({sign} {x} {y})")

    return combine


def _multiply(x: Scalar, y: Scalar) -> Scalar:
    for extreme, factor in ((x, y), (y, x)):
        if isinstance(extreme, Extreme):
            if not isinstance(factor, Number):
                raise PropertyError("property: VNN-LIB cannot say a product of an extreme and what is no number")
            parts = tuple(_multiply(factor, part) for part in extreme.parts)
            return Extreme(extreme.is_greatest == (factor.value >= 0), parts)
    return Compound(f"(* {x} {y})")


def _divide(x: Scalar, y: Scalar) -> Scalar:
    if isinstance(x, Extreme) or isinstance(y, Extreme):
        raise PropertyError("property: VNN-LIB cannot say a quotient of extremes; multiply instead")
    return Compound(f"(/ {x} {y})")


def _extreme(is_greatest: bool) -> Callable[[tuple[Scalar, ...]], Scalar]:
    def extreme(parts: tuple[Scalar, ...]) -> Scalar:
        return parts[0] if len(parts) == 1 else Extreme(is_greatest, parts)

    return extreme


def _sum(parts: tuple[Scalar, ...]) -> Scalar:
    total = parts[0]
    for part in parts[1:]:
        total = _combine("+")(total, part)
    return total


_GREATEST, _LEAST = _extreme(True), _extreme(False)

_FUNCTIONS: dict[str, Callable[..., Scalar]] = {
    "+": _combine("+"),
    "-": _combine("-"),
    "*": _multiply,
    "/": _divide,
    "negate": _negate,
    "positive": lambda x: x,
    "absolute": lambda x: _GREATEST((x, _negate(x))),
    "maximum": lambda *parts: _GREATEST(parts),
    "minimum": lambda *parts: _LEAST(parts),
    "square": lambda x: _multiply(x, x),
}

_REDUCTIONS: dict[str, Callable[[tuple[Scalar, ...]], Scalar]] = {
    "max": _GREATEST,
    "min": _LEAST,
    "sum": _sum,
    "mean": lambda parts: _multiply(Number(1 / len(parts)), _sum(parts)),
}
