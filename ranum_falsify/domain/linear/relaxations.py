"""Linear relaxations of elementwise functions: two straight lines with the function between them.

The slopes affect only tightness.  The offsets make the lines sound for any slopes: the extremes of g(x) - s x over an
interval lie at its ends or where g' = s, and each function names these points.

Sources: H. Zhang et al., Efficient Neural Network Robustness Certification with General Activation Functions, 2018,
https://arxiv.org/abs/1811.00866 (slopes for convex, concave and S-shaped functions).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import CURVE_SHARE

_HALVINGS = 24
"""Steps of the search for a tangent; it affects only tightness."""

Points = Callable[[Tensor], tuple[Tensor, ...]]
"""The points where the derivative of a function is the given number; additional points do no harm."""


@dataclass(frozen=True)
class Lines:
    """Lines below and above a function: `lower_slope * x + lower_offset <= g(x) <= upper_slope * x + upper_offset`.

    All are float64 tensors of the operand's shape, with leading dimensions for boxes.
    """

    lower_slope: Tensor
    lower_offset: Tensor
    upper_slope: Tensor
    upper_offset: Tensor


@dataclass(frozen=True)
class Slopes:
    """Slopes of lines below and above a function, of the shape of the lines."""

    lower: Tensor
    upper: Tensor

    def scale(self, factor: float) -> Slopes:
        """Return the slopes times a number."""
        return Slopes(factor * self.lower, factor * self.upper)


class Relaxation(ABC):
    """An elementwise function of one operand that has linear bounds."""

    def find_bent(self, low: Tensor, high: Tensor) -> Tensor:
        """Return where the function is not a line between two bounds, so that narrower bounds help."""
        return low < high

    def find_cut(self, low: Tensor, high: Tensor) -> Tensor:
        """Return where to cut between two bounds, so that the lines on either side are close to the function."""
        return (low + high) / 2

    def select(self, shape: Sequence[int], elements: Tensor) -> Relaxation:
        """Return the function of some elements of an operand of a shape, given by their places in the flat operand."""
        return self

    @abstractmethod
    def lines(self, low: Tensor, high: Tensor) -> Lines:
        """Return lines that hold for every operand between two finite float64 bounds, low <= high."""

    def find_range(self, low: Tensor, high: Tensor) -> tuple[Slopes, Slopes]:
        """Return two ends between which slopes may be chosen; they are equal where there is nothing to choose."""
        y = self.lines(low, high)
        return Slopes(y.lower_slope, y.upper_slope), Slopes(y.lower_slope, y.upper_slope)

    def tilt(self, low: Tensor, high: Tensor, slopes: Slopes) -> Lines:
        """Return sound lines with the given slopes wherever the relaxation leaves the slope free.

        Derivatives with respect to the slopes are those of the offsets at the points that decide them.

        Args:
            low: The lower bounds.
            high: The upper bounds.
            slopes: The slopes; they may have more boxes than the bounds.
        """
        return self.lines(low, high)


class Rectifier(Relaxation):
    """x above 0 and `slope * x` below, for 0 <= slope <= 1 (`Relu`, `LeakyRelu`)."""

    def __init__(self, slope: float | Tensor = 0.0) -> None:
        self._slope = slope

    def find_bent(self, low: Tensor, high: Tensor) -> Tensor:
        """See :meth:`Relaxation.find_bent`."""
        return (low < 0) & (high > 0)

    def find_cut(self, low: Tensor, high: Tensor) -> Tensor:
        """See :meth:`Relaxation.find_cut`."""
        return torch.zeros_like(low)

    def select(self, shape: Sequence[int], elements: Tensor) -> Relaxation:
        """See :meth:`Relaxation.select`."""
        slope = self._slope
        return Rectifier(slope.expand(shape).flatten()[elements]) if isinstance(slope, Tensor) else self

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        """See :meth:`Relaxation.lines`."""
        negative, positive = low.clamp(max=0), high.clamp(min=0)
        width = positive - negative
        # For a stable operand, the chord is the function itself; 0 to 0 counts as active.
        flat = width == 0
        chord = torch.where(flat, 1.0, (positive - negative * self._slope) / torch.where(flat, 1.0, width))
        lower = torch.where(positive > -negative, 1.0, self._slope)
        offset = torch.maximum(negative * (self._slope - chord), positive * (1 - chord))
        return Lines(lower, torch.zeros_like(lower), chord, offset + CURVE_SHARE * width)

    def find_range(self, low: Tensor, high: Tensor) -> tuple[Slopes, Slopes]:
        """See :meth:`Relaxation.find_range`: every line through 0 that is nowhere steeper than the function."""
        y, bent = self.lines(low, high), self.find_bent(low, high)
        flat, steep = (torch.where(bent, end, y.lower_slope) for end in (self._slope, 1.0))
        return Slopes(flat, y.upper_slope), Slopes(steep, y.upper_slope)

    def tilt(self, low: Tensor, high: Tensor, slopes: Slopes) -> Lines:
        """See :meth:`Relaxation.tilt`."""
        y = self.lines(low, high)  # some versions of `clamp` have no derivative at the ends, where the ascent begins
        chosen = torch.where(slopes.lower < self._slope, self._slope, torch.where(slopes.lower > 1, 1.0, slopes.lower))
        return replace(y, lower_slope=torch.where(self.find_bent(low, high), chosen, y.lower_slope))


class SoftRectifier(Relaxation):
    """A smooth function that is x above 0 and 0 below, less a dip that depends on |x| alone (`Swish`, `Gelu`)."""

    def __init__(
        self, function: Callable[[Tensor], Tensor], *, turn: float, curvature: float, bends: tuple[float, float]
    ) -> None:
        """Describe the function.

        Args:
            function: The function, on float64; below 0, it is the negative of the dip.
            turn: The size of x up to which the dip rises, and beyond which it falls.
            curvature: The most that the second derivative comes to in size.
            bends: The size of x up to which the function is surely convex, and that from which it is surely concave.
        """
        self._function, self._turn, self._curvature = function, turn, curvature
        self._convex_until, self._concave_from = bends
        self._rectifier = Rectifier()

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        """See :meth:`Relaxation.lines`: lines about the rectifier, or about the chord where these are closer."""
        return self._choose(low, high, self._rectifier.lines(low, high))

    def find_range(self, low: Tensor, high: Tensor) -> tuple[Slopes, Slopes]:
        """See :meth:`Relaxation.find_range`: those of the rectifier, where its lines are in use."""
        first, second = (self.tilt(low, high, end) for end in self._rectifier.find_range(low, high))
        return Slopes(first.lower_slope, first.upper_slope), Slopes(second.lower_slope, second.upper_slope)

    def tilt(self, low: Tensor, high: Tensor, slopes: Slopes) -> Lines:
        """See :meth:`Relaxation.tilt`."""
        return self._choose(low, high, self._rectifier.tilt(low, high, slopes))

    def _choose(self, low: Tensor, high: Tensor, rectifier: Lines) -> Lines:
        wide, narrow = self._lower_by_dip(low, high, rectifier), self._about_chord(low, high)
        usual = self._lower_by_dip(low, high, self._rectifier.lines(low, high))
        closer = _mean_gap(narrow, low, high) < _mean_gap(usual, low, high)
        chosen = (torch.where(closer, getattr(narrow, name), getattr(wide, name)) for name in vars(wide))
        return Lines(*chosen)

    def _lower_by_dip(self, low: Tensor, high: Tensor, y: Lines) -> Lines:
        nearest = torch.maximum(low, -high).clamp(min=0)
        furthest = torch.maximum(low.abs(), high.abs())
        deepest = self._dip(torch.minimum(torch.full_like(low, self._turn).maximum(nearest), furthest))
        shallowest = torch.minimum(self._dip(nearest), self._dip(furthest))
        return replace(
            y,
            lower_offset=y.lower_offset - deepest * (1 + CURVE_SHARE),
            upper_offset=y.upper_offset - shallowest * (1 - CURVE_SHARE),
        )

    def _dip(self, size: Tensor) -> Tensor:
        return -self._function(-size)

    def _about_chord(self, low: Tensor, high: Tensor) -> Lines:
        # A function strays from its chord by at most max |g''| (x - low) (high - x) / 2.
        width, ends = high - low, (self._function(low), self._function(high))
        chord = torch.where(width > 0, (ends[1] - ends[0]) / torch.where(width > 0, width, 1.0), 0.0)
        rounding = CURVE_SHARE * (ends[0].abs() + ends[1].abs() + (chord * low).abs())
        stray = self._curvature * width.square() / 8 * (1 + CURVE_SHARE)
        offset = ends[0] - chord * low
        convex = torch.maximum(low.abs(), high.abs()) <= self._convex_until
        concave = (low >= self._concave_from) | (high <= -self._concave_from)
        below, above = torch.where(concave, 0.0, stray) + rounding, torch.where(convex, 0.0, stray) + rounding
        return Lines(chord, offset - below, chord, offset + above)


def _mean_gap(y: Lines, low: Tensor, high: Tensor) -> Tensor:
    """Return twice the mean distance between two lines."""
    return (y.upper_slope - y.lower_slope) * (low + high) + 2 * (y.upper_offset - y.lower_offset)


@dataclass(frozen=True)
class Stretched(Relaxation):
    """`height * g(rate * x)` for two positive numbers.

    Attributes:
        inner: The function g.
        height: Its factor.
        rate: That of its operand.
    """

    inner: Relaxation
    height: float
    rate: float

    def select(self, shape: Sequence[int], elements: Tensor) -> Relaxation:
        """See :meth:`Relaxation.select`."""
        return replace(self, inner=self.inner.select(shape, elements))

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        """See :meth:`Relaxation.lines`."""
        return self._stretch(self.inner.lines(*self._widen(low, high)), low, high)

    def find_range(self, low: Tensor, high: Tensor) -> tuple[Slopes, Slopes]:
        """See :meth:`Relaxation.find_range`."""
        first, second = self.inner.find_range(*self._widen(low, high))
        return first.scale(self.height * self.rate), second.scale(self.height * self.rate)

    def tilt(self, low: Tensor, high: Tensor, slopes: Slopes) -> Lines:
        """See :meth:`Relaxation.tilt`."""
        inner = self.inner.tilt(*self._widen(low, high), slopes.scale(1 / (self.height * self.rate)))
        return self._stretch(inner, low, high)

    def _widen(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        spare = CURVE_SHARE * self.rate * torch.maximum(low.abs(), high.abs())
        return self.rate * low - spare, self.rate * high + spare

    def _stretch(self, y: Lines, low: Tensor, high: Tensor) -> Lines:
        size = torch.maximum(low.abs(), high.abs())
        slopes = [self.height * self.rate * slope for slope in (y.lower_slope, y.upper_slope)]
        offsets = [self.height * offset for offset in (y.lower_offset, y.upper_offset)]
        errors = [CURVE_SHARE * (s.abs() * size + o.abs()) for s, o in zip(slopes, offsets, strict=True)]
        return Lines(slopes[0], offsets[0] - errors[0], slopes[1], offsets[1] + errors[1])


Bend = Literal["convex", "concave", "s", "any"]


class Curve(Relaxation):
    """A function described by its shape."""

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        *,
        bend: Bend,
        points: Points,
        slope: Callable[[Tensor], Tensor] | None = None,
        turn: float = 0.0,
        above: float = -math.inf,
        below: float = math.inf,
    ) -> None:
        """Describe the function.

        Args:
            function: The function, on float64.
            bend: `convex`, `concave`, `s` for convex below `turn` and concave above it, or `any`.
            points: Returns all points inside an interval where the derivative is a given number, or where
                there is none.
            slope: The derivative; not needed for `any`.
            turn: Where an `s` changes its bend.
            above: Where the valid part begins.
            below: Where it ends.
        """
        self._function, self._points, self._bend, self._turn = function, points, bend, turn
        self._slope = slope
        self._above, self._below = above, below

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        """See :meth:`Relaxation.lines`."""
        return self.tilt(low, high, Slopes(*self._slopes(*self._clamp(low, high))))

    def find_range(self, low: Tensor, high: Tensor) -> tuple[Slopes, Slopes]:
        """See :meth:`Relaxation.find_range`: tangents in the part that bends away from the line, and the default."""
        low, high = self._clamp(low, high)
        lower, upper = self._slopes(low, high)
        if self._slope is None or self._bend == "any":
            return Slopes(lower, upper), Slopes(lower, upper)
        first, last = self._slope(low), self._slope(high)
        convex = high <= self._turn if self._bend == "s" else torch.full_like(low, self._bend == "convex") > 0
        concave = low >= self._turn if self._bend == "s" else ~convex
        ends = [
            (torch.where(concave, lower, first), torch.where(convex, last, lower)),
            (torch.where(convex, upper, last), torch.where(concave, first, upper)),
        ]
        known = [(a.isfinite() & b.isfinite(), a, b) for a, b in ends]
        sides = zip(known, (lower, upper), strict=True)
        (a, b), (c, d) = ((torch.where(ok, x, s), torch.where(ok, y, s)) for (ok, x, y), s in sides)
        return Slopes(a, c), Slopes(b, d)

    def tilt(self, low: Tensor, high: Tensor, slopes: Slopes) -> Lines:
        """See :meth:`Relaxation.tilt`."""
        low, high = self._clamp(low, high)
        lower, upper = (torch.where(s.isfinite(), s, 0.0) for s in (slopes.lower, slopes.upper))
        return Lines(lower, self._offset(lower, low, high, -1), upper, self._offset(upper, low, high, 1))

    def _clamp(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return low.clamp(self._above, self._below), high.clamp(self._above, self._below)

    def _slopes(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        width = high - low
        rise = self._function(high) - self._function(low)
        chord = torch.where(width > 0, rise / torch.where(width > 0, width, 1.0), 0.0)
        if self._slope is None:
            return chord, chord
        tangent = self._slope((low + high) / 2)
        if self._bend == "convex":
            return tangent, chord
        if self._bend == "concave":
            return chord, tangent
        convex, concave = high <= self._turn, low >= self._turn
        from_high = self._find_touching(low, high, chord, left=True)
        from_low = self._find_touching(low, high, chord, left=False)
        lower = torch.where(convex, tangent, torch.where(concave, chord, from_high))
        upper = torch.where(concave, tangent, torch.where(convex, chord, from_low))
        return lower, upper

    def _find_touching(self, low: Tensor, high: Tensor, chord: Tensor, *, left: bool) -> Tensor:
        """Return the slope of the line from one end that touches the curve on the other side of the turn.

        If it would touch beyond the other end, the slope is that of the chord.
        """
        assert self._slope is not None, "only curves with a derivative have tangents"
        end, far = (high, low) if left else (low, high)
        turn = torch.full_like(end, self._turn)
        inner, outer = turn, far

        def steep(at: Tensor) -> Tensor:
            assert self._slope is not None
            return self._slope(at) * (end - at).abs() >= (self._function(end) - self._function(at)).abs()

        is_chord = steep(far)
        for _ in range(_HALVINGS):
            middle = (inner + outer) / 2
            above = steep(middle)
            inner, outer = torch.where(above, middle, inner), torch.where(above, outer, middle)
        return torch.where(is_chord, chord, self._slope(outer))

    def _offset(self, slope: Tensor, low: Tensor, high: Tensor, side: int) -> Tensor:
        """Return the greatest (side 1) or least (side -1) of g(x) - slope * x, moved outward."""
        best = None
        for point in (low, high, *self._points(slope.detach())):
            x = torch.minimum(torch.maximum(torch.where(point.isnan(), low, point), low), high)
            value, line = self._function(x), slope * x
            offset = value - line + side * CURVE_SHARE * (value.abs() + line.abs())
            if best is None:
                best = offset
            else:
                best = torch.maximum(best, offset) if side > 0 else torch.minimum(best, offset)
        assert best is not None, "the ends of the interval are points"
        return best


class Mirrored(Relaxation):
    """The negative of another function, for functions that are concave first and then convex (x^3)."""

    def __init__(self, negative: Relaxation) -> None:
        self._negative = negative

    def select(self, shape: Sequence[int], elements: Tensor) -> Relaxation:
        """See :meth:`Relaxation.select`."""
        return Mirrored(self._negative.select(shape, elements))

    def lines(self, low: Tensor, high: Tensor) -> Lines:
        """See :meth:`Relaxation.lines`."""
        return self._mirror(self._negative.lines(low, high))

    def find_range(self, low: Tensor, high: Tensor) -> tuple[Slopes, Slopes]:
        """See :meth:`Relaxation.find_range`."""
        first, second = self._negative.find_range(low, high)
        return Slopes(-first.upper, -first.lower), Slopes(-second.upper, -second.lower)

    def tilt(self, low: Tensor, high: Tensor, slopes: Slopes) -> Lines:
        """See :meth:`Relaxation.tilt`."""
        return self._mirror(self._negative.tilt(low, high, Slopes(-slopes.upper, -slopes.lower)))

    def _mirror(self, y: Lines) -> Lines:
        return Lines(-y.upper_slope, -y.upper_offset, -y.lower_slope, -y.lower_offset)


def kinked(function: Callable[[Tensor], Tensor], *kinks: float, bend: Bend = "any", turn: float = 0.0) -> Curve:
    """Return the relaxation of a piecewise linear function that is computed exactly.

    Args:
        function: The function, on float64.
        kinks: Where its slope changes.
        bend: See :class:`Curve`.
        turn: See :class:`Curve`.
    """

    def points(slope: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.full_like(slope, kink) for kink in kinks)

    def derivative(x: Tensor) -> Tensor:
        # A difference over a width at which the rounding of either value does not matter.
        step = 1e-6 * (1 + x.abs())
        return (function(x + step) - function(x - step)) / (2 * step)

    return Curve(function, bend=bend, points=points, slope=derivative, turn=turn)
