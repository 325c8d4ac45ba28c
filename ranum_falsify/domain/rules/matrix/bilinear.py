"""Sums of products: matrix products, convolutions and every other map that is linear in each of two operands.

With one operand known and one in [c - r, c + r], the result lies around the product of the centres, at a distance of at
most the product of r with the magnitudes (S. Rump, Fast and parallel interval arithmetic, BIT 39, 1999).  The error
bound of the sums, gamma_n times the product of the magnitudes, for the runtime's sums in any order and for our own, is
included in r beforehand, so that two products suffice.  For operands of one sign their ends are used instead, which
keeps small results exact, and the sign.

Covered: accumulation in the operands' type; for half precision in float32, with one rounding at the end or none (ONNX
    Runtime leaves out the roundings between operators of half precision), or with as many more as a rule states; and
    tensor cores, see :class:`ProductRounding`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import (
    PRODUCT_ROUNDINGS,
    ROUNDED,
    ProductRounding,
    accumulation,
    gamma,
    product_share,
    tiny,
    unit,
)
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import flush, round_bounds, round_numbers_outward, round_outward
from ranum_falsify.domain.rules.matrix.integers import Product, integer_product, largest_of

_ROOM = 0.125
"""Share of the largest number below which no intermediate result overflows."""

_MOST = 0.25
"""Roundings on the way, times the unit roundoff, up to which twice that is more than gamma, also of what is rounded."""

_LARGEST = torch.finfo(torch.float64).max

_FAR = 64.0
"""From this multiple of the largest number on, bounds are not worth their time."""

_BLOCK = 1 << 17
"""Elements that fit into the nearest cache."""

_APART = 2.0**52
"""Radii of this many smallest normal numbers: centre minus radius then rounds to 0 or to a normal number."""


def bilinear(
    product: Product,
    a: Interval,
    b: Interval,
    *,
    terms: int,
    shape: tuple[int, ...],
    bias: Interval | None = None,
    rounding: ProductRounding = ROUNDED,
    alike: Sequence[int] = (),
    count: int | None = None,
) -> Interval:
    """Return bounds on sums of products; infinite operands are handled correctly.

    Args:
        product: The map; what it returns broadcasts to `shape`.
        a: First operand.
        b: Second operand, of the same dtype; a constant is cheaper here than in the first place.
        terms: The largest number of products that are added up; their exact number if each bound is a single number,
            unless 0 is among the values of one of them.
        shape: Shape of the result.
        bias: Number to add, before or after the products.
        rounding: How kernels round the sums.
        alike: Dimensions of the second operand, not merged, that the map multiplies with equal bounds of the first, so
            that it may be added up along them beforehand.
        count: Exact number of products if that is not `terms`, which then determines only the rounding.
    """
    if not a.is_floating:
        return integer_product(product, a, b, terms, shape, bias)
    operands = [a, b] if bias is None else [a, b, bias]
    if any(x.may_be_infinite for x in operands):
        return _include_infinities(product, a, b, terms, shape, bias, count, rounding)
    work = accumulation(a.dtype)
    if gamma(terms + PRODUCT_ROUNDINGS, work) > 0.5 or rounding.between * unit(a.dtype) > _MOST:
        return Interval.fill(-math.inf, math.inf, shape, a.dtype)
    left, right = (max(largest_of(x), 1.0) for x in (a, b))
    if max(left, right) * (1 + rounding.factors) > torch.finfo(a.dtype).max:
        # The factor itself may be rounded to infinity.
        return replace(Interval.fill(-math.inf, math.inf, shape, a.dtype), nan=True)
    if a.is_scalar and b.is_scalar and (bias is None or bias.is_scalar):
        return _of_numbers(a, b, terms, shape, bias, terms if count is None else count, rounding)
    lost = rounding.lost(terms, a.dtype, max(left, right))
    sums = _Sums(product, product_share(terms, work, rounding), lost, tuple(alike))
    if terms * largest_of(a) * largest_of(b) >= _FAR * torch.finfo(work).max:
        return _bound_overflown(a, b, shape, bias)
    if terms * left * right + (0 if bias is None else largest_of(bias)) >= _ROOM * torch.finfo(work).max:
        between = 0 if a.dtype is work else rounding.between + (bias is not None)
        return _bound_near_overflow(sums, a, b, terms, shape, bias, between)
    if a.dtype is not work:
        return _of_halves(sums, a, b, shape, bias, rounding.between)
    return Interval.of(*sums.bounds(a, b, bias), shape)


@dataclass(frozen=True)
class _Sums:
    """The errors of a product's sums.

    Attributes:
        product: The map.
        slack: See :func:`~ranum_falsify.domain.error_bounds.product_share`.
        lost: The most that results may lose to underflow.
        alike: See :func:`bilinear`.
    """

    product: Product
    slack: float
    lost: float
    alike: tuple[int, ...] = ()

    def bounds(self, a: Interval, b: Interval, bias: Interval | None) -> tuple[Tensor, Tensor]:
        """Return bounds on the sums, in the dtype of the operands; rounding them is covered by the slack."""
        if b.extremes[0] >= 0:
            low, high = self._bound_between_ends(self.product, a, b, bias)
        elif a.extremes[0] >= 0 and (is_known(a) or not is_known(b)):
            low, high = self._bound_between_ends(lambda p, q, c: self.product(q, p, c), b, a, bias)
        else:
            low, high = self._bound_around_centre(a, b, bias)
        (down, up), (fall, rise), (below, above) = map(_signs, (a, b, bias))
        # Sums of terms of one sign have that sign.
        low = low if below or (down and rise) or (up and fall) else low.clamp(min=0)
        return low, high if above or (up and rise) or (down and fall) else high.clamp(max=0)

    def magnitude(self, a: Interval, b: Interval, bias: Interval | None) -> Tensor:
        """Return the greatest sums of magnitudes."""
        return self.product(_sizes(a), self._size(b), None if bias is None else _sizes(bias)) * (1 + self.slack)

    def _size(self, b: Interval) -> Tensor:
        """Return the magnitudes of the second operand, added up where the map would add them."""
        if not is_known(b):
            return _sizes(b)
        if not self.alike:
            return b.lower.abs()
        # Block by block, the magnitudes need not go through memory.
        rows = max(1, _BLOCK * b.lower.shape[0] // max(b.lower.numel(), 1)) if 0 not in self.alike else b.lower.shape[0]
        return torch.cat([block.abs().sum(self.alike, keepdim=True) for block in b.lower.split(rows)])

    def _value(self, b: Interval) -> Tensor:
        return b.lower.sum(self.alike, keepdim=True) if self.alike else b.lower

    def _bound_around_centre(self, a: Interval, b: Interval, bias: Interval | None) -> tuple[Tensor, Tensor]:
        # Radii stay doubled until the end, which saves a pass over each operand.
        centre_a, width_a, inflated_a = self._ball(a)
        shift, least = (None, torch.full((), 2 * (self.lost + _APART * tiny(a.dtype)), dtype=a.dtype))
        if bias is not None:
            shift, _, spread = self._ball(bias)
            least = least + spread
        if is_known(b):
            centre = self.product(centre_a, self._value(b), shift)
            radius = self.product(inflated_a, self._size(b), least)
        else:
            centre_b, width_b, inflated_b = self._ball(b)
            centre = self.product(centre_a, centre_b, shift)
            radius = self.product(centre_a.abs(), inflated_b, least)
            if width_a is not None:
                size_b = centre_b.abs() if width_b is None else torch.add(centre_b.abs(), width_b, alpha=0.5)
                radius = radius + self.product(width_a, size_b, None)
        share = 0.5 * (1 + 2 * self.slack)
        return torch.sub(centre, radius, alpha=share), centre.add_(radius, alpha=share)

    def _ball(self, x: Interval) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return centre, width (None for a known operand), and the width with the error of the sums added."""
        if is_known(x):
            return x.lower, None, x.lower.abs().mul_(2 * self.slack)
        width = x.upper - x.lower
        centre = torch.add(x.lower, width, alpha=0.5)
        return centre, width, torch.add(width, centre.abs(), alpha=2 * self.slack)

    def _bound_between_ends(
        self, product: Product, a: Interval, b: Interval, bias: Interval | None
    ) -> tuple[Tensor, Tensor]:
        """Return bounds where b is not negative."""
        low, high = (stretch(a.lower, -self.slack), stretch(a.upper, self.slack))
        below, above = (torch.full((), end, dtype=low.dtype) for end in (-self.lost, self.lost))
        if bias is not None:
            below = below + stretch(bias.lower, -self.slack)
            above = above + stretch(bias.upper, self.slack)
        if is_known(b):
            least, greatest = product(low, b.lower, below), product(high, b.lower, above)
        else:
            least, greatest = product(low.clamp(min=0), b.lower, below), product(high.clamp(min=0), b.upper, above)
            if a.extremes[0] < 0:
                least = least + product(low.clamp(max=0), b.upper, None)
                greatest = greatest + product(high.clamp(max=0), b.lower, None)
        bounds = flush(Interval.of(least, greatest))
        return bounds.lower, bounds.upper


