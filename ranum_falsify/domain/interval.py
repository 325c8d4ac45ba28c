"""The value type of the domain: bounds on every element of a tensor, merged where they are uniform.

A bound that is the same along a dimension is stored once for it: the stored tensors have size 1 there.  Plain
broadcasting thus computes on merged bounds, and `shape` remembers what they stand for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.order import SIGNED, apply_signed, greatest, least, make_ordered, restore
from ranum_falsify.lazy import cached_property
from ranum_falsify.network.tensors import to_torch

_CHECKED = 1 << 15
"""Number of elements beyond which the order of bounds is checked on a sample."""


@cache
def dtype_range(dtype: torch.dtype) -> tuple[float | int, float | int]:
    """Return the least and the greatest finite value of an element type; 0 and 1 for booleans."""
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
        return limits.min, limits.max
    if dtype is torch.bool:
        return 0, 1
    sizes = torch.iinfo(dtype)
    return sizes.min, sizes.max


def merge(x: Tensor) -> Tensor:
    """Return a tensor with the dimensions that are stored once (stride 0) at size 1; a view."""
    for dim, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        if stride == 0 and size > 1:
            x = x.narrow(dim, 0, 1)
    return x


@dataclass(frozen=True, eq=False)
class Interval:
    """Closed bounds on every element of a tensor.

    An infinite bound means that this infinity is among the values.  NaN is not a bound.  In floating point, results
    below the smallest normal number may have been flushed to 0, which bounds allow for: no lower bound lies strictly
    between 0 and the smallest normal number, no upper bound strictly between its negative and 0.  NaN in a constant is
    no operator's fault: such elements have the bounds [-inf, inf].

    Attributes:
        lower: Least values, in the tensor's dtype; size 1 in every merged dimension.
        upper: Greatest values, of the same stored shape.
        shape: Shape of the tensor.
        nan: Whether operands without NaN may give NaN.  Only rules set it; the analysis reports it and goes on
            with the bounds of the valid results.
        overflows: Whether finite operands may give an infinite result although the bounds, already clipped, do not
            tell. Reported as `nan` is.
        gap: Every element is at least this far from 0, on either side: this follows from a test of the value, and
            bounds around 0 cannot express it.  0 if nothing is known besides the bounds.
    """

    lower: Tensor
    upper: Tensor
    shape: tuple[int, ...]
    nan: bool = False
    overflows: bool = False
    gap: float = 0.0

    # construction -----------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, lower: Tensor, upper: Tensor, shape: Sequence[int] | None = None, *, nan: bool = False) -> Self:
        """Return the interval between two bounds that broadcast to each other and to `shape`.

        Args:
            lower: Least values.
            upper: Greatest values.
            shape: Shape of the tensor, that of the bounds if not given.
            nan: See :class:`Interval`.
        """
        alike = lower.shape == upper.shape
        stored = tuple(lower.shape) if alike else np.broadcast_shapes(lower.shape, upper.shape)
        full = stored if shape is None else shape
        if len(stored) < len(full):
            stored = (*(1,) * (len(full) - len(stored)), *stored)
        known = upper is lower
        if lower.shape != stored:
            lower = lower.expand(stored)
        if known or upper.shape != stored:
            upper = lower if known else upper.expand(stored)
        return cls(lower, upper, tuple(full), nan)

    @classmethod
    def point(cls, value: np.ndarray | Tensor) -> Self:
        """Return the interval of one known tensor; dimensions of stride 0 come out merged."""
        if isinstance(value, Tensor):
            stored = merge(value)
        else:
            stored = to_torch(_merge_array(value))
        lower, upper = _replace_nan(stored, stored)
        return cls(lower, upper, tuple(value.shape))

    @classmethod
    def box(cls, lower: np.ndarray, upper: np.ndarray) -> Self:
        """Return the interval between two arrays of one shape, merged along dimensions where both are uniform."""
        low, high = (to_torch(_uniform(bound)) for bound in (lower, upper))
        return cls.of(*_replace_nan(low, high), lower.shape)

    @classmethod
    def fill(cls, lower: float | int, upper: float | int, shape: Sequence[int], dtype: torch.dtype) -> Self:
        """Return a completely merged interval; numbers that the dtype lacks are replaced by its nearest."""
        stored = (1,) * len(shape)
        return cls(_fill(lower, stored, dtype), _fill(upper, stored, dtype), tuple(shape))

    @classmethod
    def top(cls, shape: Sequence[int], dtype: torch.dtype) -> Self:
        """Return all finite values of the dtype, for a result about which nothing is known."""
        return cls.fill(*dtype_range(dtype), shape, dtype)

    # queries ----------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.lower.dtype

    @property
    def ends(self) -> tuple[Tensor, ...]:
        """Both bounds, or the one tensor that is both: its corners are not worth computing twice."""
        return (self.lower,) if self.upper is self.lower else (self.lower, self.upper)

    @property
    def is_floating(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return self.lower.is_floating_point()

    @property
    def is_scalar(self) -> bool:
        """Whether one number is stored for each bound."""
        return self.lower.numel() == 1

    @cached_property
    def size(self) -> int:
        """Number of elements that it stands for."""
        return math.prod(self.shape)

    @property
    def is_point(self) -> bool:
        """Whether every element is known."""
        return self.lower is self.upper or bool((self.lower == self.upper).all())

    @cached_property
    def may_be_infinite(self) -> bool:
        """Whether an element may be infinite."""
        if not self.is_floating or not self.lower.numel():
            return False
        least, greatest = self.extremes
        return least == -torch.inf or greatest == torch.inf

    @property
    def first_sign(self) -> int | None:
        """The sign of the first element, 0 where it may be 0; None where only the gap keeps it from 0."""
        low, high = (bound[(0,) * bound.ndim].item() for bound in (self.lower, self.upper))
        if low <= 0 <= high:
            return None if self.gap else 0
        return 1 if low > 0 else -1

    @property
    def distance(self) -> float:
        """The least distance of any element from 0."""
        if not self.size or self.first_sign == 0:
            return 0.0
        low, high = self.extremes
        return float(max(self.gap, low, -high))

    @property
    def surely_infinite(self) -> bool:
        """Whether some element is infinite, whatever the input is."""
        return self.may_be_infinite and bool(((self.lower == torch.inf) | (self.upper == -torch.inf)).any())

    @cached_property
    def extremes(self) -> tuple[float | int, float | int]:
        """The least lower and the greatest upper bound; of no elements (inf, -inf)."""
        if not self.lower.numel():
            return torch.inf, -torch.inf
        if self.is_scalar and self.dtype not in SIGNED:
            return self.lower.item(), self.upper.item()
        if self.is_floating:
            if self.lower is self.upper:
                least, greatest = self.lower.aminmax()
                return least.item(), greatest.item()
            return self.lower.amin().item(), self.upper.amax().item()
        low, high = make_ordered(self.lower).amin().reshape(1), make_ordered(self.upper).amax().reshape(1)
        return restore(low, self.dtype).item(), restore(high, self.dtype).item()

    def encloses(self, values: Tensor) -> Tensor:
        """Return where a tensor of this shape lies within the bounds; NaN does nowhere."""
        values = make_ordered(values)
        return (values >= make_ordered(self.lower)) & (values <= make_ordered(self.upper))

    def contains(self, number: float | Tensor) -> Tensor:
        """Return where a number may be among the values, in the stored shape."""
        if self.gap and not isinstance(number, Tensor) and abs(number) < self.gap:
            return torch.zeros_like(self.lower, dtype=torch.bool)
        low, high = self.doubles() if self.dtype in SIGNED else (self.lower, self.upper)
        return (low <= number) & (high >= number)

    # change of form ---------------------------------------------------------------------------------------------

    def expand(self) -> tuple[Tensor, Tensor]:
        """Return both bounds in the tensor's shape; merged dimensions as views of stride 0."""
        return self.lower.expand(self.shape), self.upper.expand(self.shape)

    def split(self, *dims: int) -> Interval:
        """Return the same bounds with the given dimensions no longer merged."""
        stored = list(self.lower.shape)
        for dim in dims:
            stored[dim] = self.shape[dim]
        if tuple(stored) == tuple(self.lower.shape):
            return self
        lower = self.lower.expand(stored)
        return replace(self, lower=lower, upper=lower if self.upper is self.lower else self.upper.expand(stored))

    def move(self, function: Callable[[Tensor], Tensor]) -> Interval:
        """Return the interval of a function that only moves, repeats or drops elements.

        The function sees tensors of the full shape, in which merged dimensions have stride 0; those that it keeps as
        views stay merged.
        """
        low = apply_signed(self.lower.expand(self.shape), function)
        high = low if self.upper is self.lower else apply_signed(self.upper.expand(self.shape), function)
        lower = merge(low)
        return replace(Interval.of(lower, lower if high is low else merge(high), low.shape), gap=self.gap)

    def map(self, function: Callable[[Tensor], Tensor]) -> Interval:
        """Return the interval of a non-decreasing elementwise function that is computed exactly."""
        low = function(self.lower)
        return Interval(low, low if self.upper is self.lower else function(self.upper), self.shape)

    def doubles(self) -> tuple[Tensor, Tensor]:
        """Return both bounds in float64, in the stored shape."""
        low = self.lower.double()
        return low, low if self.upper is self.lower else self.upper.double()

    def hull(self, other: Interval) -> Interval:
        """Return bounds on the values of both, whose shapes broadcast."""
        shape = np.broadcast_shapes(self.shape, other.shape)
        both = Interval.of(least(self.lower, other.lower), greatest(self.upper, other.upper), shape)
        return replace(both, gap=find_shared_gap(self, other))

    def meet(self, other: Interval) -> Interval:
        """Return bounds on the values that lie in both; if there are none, those of this interval's nearest point."""
        low = greatest(self.lower, least(other.lower, self.upper))
        high = least(self.upper, greatest(other.upper, self.lower))
        return replace(self, lower=low, upper=greatest(low, high), gap=max(self.gap, other.gap))

    def clamp(self, lowest: float, highest: float) -> Interval:
        """Return the part of the bounds between two numbers; where it is empty, the nearest of the numbers."""
        if self.is_floating:
            low = self.lower.clamp(lowest, highest)
            high = low if self.upper is self.lower else self.upper.clamp(lowest, highest)
        else:
            limits = Interval.fill(lowest, highest, (1,) * len(self.shape), self.dtype)
            low = least(greatest(self.lower, limits.lower), limits.upper)
            high = least(greatest(self.upper, limits.lower), limits.upper)
        return replace(self, lower=low, upper=high, gap=self.gap if lowest <= -self.gap and highest >= self.gap else 0)

    def keep_finite(self) -> Interval:
        """Return the finite part of the bounds."""
        return self.clamp(*dtype_range(self.dtype)) if self.is_floating else self

    def check(self) -> None:
        """Check the invariants; for millions of bounds, check on a sample that they do not cross, and that none is NaN.

        Raises:
            ValueError: A bound is NaN, the bounds cross, or shapes or dtypes do not fit.
        """
        if self.lower.shape != self.upper.shape or self.lower.dtype != self.upper.dtype:
            raise ValueError(f"interval bounds differ in kind: {self.lower.shape} and {self.upper.shape}")
        if self.lower.shape != self.shape:
            stored = zip(self.lower.shape, self.shape, strict=False)
            if len(self.lower.shape) != len(self.shape) or any(s not in (1, n) for s, n in stored):
                raise ValueError(f"interval bounds of shape {tuple(self.lower.shape)} do not stand for {self.shape}")
        if self.upper is self.lower and not self.is_floating:
            return
        if self.is_scalar and self.dtype not in SIGNED:
            least, greatest = self.extremes
            if not least <= greatest:
                raise ValueError("interval bounds cross or are NaN")
            return
        low, high = self.lower, self.upper
        if low.numel() > _CHECKED:
            if any(math.isnan(end) for end in self.extremes):
                raise ValueError("interval bounds are NaN")
            low, high = _take_sample(low), _take_sample(high)
        if not bool((make_ordered(low) <= make_ordered(high)).all()):
            raise ValueError("interval bounds cross or are NaN")

    def __repr__(self) -> str:
        """Name shape, dtype and the range of all elements."""
        low, high = self.extremes
        return f"Interval({self.shape}, {str(self.dtype).removeprefix('torch.')}, [{low:.7g}, {high:.7g}])"


