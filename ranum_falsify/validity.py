# ruff: noqa: D102 - the methods of conditions are described in Constraint
"""What makes an operand invalid, defined once.

A :class:`Constraint` is attached to an operator row.  It serves the proof (`holds`), the proof of the opposite
(`fails`), the search (`margin`, `crossing`), the replay and generated tests (`is_violated`), VNN-LIB and repairs
(`invalid_ranges`), and people (`describe`).

An operator receives an invalid input when (a) no element that it reads is NaN, yet an output element is NaN, or (b) all
elements that it reads are finite, yet an output element is infinite.  An elementwise operator is judged element by
element: what it reads is the elements of its operands at the same place.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.attributes import readings_of
from ranum_falsify.domain.interval import Interval
from ranum_falsify.network import spec_of

if TYPE_CHECKING:
    from dnnv.nn import Operation

Operands = Mapping[str, Tensor]
"""Tensors that an operator reads, by operand name, and those that it writes as `output`, `output_1`, ..."""

Bounds = Mapping[str, Interval]
"""Bounds on what an operator reads and writes, by the names of :data:`Operands`."""

Bound = float | Callable[[torch.dtype], float]
"""A number, or a function of the operand's dtype (for limits such as the logarithm of the largest float)."""


def largest(dtype: torch.dtype) -> float:
    """Return the largest finite number of a floating dtype."""
    return float(torch.finfo(dtype).max)


def log_of_largest(dtype: torch.dtype) -> float:
    """Return the largest float of the dtype whose exponential is finite (ln of :func:`largest`, rounded down)."""
    exact = torch.tensor(math.log(largest(dtype)), dtype=torch.float64)
    rounded = exact.to(dtype)
    below = torch.nextafter(rounded, torch.zeros_like(rounded)) if rounded.double() > exact else rounded
    return float(below)


def surely_zero(x: Interval) -> Tensor:
    """Return where every value within the bounds is 0, in the stored shape."""
    return (x.lower == 0) & (x.upper == 0) & (not x.nan)


def _make_strict(distance: Tensor) -> Tensor:
    """Make a distance of 0 or less negative, so that a strict bound is violated at equality."""
    return torch.where(distance <= 0, distance - torch.finfo(distance.dtype).tiny, distance)


