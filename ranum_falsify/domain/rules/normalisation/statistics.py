"""Numbers minus their mean, divided by their deviation: bounds that use how the three are related.

Let d = x_i - mean and S the sum of squares of the n - 1 others around their own mean.  Then n variance =
n / (n - 1) d^2 + S, so that z_i = d / sqrt(d^2 / (n - 1) + S / n + epsilon) rises with d and its size falls with S:
bounds on d and S give bounds on z, and |z| <= sqrt(n - 1) (P. Samuelson, How deviant can you be?, Journal of the
American Statistical Association 63, 1968).

Kernels compute the mean with an error delta that is relative to the numbers, not to their deviation.  The variance
comes from a second pass, larger by at most delta^2; from Welford's updates, whose deviation errs by 1.25 delta
upwards and 2 delta downwards while delta is a quarter of it (T. Chan, G. Golub and R. LeVeque, Algorithms for
computing the sample variance, The American Statistician 37, 1983); or as mean(x^2) - mean(x)^2, which can cancel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.error_bounds import (
    LARGEST_SQUARED,
    STATISTICS_ROUNDINGS,
    accumulation,
    cancellation_share,
    gamma,
    reach_of_updates,
    sum_error,
    tiny,
    unit,
)
from ranum_falsify.domain.rules.support.sections import Sections

_QUARTER = 0.25


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Mean and deviation of each section, all of shape `(..., 1)`.

    Attributes:
        least_mean: In real numbers.
        greatest_mean: In real numbers.
        least_deviation: Root of the population variance, in real numbers.
        greatest_deviation: In real numbers.
        drift: The most by which kernels may stray from the mean.
    """

    least_mean: Tensor
    greatest_mean: Tensor
    least_deviation: Tensor
    greatest_deviation: Tensor
    drift: Tensor

    def least_root(self, epsilon: float, dtype: torch.dtype) -> Tensor:
        """Return the least root of variance + epsilon in real numbers, minus the most that flushing takes away."""
        return ((self.least_deviation.square() - 2 * tiny(accumulation(dtype))).clamp(min=0) + epsilon).sqrt()

    def stays_positive(self, epsilon: float, dtype: torch.dtype) -> bool:
        """Tell whether variance + epsilon is above 0, however it is computed without cancellation."""
        if not epsilon >= 0:
            return False
        if epsilon >= tiny(accumulation(dtype)):
            return True
        root = self.least_root(0.0, dtype)
        return bool(((root > 4 * self.drift) & (root.square() > 8 * tiny(accumulation(dtype)))).all())


@dataclass(frozen=True, kw_only=True)
class Standardised:
    """Normalised numbers.

    Attributes:
        lower: Least values, `(..., stored)`, as kernels may compute them; -Inf where nothing is known.
        upper: Greatest values.
        nan: Whether finite numbers may give NaN.
    """

    lower: Tensor
    upper: Tensor
    nan: bool = False

    def hull(self, other: Standardised) -> Standardised:
        """Return bounds of what either may be."""
        low, high = torch.minimum(self.lower, other.lower), torch.maximum(self.upper, other.upper)
        return Standardised(lower=low, upper=high, nan=self.nan or other.nan)


def moments(rows: Sections, *, apart: bool = False) -> Moments:
    """Return the moments of each section.

    The deviation is a seminorm: that of the centres of the bounds differs from it by at most the root mean square of
    their radii; and it is at most the root mean square of the greatest distances to any one number.

    Args:
        rows: The numbers.
        apart: Whether the mean and the differences from it are tensors of their own, which half precision rounds.
    """
    n = rows.size
    centre, radius = _centre_and_radius(rows)
    mean = rows.total(centre) / n
    spread = (rows.total((centre - mean).square()) / n).sqrt()
    slack = _own_error(rows)
    # A mean below the smallest normal number may be lost completely.
    lost = rows.magnitude.clamp(max=tiny(accumulation(rows.dtype)))
    drift = gamma(n + _updates(n), accumulation(rows.dtype)) * rows.magnitude + lost + slack
    if apart and _is_half(rows):
        drift = drift + 4 * unit(rows.dtype) * rows.magnitude + _denormal(rows)
    return Moments(
        least_mean=rows.total(rows.lower) / n - slack,
        greatest_mean=rows.total(rows.upper) / n + slack,
        least_deviation=(spread - (rows.total(radius.square()) / n).sqrt() - slack).clamp(min=0),
        greatest_deviation=(rows.total(((centre - mean).abs() + radius).square()) / n).sqrt() + slack,
        drift=drift,
    )