def _take_sample(bound: Tensor) -> Tensor:
    """Return a view of at most about :data:`_CHECKED` elements: flattening would copy what a convolution permutes."""
    for dim in sorted(range(bound.ndim), key=bound.size, reverse=True):
        step = -(-bound.numel() // _CHECKED)
        bound = bound[(slice(None),) * dim + (slice(None, None, step),)]
    return bound


def find_shared_gap(*parts: Interval) -> float:
    """Return how far the values of all parts are from 0 if their bounds together may not tell; else 0."""
    signs = {part.first_sign for part in parts if part.size}
    # Parts on one side of 0 have bounds that tell, element by element.
    return min((part.distance for part in parts if part.size), default=0.0) if len(signs) > 1 or None in signs else 0.0


def _uniform(bound: np.ndarray) -> np.ndarray:
    """Return an array with every dimension along which it is uniform at size 1; a view."""
    bound = _merge_array(bound)
    for axis, size in enumerate(bound.shape):
        if size <= 1:
            continue
        first = bound[(slice(None),) * axis + (slice(0, 1),)]
        last = bound[(slice(None),) * axis + (slice(-1, None),)]
        # A look at the last slice saves most arrays the pass over all of them.
        if (first == last).all() and (first == bound).all():
            bound = first
    return bound


def _merge_array(array: np.ndarray) -> np.ndarray:
    """Return an array with the dimensions that are stored once (stride 0) at size 1; a view."""
    if 0 not in array.strides:
        return array
    stored = zip(array.shape, array.strides, strict=True)
    return array[tuple(slice(0, 1) if size > 1 and not stride else slice(None) for size, stride in stored)]


def _fill(number: float | int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    lowest, highest = dtype_range(dtype)
    if not (dtype.is_floating_point and math.isinf(number)):
        number = max(lowest, min(number, highest))
    return torch.full(tuple(shape), number if dtype.is_floating_point else round(number), dtype=dtype)


def _replace_nan(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Return bounds with [-inf, inf] where one is NaN."""
    if not lower.is_floating_point() or not (_may_hold_nan(lower) or _may_hold_nan(upper)):
        return lower, upper
    broken = lower.isnan() | upper.isnan()
    if not bool(broken.any()):
        return lower, upper
    return lower.masked_fill(broken, -math.inf), upper.masked_fill(broken, math.inf)


def _may_hold_nan(x: Tensor) -> bool:
    # A sum is NaN if an element is, and costs less than a mask.
    return math.isnan(x.item() if x.numel() == 1 else x.sum().item())