def _signs(x: Interval | None) -> tuple[bool, bool]:
    """Tell whether elements may be negative, and whether they may be positive."""
    return (False, False) if x is None else (x.extremes[0] < 0, x.extremes[1] > 0)


def _sizes(x: Interval) -> Tensor:
    return x.lower.abs() if is_known(x) else torch.maximum(x.lower.abs(), x.upper.abs())


def stretch(x: Tensor, share: float) -> Tensor:
    """Return numbers moved away from 0 by a share of their size, or towards it by a negative share."""
    return torch.add(x, x.abs(), alpha=share)


def is_known(x: Interval) -> bool:
    """Tell whether an operand is stored as a known point; equal bounds that are stored twice count as any others."""
    return x.lower is x.upper


def _convert(x: Interval | None, dtype: torch.dtype) -> Interval | None:
    if x is None:
        return None
    low = x.lower.to(dtype)
    return Interval(low, low if is_known(x) else x.upper.to(dtype), x.shape)


def bound_weighted(
    function: Callable[[Tensor], Tensor], x: Interval, *, terms: int, shape: tuple[int, ...], roundings: int = 0
) -> Interval:
    """Return bounds on sums and means with weights that are not negative.

    Such a sum rises with each element, and so does the sum minus an error in proportion to the element.

    Args:
        function: The weighted sums, of tensors of the operand's stored shape: means of at most `terms` elements, or
            sums with weights of at least 1.
        x: The operand.
        terms: The largest number of elements that are added up.
        shape: Shape of the result.
        roundings: How often part of a sum in half precision is rounded to it before more is added.
    """
    if not x.is_floating:
        return integer_product(lambda p, q, c: function(p) * q, x, Interval.fill(1, 1, (), x.dtype), terms, shape, None)
    work = accumulation(x.dtype)
    if x.may_be_infinite or gamma(terms + PRODUCT_ROUNDINGS, work) > 0.5 or roundings * unit(x.dtype) > _MOST:
        return replace(Interval.fill(-math.inf, math.inf, shape, x.dtype), nan=True)
    risky = terms * largest_of(x) >= _ROOM * torch.finfo(work).max
    wide = _convert(x, torch.float64 if risky else work) or x
    share, lost = product_share(terms, work), 4 * terms * tiny(work)
    if work is not x.dtype:
        # PyTorch rounds the sum to half precision before dividing.
        count = 1 + roundings
        share, lost = share + 2 * count * unit(x.dtype), lost + count * tiny(x.dtype) * torch.finfo(x.dtype).eps
    low, high = function(stretch(wide.lower, -share)), function(stretch(wide.upper, share))
    low = (low - lost).clamp_(min=0) if x.extremes[0] >= 0 else low - lost
    high = (high + lost).clamp_(max=0) if x.extremes[1] <= 0 else high + lost
    if not risky and work is x.dtype:
        return flush(Interval.of(low, high, shape))
    if not risky:
        y = round_bounds(low.double(), high.double(), x.dtype, shape)
        return replace(y, overflows=terms * largest_of(x) * (1 + share) > torch.finfo(x.dtype).max)
    size = terms * function(torch.maximum(wide.lower.abs(), wide.upper.abs()))
    beyond = ~(size * (1 + share) < torch.finfo(work).max)
    up = torch.where(beyond & (high > 0), math.inf, high)
    down = torch.where(beyond & (low < 0), -math.inf, low)
    mixed = beyond & (low < 0) & (high > 0)
    return replace(round_outward(down, up, x.dtype, shape), nan=bool(mixed.any()))