def standardise(
    rows: Sections,
    epsilon: float,
    *,
    cancels: torch.dtype | None = None,
    added: float = 0.0,
    apart: bool = False,
    updates: bool = False,
) -> Standardised:
    """Return bounds of (x - mean) / sqrt(variance + epsilon) over each section.

    Args:
        rows: The numbers.
        epsilon: Number that is added to the variance; nothing is known where it is below 0, as z falls with d there.
        cancels: Type in which a runtime computes the variance as mean(x^2) - mean(x)^2, if one does.
        added: Another number that a runtime may add to the deviation.
        apart: Whether every step writes a tensor of its own, which half precision rounds.
        updates: Whether all runtimes compute float32 in two passes or by Welford's updates of one number after another.
    """
    if not epsilon >= 0 or sums_overflow(rows):
        return _make_unknown(rows)
    known = moments(rows, apart=apart)
    root = known.least_root(epsilon, rows.dtype)
    least, greatest, fewest, most = _parts(rows)
    lost = _denormal(rows) if apart and _is_half(rows) else tiny(accumulation(rows.dtype))
    relative = _relative_error(rows, root, lost) + added / root
    limit = partial(_cancelling_limit, lost=cancellation(replace(rows, dtype=cancels))) if cancels else _limit
    if updates and not cancels and rows.dtype is torch.float32:
        limit = partial(_limit, most=_reach(rows, epsilon))
    high = limit(_quotient(greatest, fewest, most, rows.size, epsilon), greatest, root, epsilon, known, rows)
    low = -limit(_quotient(-least, fewest, most, rows.size, epsilon), -least, root, epsilon, known, rows)
    low, high = low - low.abs() * relative, high + high.abs() * relative
    low, high = low.nan_to_num(nan=-math.inf, neginf=-math.inf), high.nan_to_num(nan=math.inf, posinf=math.inf)
    nan = bool((high == math.inf).any() or (low == -math.inf).any())
    if squares_overflow(rows):  # an infinite deviation makes everything 0, or NaN where two of them meet
        low, high, nan = low.clamp(max=0), high.clamp(min=0), True
    return Standardised(lower=low, upper=high, nan=nan)


def divide_by_root_mean_square(rows: Sections, epsilon: float, share: float = 1.0) -> Standardised:
    """Return bounds of x / sqrt(share * sum(x^2) + epsilon) over each section, for example for a share of 1 / n.

    As above, with x in place of d: the sum of the others' squares is known independently of it.
    """
    if not epsilon >= 0 or sums_overflow(rows):
        return _make_unknown(rows)
    fewest, most = Enclosure(rows.lower, rows.upper).map_even(torch.square)
    slack = _own_share(rows)
    others = (rows.total(fewest) * (1 - slack) - fewest).clamp(min=0), rows.total(most) * (1 + slack) - most
    relative = _relative_error_of_root(rows, rows.total(fewest) * (1 - slack), epsilon, share)

    def high(x: Tensor) -> Tensor:
        rest = torch.where(x >= 0, *others)
        return _ratio(x, (share * (x.square() + rest) + epsilon).sqrt())

    upper, lower = high(rows.upper), -high(-rows.lower)
    upper = (upper + upper.abs() * relative).nan_to_num(nan=math.inf, posinf=math.inf)
    lower = (lower - lower.abs() * relative).nan_to_num(nan=-math.inf, neginf=-math.inf)
    if squares_overflow(rows):
        lower, upper = lower.clamp(max=0), upper.clamp(min=0)
    return Standardised(lower=lower, upper=upper, nan=bool((upper == math.inf).any() or (lower == -math.inf).any()))


def invert_root_mean_square(rows: Sections, epsilon: float) -> Standardised:
    """Return bounds of 1 / sqrt(mean(x^2) + epsilon) over each section, `(..., 1)`."""
    if not epsilon >= 0 or sums_overflow(rows):
        nothing = torch.full_like(rows.magnitude, math.inf)
        return Standardised(lower=-nothing, upper=nothing, nan=True)
    slack = _own_share(rows)
    fewest, most = (rows.total(end) for end in Enclosure(rows.lower, rows.upper).map_even(torch.square))
    least, greatest = fewest * (1 - slack) / rows.size, most * (1 + slack) / rows.size
    relative = _relative_error_of_root(rows, fewest * (1 - slack), epsilon, 1 / rows.size)
    inverse = [1 / (end + epsilon).sqrt() for end in (greatest, least)]
    lower = (inverse[0] * (1 - relative)).nan_to_num(nan=0.0).clamp(min=0)
    upper = (inverse[1] * (1 + relative)).nan_to_num(nan=math.inf)
    if squares_overflow(rows):
        lower = torch.zeros_like(lower)
    return Standardised(lower=lower, upper=upper)


def _relative_error(rows: Sections, root: Tensor, lost: float) -> Tensor:
    """Return the error of a quotient by a root of at least some size, whose square may lose what underflows."""
    return sum_error(rows.size, rows.dtype, STATISTICS_ROUNDINGS) + 8 * lost / root**2