def _floating(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.double()


class InvalidRange(NamedTuple):
    """A range of an operand of which one element violates a condition; its finite ends may be outside."""

    operand: str
    lower: float = -math.inf
    upper: float = math.inf
    is_open: bool = False


class Constraint(ABC):
    """A condition on the operands of one operator that keeps its output valid.

    Attributes:
        reason: Why a violation is invalid, as the end of a sentence: "logarithm of a non-positive number".
        needs_infinity: Whether only an infinite operand can violate it; a search over finite tensors may skip it.
        refuses: Whether ONNX Runtime ends the run where it is violated, instead of writing NaN or infinity.
        crashes: Whether its process ends there.
        only_onnxruntime: Whether PyTorch runs the operator all the same.
        decided_by: Operands that alone decide it, besides shapes; see `OperatorSpec.stated`.
        raised_by: The attribute, if the operator has it, that is added to what has to be above 0.
    """

    reason: str
    needs_infinity: bool = False
    refuses: bool = False
    crashes: bool = False
    only_onnxruntime: bool = False
    decided_by: tuple[str, ...] = ()
    raised_by: str = ""

    @abstractmethod
    def margin(self, op: Operation, operands: Operands) -> Tensor:
        """Return the signed distance to violation, elementwise.

        Args:
            op: The operation, for its attributes.
            operands: Tensors by operand name; outputs as `output`, `output_1`, ...

        Returns:
            A floating tensor of any shape: negative exactly where the constraint is violated.  NaN operands give
            NaN, which callers read as "not violated here": the NaN came from upstream.
        """

    @abstractmethod
    def holds(self, op: Operation, operands: Bounds) -> bool:
        """Tell whether no tensors within the bounds violate the condition.

        Args:
            op: The operation, for its attributes.
            operands: Bounds by operand name; those of the outputs, as the rule gives them, as `output`, `output_1`, ...
        """

    def fails(self, op: Operation, operands: Bounds) -> bool:
        """Tell whether there is an element at which all tensors within the bounds violate the condition.

        Not the opposite of `holds`: on most bounds neither is known.

        Args:
            op: See :meth:`holds`.
            operands: See :meth:`holds`; for tensors without NaN.  Those of the outputs may be missing.

        Returns:
            False if that cannot be told.
        """
        return False

    def ranges_beside(self, op: Operation, operands: Bounds) -> Iterator[InvalidRange]:
        """Yield the ranges of operands in which a number violates it, the others being anywhere within bounds.

        Args:
            op: See :meth:`holds`.
            operands: See :meth:`holds`.
        """
        for name, x in operands.items():
            # Bounds of floating operands may be none of whole numbers.
            if x.is_floating or isinstance(self, NotZero | Condition):
                yield from (found for found in self.invalid_ranges(x.dtype) or () if found.operand == name)

    @abstractmethod
    def describe(self) -> str:
        """Return the condition as people write it, such as `x > 0`."""

    def as_read(self, dtype: torch.dtype) -> Constraint:
        """Return the same condition, whose description is about operands of an element type."""
        return self

    def crossing(self, op: Operation, operands: Operands) -> Tensor | None:
        """Return a tensor whose sign change brackets an invalid point, or None where the set is not a border."""
        return None

    def invalid_ranges(self, dtype: torch.dtype) -> tuple[InvalidRange, ...] | None:
        """Return the ranges in which finite numbers of a type violate it; None where it is no matter of ranges."""
        return None

    def is_violated(self, op: Operation, operands: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return where concrete operands violate the constraint, as booleans of the margin's shape."""
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in operands.items()}
        return (self.margin(op, tensors) < 0).numpy()


@dataclass(frozen=True)
class _Bounded(Constraint):
    """One operand and its bound.

    `only_finite` means that an infinite operand is no violation: it gives an infinite output, not NaN.
    `shown` is the element type that its description is about.
    """

    operand: str
    bound: Bound
    reason: str
    only_finite: bool = False
    shown: torch.dtype = field(default=torch.float32, compare=False)

    _keeps: ClassVar[staticmethod[[Any, Any], Any]]
    """`_keeps(x, bound)`: the condition."""
    _symbol: ClassVar[str]
    _is_lower: ClassVar[bool]
    _is_strict: ClassVar[bool]

    def _bound(self, dtype: torch.dtype) -> float:
        return self.bound(dtype) if callable(self.bound) else self.bound

    def _keep_finite(self, x: Interval) -> Interval:
        """Return the bounds of the values that count: the finite ones, where infinite ones are not a violation."""
        return x.keep_finite() if self.only_finite else x

    def margin(self, op: Operation, operands: Operands) -> Tensor:
        x = _floating(operands[self.operand])
        bound = self._bound(x.dtype)
        distance = x - bound if self._is_lower else bound - x
        distance = _make_strict(distance) if self._is_strict else distance
        return torch.where(x.isinf(), math.inf, distance) if self.only_finite else distance

    def crossing(self, op: Operation, operands: Operands) -> Tensor | None:
        return self.margin(op, operands) if self._is_strict else None

    def holds(self, op: Operation, operands: Bounds) -> bool:
        x = self._keep_finite(operands[self.operand])
        return bool(self._keeps(x.lower if self._is_lower else x.upper, self._bound(x.dtype)).all())

    def fails(self, op: Operation, operands: Bounds) -> bool:
        x = operands.get(self.operand)
        if x is None or x.nan or not x.size:
            return False
        beyond = ~self._keeps(x.upper if self._is_lower else x.lower, self._bound(x.dtype))
        if self.only_finite:
            beyond = beyond & (x.lower > -math.inf) & (x.upper < math.inf)
        return bool(beyond.any())

    def invalid_ranges(self, dtype: torch.dtype) -> tuple[InvalidRange, ...]:
        end = "upper" if self._is_lower else "lower"
        return (InvalidRange(operand=self.operand, is_open=not self._is_strict, **{end: self._bound(dtype)}),)

    def as_read(self, dtype: torch.dtype) -> Constraint:
        return replace(self, shown=dtype) if callable(self.bound) else self

    def describe(self) -> str:
        of_type = f" (in {str(self.shown).removeprefix('torch.')})" if callable(self.bound) else ""
        return f"{self.operand} {self._symbol} {self._bound(self.shown):.7g}{of_type}"


class GreaterThan(_Bounded):
    """The operand is above the bound (`Log`: x > 0)."""

    _keeps, _symbol, _is_lower, _is_strict = staticmethod(operator.gt), ">", True, True


class AtLeast(_Bounded):
    """The operand is not below the bound (`Sqrt`: x >= 0)."""

    _keeps, _symbol, _is_lower, _is_strict = staticmethod(operator.ge), ">=", True, False


class LessThan(_Bounded):
    """The operand is below the bound (`Atanh`: x < 1)."""

    _keeps, _symbol, _is_lower, _is_strict = staticmethod(operator.lt), "<", False, True


class AtMost(_Bounded):
    """The operand is not above the bound (`Exp`: x <= 88.72 in float32)."""

    _keeps, _symbol, _is_lower, _is_strict = staticmethod(operator.le), "<=", False, False


@dataclass(frozen=True)
class NotZero(Constraint):
    """The operand is not zero (`Div`: b != 0)."""

    operand: str
    reason: str

    def margin(self, op: Operation, operands: Operands) -> Tensor:
        return _make_strict(_floating(operands[self.operand]).abs())

    def crossing(self, op: Operation, operands: Operands) -> Tensor | None:
        return _floating(operands[self.operand])

    def holds(self, op: Operation, operands: Bounds) -> bool:
        return not bool(operands[self.operand].contains(0).any())

    def fails(self, op: Operation, operands: Bounds) -> bool:
        return bool(surely_zero(operands[self.operand]).any())

    def invalid_ranges(self, dtype: torch.dtype) -> tuple[InvalidRange, ...]:
        return (InvalidRange(operand=self.operand, lower=0.0, upper=0.0),)

    def describe(self) -> str:
        return f"{self.operand} != 0"


@dataclass(frozen=True)
class Condition(Constraint):
    """A condition over several operands or attributes, given by its margin (`Softmax`: no row is all -Inf)."""

    text: str
    reason: str
    margin_of: Callable[[Operation, Operands], Tensor]
    crossing_of: Callable[[Operation, Operands], Tensor | None] | None = None
    needs_infinity: bool = False
    refuses: bool = False
    crashes: bool = False
    only_onnxruntime: bool = False
    decided_by: tuple[str, ...] = ()
    raised_by: str = ""
    holds_of: Callable[[Operation, Bounds], bool] | None = None
    fails_of: Callable[[Operation, Bounds], bool] | None = None
    ranges_of: Callable[[torch.dtype], tuple[InvalidRange, ...]] | None = None
    beside_of: Callable[[Operation, Bounds], Iterator[InvalidRange]] | None = None

    def margin(self, op: Operation, operands: Operands) -> Tensor:
        return self.margin_of(op, operands)

    def crossing(self, op: Operation, operands: Operands) -> Tensor | None:
        return None if self.crossing_of is None else self.crossing_of(op, operands)

    def holds(self, op: Operation, operands: Bounds) -> bool:
        if self.holds_of is not None:
            return all(self.holds_of(reading, operands) for reading in readings_of(op))
        return self.needs_infinity and not any(
            x.may_be_infinite for name, x in operands.items() if not name.startswith("output")
        )

    def fails(self, op: Operation, operands: Bounds) -> bool:
        return self.fails_of is not None and self.fails_of(op, operands)

    def invalid_ranges(self, dtype: torch.dtype) -> tuple[InvalidRange, ...] | None:
        return None if self.ranges_of is None else self.ranges_of(dtype)

    def ranges_beside(self, op: Operation, operands: Bounds) -> Iterator[InvalidRange]:
        return super().ranges_beside(op, operands) if self.beside_of is None else self.beside_of(op, operands)

    def describe(self) -> str:
        return self.text


@dataclass(frozen=True)
class NotInfinite(Constraint):
    """The operand is not infinite (`Sin`), or not -Inf (`Gelu`, which multiplies it by 0).

    The margin is the distance to infinity in natural logarithms, as in :class:`Finite`.

    Attributes:
        operand: Name of the operand.
        reason: See :class:`Constraint`.
        only_negative: Whether +Inf is allowed.
    """

    operand: str
    reason: str
    only_negative: bool = False
    needs_infinity: bool = True

    def margin(self, op: Operation, operands: Operands) -> Tensor:
        x = _floating(operands[self.operand])
        size = -x if self.only_negative else x.abs()
        return torch.where(size == math.inf, -1.0, _room(size))

    def holds(self, op: Operation, operands: Bounds) -> bool:
        x = operands[self.operand]
        return not x.may_be_infinite or (self.only_negative and not bool((x.lower == -math.inf).any()))

    def describe(self) -> str:
        return f"{self.operand} > -inf" if self.only_negative else f"{self.operand} is finite"


def _room(size: Tensor) -> Tensor:
    """Return ln(largest) - ln(size); not negative for finite sizes, however the logarithm is rounded."""
    limits = torch.finfo(size.dtype)
    return math.log(limits.max) * (1 + 4 * limits.eps) - size.clamp(limits.tiny, limits.max).log()


@dataclass(frozen=True)
class Finite(Constraint):
    """The generic condition: finite operands give a finite output, and operands without NaN an output without NaN.

    Bounds of the output must be those of an analysis, which marks outputs that finite operands may make infinite as
    overflowing: an infinity that an operand may hold, such as that of a mask, may make the output infinite.

    The margin is the distance to overflow in natural logarithms, ln(largest) - ln|output|, so that descent has a
    usable slope far from overflow.  Infinite operands may give infinity, but not NaN (Inf - Inf, 0 * Inf).
    """

    reason: str = "a result above the largest finite number, or infinities that cancel"

    def margin(self, op: Operation, operands: Operands) -> Tensor:
        written = [y for name, y in operands.items() if name.startswith("output")]
        output = _floating(next((y for y in written if y.is_floating_point()), operands["output"]))
        size = output.abs()
        no_nan = finite = torch.ones((), dtype=torch.bool, device=output.device)
        elementwise = spec_of(op).elementwise
        for name, operand in operands.items():
            if operand.is_floating_point() and operand.numel() and not name.startswith("output"):
                greatest = operand.detach() if elementwise else operand.detach().abs().amax()
                no_nan, finite = no_nan & ~greatest.isnan(), finite & greatest.isfinite()
        invalid = torch.where(output.isnan(), no_nan, finite)
        return torch.where(output.isfinite(), _room(size), torch.where(invalid, -torch.ones_like(size), size))

    def holds(self, op: Operation, operands: Bounds) -> bool:
        written = [x for name, x in operands.items() if name.startswith("output")]
        if any(y.nan or y.overflows for y in written):
            return False
        read = [x for name, x in operands.items() if not name.startswith("output")]
        return not any(y.may_be_infinite for y in written) or any(x.may_be_infinite for x in read)

    def fails(self, op: Operation, operands: Bounds) -> bool:
        read = [x for name, x in operands.items() if not name.startswith("output")]
        if any(x.nan or x.may_be_infinite for x in read):
            return False
        # Bounds leave out NaN, but that is invalid as well.
        return any(x.surely_infinite for name, x in operands.items() if name.startswith("output"))

    def invalid_ranges(self, dtype: torch.dtype) -> tuple[InvalidRange, ...]:
        end = largest(dtype)
        return InvalidRange("output", lower=end, is_open=True), InvalidRange("output", upper=-end, is_open=True)

    def describe(self) -> str:
        return "|output| is finite"