# special operands -----------------------------------------------------------------------------------------------


def _of_halves(
    sums: _Sums, a: Interval, b: Interval, shape: tuple[int, ...], bias: Interval | None, roundings: int
) -> Interval:
    """Return bounds for half precision: sums in float32, rounded or not, with the given roundings in between."""
    wide = [_convert(x, torch.float32) for x in (a, b, bias)]
    count = roundings + (bias is not None)
    limits = torch.finfo(a.dtype)
    share, lost = 2 * count * unit(a.dtype), count * limits.tiny * limits.eps
    often = replace(sums, slack=sums.slack + share, lost=sums.lost + lost)
    low, high = often.bounds(*wide)  # type: ignore[arg-type]
    if bias is not None:
        least, greatest = often.bounds(wide[0], wide[1], None)  # type: ignore[arg-type]
        low = torch.where(least < -limits.max, -math.inf, low)
        high = torch.where(greatest > limits.max, math.inf, high)
    if roundings:
        sizes = [None if x is None else torch.maximum(x.lower.abs(), x.upper.abs()) for x in wide]
        beyond = sums.product(*sizes) * (1 + often.slack) > limits.max  # type: ignore[arg-type]
        low, high = torch.where(beyond, -math.inf, low), torch.where(beyond, math.inf, high)
    return round_bounds(low.double(), high.double(), a.dtype, shape)