def _relative_error_of_root(rows: Sections, squares: Tensor, epsilon: float, share: float) -> Tensor:
    """Return the same where the root is of a share of a sum of squares that is known, and epsilon."""
    smallest = tiny(accumulation(rows.dtype))
    least = squares * share - smallest * (rows.size * share + 1) + epsilon
    return sum_error(rows.size, rows.dtype, STATISTICS_ROUNDINGS) + 2 * rows.size * smallest / least.clamp(min=0)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What linear bounds need to know of normalised numbers.

    Attributes:
        lower: Least values, in real numbers and as kernels may compute them, `(..., n)`; may be infinite.
        upper: Greatest values.
        stray: The most by which kernels may stray from the real number; infinite where that is not known.
        squares: Least and greatest mean of the squares, about the mean if that is subtracted, `(..., 1)`.
    """

    lower: Tensor
    upper: Tensor
    stray: Tensor
    squares: tuple[Tensor, Tensor]


def bound_scores(rows: Sections, epsilon: float, *, centred: bool, cancels: torch.dtype | None = None) -> Scores:
    """Return what is known of numbers divided by the root of their mean square plus epsilon.

    Args:
        rows: The numbers.
        epsilon: Number that is added to the mean square.
        centred: Whether their mean is subtracted from them first.
        cancels: As for :func:`standardise`.
    """
    lost = torch.zeros_like(rows.lower[..., :1])
    if centred:
        z, of = standardise(rows, epsilon, cancels=cancels), moments(rows)
        root = of.least_root(epsilon, rows.dtype)
        share = torch.where(root > 0, of.drift / root, math.inf)
        relative = _relative_error(rows, root, tiny(accumulation(rows.dtype)))
        lost = cancellation(replace(rows, dtype=cancels)) / root.square() if cancels else lost
        squares = of.least_deviation.square(), of.greatest_deviation.square()
    else:
        z, share = divide_by_root_mean_square(rows, epsilon, 1 / rows.size), torch.zeros_like(rows.lower[..., :1])
        ends = Enclosure(rows.lower, rows.upper).map_even(torch.square)
        squares = rows.total(ends[0]) / rows.size, rows.total(ends[1]) / rows.size
        relative = _relative_error_of_root(rows, squares[0] * (1 - _own_share(rows)), epsilon, 1.0)
    size = torch.maximum(z.lower.abs(), z.upper.abs())
    # As in `_limit`: (z + share) / (1 - 2 share) - z.
    moved = torch.where(share <= _QUARTER, share * (1 + 2 * size) / (1 - 2 * share), math.inf)
    # As in `_cancelling_limit`.
    grown = torch.where(lost < 1, (1 - lost).rsqrt() - 1, math.inf)
    moved = moved + torch.where(lost > 0, grown * (size + moved), 0.0)
    stray = moved + relative * (size + moved)
    slack = _own_share(rows)
    known = not z.nan and not squares_overflow(rows)  # an infinite deviation makes 0 of any number
    return Scores(
        lower=z.lower,
        upper=z.upper,
        stray=stray.nan_to_num(nan=math.inf) if known else torch.full_like(stray, math.inf),
        squares=(squares[0] * (1 - slack), squares[1] * (1 + slack)),
    )


# parts ----------------------------------------------------------------------------------------------------------


def _is_half(rows: Sections) -> bool:
    return accumulation(rows.dtype) is not rows.dtype


def _denormal(rows: Sections) -> float:
    """Return the smallest number of the type of a tensor."""
    limits = torch.finfo(rows.dtype)
    return float(limits.tiny * limits.eps)


def _updates(n: int) -> int:
    """Count roundings of a mean of n numbers besides n: a step of Welford's k-th update is a k-th of a number."""
    return 8 * n.bit_length() + STATISTICS_ROUNDINGS


def _centre_and_radius(rows: Sections) -> tuple[Tensor, Tensor]:
    return (rows.lower + rows.upper) / 2, (rows.upper - rows.lower) / 2


def _own_share(rows: Sections) -> float:
    """Return the relative error of our own sums, in float64."""
    return 8 * gamma(rows.lower.shape[-1] + 8, torch.float64)


def _own_error(rows: Sections) -> Tensor:
    return _own_share(rows) * rows.magnitude