def _bound_overflown(a: Interval, b: Interval, shape: tuple[int, ...], bias: Interval | None) -> Interval:
    """Return bounds where sums may be far beyond the largest number: better ones are not worth three products."""
    same_sign = all(x is None or x.extremes[0] >= 0 for x in (a, b, bias))
    return replace(Interval.fill(0.0 if same_sign else -math.inf, math.inf, shape, a.dtype), nan=not same_sign)


def _bound_near_overflow(
    sums: _Sums, a: Interval, b: Interval, terms: int, shape: tuple[int, ...], bias: Interval | None, between: int
) -> Interval:
    """Return bounds where intermediate results may overflow; such a sum may be anything, also NaN.

    The operands are scaled by powers of 2, so that nothing overflows here.
    """
    dtype, work = a.dtype, accumulation(a.dtype)
    wide_a, wide_b, wide_bias = (_convert(x, work) for x in (a, b, bias))
    scales = [2.0 ** -math.ceil(math.log2(max(largest_of(x), 1.0))) for x in (a, b)]
    if bias is not None:
        # A bias that dwarfs the products scales them down too.
        scales[0] *= 2.0 ** -math.ceil(math.log2(max(largest_of(bias) * scales[0] * scales[1], 1.0)))
    whole = scales[0] * scales[1]
    small = (_times(wide_a, scales[0]), _times(wide_b, scales[1]), _times(wide_bias, scales[0], scales[1]))
    # In half precision parts of the sum may be rounded before more is added, as in `_of_halves`.
    scaled = replace(sums, slack=sums.slack + 2 * between * unit(dtype), lost=8 * terms * tiny(work))
    low, high = scaled.bounds(*small)  # type: ignore[arg-type]
    beyond = ~(scaled.magnitude(*small) < torch.finfo(work).max * whole)  # type: ignore[arg-type]
    same_sign = all(x is None or x.extremes[0] >= 0 for x in (a, b, bias))
    low, high = (end / scales[0] / scales[1] for end in (low, high))
    high = torch.where(beyond | high.isnan(), math.inf, high)
    low = low.nan_to_num(0.0) if same_sign else torch.where(beyond | low.isnan(), -math.inf, low)
    low = low.clamp(max=torch.finfo(dtype).max)
    nan = not same_sign and bool(beyond.any())
    return replace(flush(Interval.of(low.to(dtype), high.to(dtype), shape)), nan=nan)


def _times(x: Interval | None, *factors: float) -> Interval | None:
    """Return scaled bounds; powers of 2 keep them exact but for underflow, which the sums allow for.

    Underflow keeps the sign: otherwise bounds above 0 would become 0, like those of sums that are never positive.
    """
    if x is None or all(factor == 1 for factor in factors):
        return x
    low = _scale_end(x.lower, factors)
    return Interval(low, low if is_known(x) else _scale_end(x.upper, factors), x.shape)


def _scale_end(end: Tensor, factors: Sequence[float]) -> Tensor:
    scaled = end
    for factor in factors:
        scaled = scaled * factor
    smallest = tiny(end.dtype)
    return torch.where((scaled.abs() < smallest) & (end != 0), end.sign() * smallest, scaled)


def _of_numbers(
    a: Interval,
    b: Interval,
    terms: int,
    shape: tuple[int, ...],
    bias: Interval | None,
    count: int,
    how: ProductRounding,
) -> Interval:
    """Return bounds where one number is stored for each."""
    work = accumulation(a.dtype)
    share, lost = product_share(terms, work, how), how.lost(terms, a.dtype, max(largest_of(a), largest_of(b), 1.0))
    between = how.between + (bias is not None) if work is not a.dtype else 0
    share, lost = share + 2 * between * unit(a.dtype), lost + between * tiny(a.dtype) * torch.finfo(a.dtype).eps
    corners = [p * q for p in a.extremes for q in b.extremes]
    # Products beyond float64 would be infinite here, and infinity minus a share of it is NaN.
    low, high = (min(max(corner, -_LARGEST), _LARGEST) for corner in (min(corners), max(corners)))
    low, high = count * (low - share * abs(low)), count * (high + share * abs(high))
    least, greatest = (0.0, 0.0) if bias is None else bias.extremes
    # Sums of terms of one sign have that sign.
    floor = 0.0 if low >= 0 and least >= 0 else -math.inf
    ceiling = 0.0 if high <= 0 and greatest <= 0 else math.inf
    one_sign = floor == 0 or ceiling == 0
    rounds = between > 0 and max(-low, high) > torch.finfo(a.dtype).max
    if (max(-low, high) + max(-least, greatest)) * (1 + share) >= torch.finfo(work).max or rounds:
        return replace(Interval.fill(floor, ceiling, shape, a.dtype), nan=not one_sign and not rounds)
    ends = low + least - share * abs(least) - lost, high + greatest + share * abs(greatest) + lost
    return round_numbers_outward(max(ends[0], floor), min(ends[1], ceiling), shape, a.dtype)


def _include_infinities(
    product: Product,
    a: Interval,
    b: Interval,
    terms: int,
    shape: tuple[int, ...],
    bias: Interval | None,
    count: int | None,
    rounding: ProductRounding,
) -> Interval:
    """Return bounds where operands may be infinite: those of the finite ones, and where infinities may reach."""
    rest = None if bias is None else _keep_finite(bias)
    finite = (_keep_finite(a), _keep_finite(b))
    plain = bilinear(product, *finite, terms=terms, shape=shape, bias=rest, rounding=rounding, count=count)
    up_a, down_a, positive_a, negative_a, zero_a = _marks(a)
    up_b, down_b, positive_b, negative_b, zero_b = _marks(b)
    up_c, down_c = (None, None) if bias is None else _marks(bias)[:2]
    rising = product(up_a, positive_b, up_c) + product(down_a, negative_b, None)
    rising = (rising + product(positive_a, up_b, None) + product(negative_a, down_b, None)) > 0
    falling = product(up_a, negative_b, down_c) + product(down_a, positive_b, None)
    falling = (falling + product(negative_a, up_b, None) + product(positive_a, down_b, None)) > 0
    lost = (product(up_a + down_a, zero_b, None) + product(zero_a, up_b + down_b, None)) > 0
    low = torch.where(falling, -math.inf, plain.lower)
    high = torch.where(rising, math.inf, plain.upper)
    # An infinity of another sign may be that of an operand, or a sum that overflows.
    meets = (rising & (low == -math.inf)) | (falling & (high == math.inf))
    # A window may multiply infinite weights with its padding, and tensor cores infinities with what counts as 0.
    nan = plain.nan or b.may_be_infinite or rounding.cuts or bool(meets.any()) or bool(lost.any())
    return replace(Interval.of(low, high, shape), nan=nan)


def _keep_finite(x: Interval) -> Interval:
    """Return the finite part of the bounds; where there is none, 0."""
    never = (x.lower == math.inf) | (x.upper == -math.inf)
    part = x.keep_finite()
    return Interval(part.lower.masked_fill(never, 0), part.upper.masked_fill(never, 0), x.shape)


def _marks(x: Interval) -> tuple[Tensor, ...]:
    """Return where an operand may be infinite upwards, downwards, positive, negative and 0, as ones and zeros."""
    low, high = x.lower, x.upper
    places = (high == math.inf, low == -math.inf, high > 0, low < 0, (low <= 0) & (high >= 0))
    return tuple(place.to(torch.float32) for place in places)