def _parts(rows: Sections) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return least and greatest d, and least and greatest S, for each element."""
    n = rows.size
    if n == 1:
        zero = torch.zeros_like(rows.lower)
        return zero, zero, zero, zero
    low, high = rows.lower, rows.upper
    centre, radius = _centre_and_radius(rows)
    mean = rows.total(centre) / n
    off, squares = centre - mean, radius.square()
    about = off.square()
    slack = _own_share(rows) * rows.total(about) + n * _own_error(rows).square()
    least = (low - (rows.total(high) - high) / (n - 1)) * ((n - 1) / n)
    greatest = (high - (rows.total(low) - low) / (n - 1)) * ((n - 1) / n)
    beside = rows.total(about) - about * (n / (n - 1))
    spread, widest = ((beside + side * slack).clamp(min=0).sqrt() for side in (-1, 1))
    noise = _sum_others(rows, squares).sqrt()
    furthest = (off.abs() + radius).square()
    most = torch.minimum(_sum_others(rows, furthest) + slack, (widest + noise).square())
    return least, greatest, (spread - noise).clamp(min=0).square(), most


def _sum_others(rows: Sections, values: Tensor) -> Tensor:
    """Return at least what the others of each section add up to; a sum absorbs them beside a large one."""
    total = rows.total(values)
    return (total - values).clamp(min=0) + _own_share(rows) * total


def _quotient(d: Tensor, fewest: Tensor, most: Tensor, n: int, epsilon: float) -> Tensor:
    """Return the greatest z for a greatest d: with S as small as possible if d is positive, as large if not."""
    rest = torch.where(d >= 0, fewest, most)
    return _ratio(d, (d.square() / max(n - 1, 1) + rest / n + epsilon).sqrt())


def _ratio(x: Tensor, root: Tensor) -> Tensor:
    return torch.where(x == 0, 0.0, x / root)


def _reach(rows: Sections, epsilon: float) -> Tensor:
    """Return the most that any number gives by two passes or Welford's updates; the first of a row may give more."""
    first, others = reach_of_updates(rows.size, rows.magnitude, epsilon).split(1, -1)
    stored = rows.lower.shape[-1]
    alone = torch.cat([first, others.expand(*others.shape[:-1], stored - 1)], -1)
    return alone if stored == rows.size else torch.maximum(first, others)


def _limit(
    z: Tensor,
    d: Tensor,
    root: Tensor,
    epsilon: float,
    known: Moments,
    rows: Sections,
    most: float | Tensor = math.inf,
) -> Tensor:
    """Return the greatest quotient that kernels compute, at most `most`, given the greatest one in real numbers."""
    share = torch.where(root > 0, known.drift / root, math.inf)
    near = z + share
    near = torch.where(near >= 0, near / (1 - 2 * share), near / (1 + 2 * share))
    near = torch.where(share <= _QUARTER, near, math.inf)
    # However far the mean is off, with D for the distance of a number to it and s for the deviation as computed,
    # D <= sqrt(n - 1) s + 2 drift: two passes take both from the same mean, and Welford's k-th update adds
    # (x - m[k-1]) (x - m[k]) >= 0, which bounds x - m[k-1] up to twice the error of m[k].  Nothing but epsilon
    # keeps s from 0 then: the mean of two neighbours may be one of them.  A third drift is for the quotient's own
    # rounding, x / s - mean / s.
    floor = math.sqrt(epsilon) if epsilon > 0 else 0.0
    far = math.sqrt(rows.size) + 3 * known.drift / floor if floor else torch.full_like(near, math.inf)
    plain = (d.clamp(min=0) + known.drift) / floor if floor else torch.full_like(near, math.inf)
    return torch.minimum(torch.minimum(near, torch.as_tensor(most)), torch.minimum(far, plain))


def _cancelling_limit(
    z: Tensor, d: Tensor, root: Tensor, epsilon: float, known: Moments, rows: Sections, *, lost: Tensor
) -> Tensor:
    """Return the same if the variance is a difference of two large numbers, whose rounding is `lost`."""
    lost = lost / root.square()
    near = z + known.drift / root
    factor = torch.where(near >= 0, 1 / (1 - lost).sqrt(), 1 / (1 + lost).sqrt())
    return torch.where(lost < 1, near * factor, math.inf)


def cancellation(rows: Sections) -> Tensor:
    """Return by how much mean(x^2) - mean(x)^2 may differ from the variance as computed, `(..., 1)`."""
    squares = torch.maximum(rows.lower.square(), rows.upper.square())
    mean = rows.total(squares) / rows.size
    return cancellation_share(rows.size, rows.dtype) * mean + 4 * tiny(accumulation(rows.dtype))


def sums_overflow(rows: Sections) -> bool:
    """Tell whether a sum of the numbers may overflow, or one of their squares in float64."""
    most = float(rows.magnitude.max())
    return most >= LARGEST_SQUARED or 4 * rows.size * most >= torch.finfo(accumulation(rows.dtype)).max


def squares_overflow(rows: Sections) -> bool:
    """Tell whether a variance may overflow, or a sum of squares."""
    most = 2.01 * float(rows.magnitude.max())
    return most * most * rows.size >= torch.finfo(accumulation(rows.dtype)).max


def _make_unknown(rows: Sections) -> Standardised:
    nothing = torch.full_like(rows.lower, math.inf)
    return Standardised(lower=-nothing, upper=nothing, nan=True)
