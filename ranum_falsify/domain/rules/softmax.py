"""Normalised exponentials: bounds in real numbers are exact, with an element at one end and the others at the other.

With lse the logarithm of the sum of all exponentials, Softmax is e^(x_i - lse) = 1 / (1 + sum of e^(x_j - x_i) over
j != i).  It rises with x_i and falls with every other x_j.  Kernels compute e^(x_i - max) / sum.  Rounding the
difference errs by u |x_i - max| <= u |x_i - lse|, a relative error of the exponential; in the sum these errors weigh
the mean of |x_j - max|, at most the entropy ln n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import SOFTMAX_ROUNDINGS, sum_error, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import Envelope, is_exponential_of_0_known
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import in_parts, infinity_aware
from ranum_falsify.domain.rules.support.sections import Sections, sections
from ranum_falsify.domain.site import IntervalRule, Site

Dims = Callable[[Operation, int], Sequence[int]]
"""`dims(op, rank)`: the dimensions over which an operator normalises."""

_LOST = 0.98 * 2.0**-25
"""A probability of at least 1 minus this is 1 in float32: rounded correctly, or as e^0 = 1 divided by a sum.

To 1, the others add less than half a unit in the last place, 2^-24, in whatever order.
"""

_LITTLE = 0.25
"""Relative error of the sum of the others up to which that holds."""

_PROBABILITY = Envelope(0.0, lowest=0.0, highest=1.0)
_LOG_PROBABILITY = Envelope(0.0, highest=0.0)
"""Kernels divide by a sum that one of its terms, e^0, makes 1 or more; no result exceeds 1."""


def softmax(dims: Dims, kernel: str | None = None) -> IntervalRule:
    """Return the rule of `Softmax` over some dimensions.

    Args:
        dims: The dimensions.
        kernel: Name of the kernel that computes it in one step, if there is one.
    """

    def rule(site: Site, x: Interval) -> Interval:
        if not x.size:
            return _empty(x)
        along = dims(site.op, len(x.shape))
        return in_parts(lambda part: of_part(site, part, along), x, along)

    def of_part(site: Site, x: Interval, along: Sequence[int]) -> Interval:
        rows = sections(x, along)
        low, high = _log_probabilities(rows)
        exp = site.envelope("Exp")
        error = logarithm_error(rows.size, x.dtype, exp)
        sure = low >= -_LOST
        low, high = error.move(low, -1).exp(), error.move(high, 1).clamp(max=0).exp()
        # Some kernels give 0 where a probability is a normal number still, or one that is not where it is 0.
        lost = exp.absolute + (0.0 if kernel is None else site.envelope(kernel).absolute)
        stray = replace(_PROBABILITY, absolute=lost, keeps_sign=not lost)
        y = round_outward(rows.restore(low), rows.restore(high), x.dtype, x.shape, stray)
        if kernel is None or x.dtype is not torch.float32 or error.absolute >= _LITTLE:
            return y
        sure &= is_exponential_of_0_known(site.runtimes)
        gone = _vanishes(rows, site.envelope(kernel))
        lower, upper = y.lower.masked_fill(rows.restore(sure), 1.0), y.upper.masked_fill(rows.restore(gone), 0.0)
        return replace(y, lower=lower, upper=upper)

    return infinity_aware(rule)


def log_softmax(dims: Dims) -> IntervalRule:
    """Return the rule of `LogSoftmax` over some dimensions."""

    def rule(site: Site, x: Interval) -> Interval:
        along = dims(site.op, len(x.shape))
        return replace(log_softmax_along(site, x, along), nan=not _has_finite_sections(x, along))

    return infinity_aware(rule)


def log_softmax_along(site: Site, x: Interval, dims: Sequence[int]) -> Interval:
    """Return bounds of the logarithm of the softmax over given dimensions."""
    if not x.size:
        return _empty(x)
    rows = sections(x, dims)
    low, high = _log_probabilities(rows)
    error = logarithm_error(rows.size, x.dtype, site.envelope("Exp"), site.envelope("Log"))
    high = torch.where(high.isinf(), high, error.move(high, 1))
    if not is_exponential_of_0_known(site.runtimes):
        return round_outward(rows.restore(error.move(low, -1)), rows.restore(high), x.dtype, x.shape)
    # The greatest sum of exponentials that kernels see is 1 or more, so that no result is positive.
    least, greatest = rows.restore(error.move(low, -1)), rows.restore(high.clamp(max=0))
    return round_outward(least, greatest, x.dtype, x.shape, _LOG_PROBABILITY)


def shares(x: Interval, dims: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return least and greatest values of the softmax in real numbers over given dimensions, float64."""
    rows = sections(x, dims)
    low, high = _log_probabilities(rows)
    return rows.restore(low.exp()), rows.restore(high.exp())


def hardmax(dims: Dims) -> IntervalRule:
    """Return the rule of `Hardmax`, 1 at a greatest element and 0 elsewhere."""

    def rule(site: Site, x: Interval) -> Interval:
        if not x.size:
            return _empty(x)
        rows = sections(x, dims(site.op, len(x.shape)))
        least = rows.lower.amax(-1, keepdim=True)
        low, high = torch.zeros_like(rows.lower), (rows.upper >= least).double()
        if rows.copies == 1:
            others = _greatest_other(rows.upper)
            low = (rows.lower > others).double()
        return Interval(rows.restore(low).to(x.dtype), rows.restore(high).to(x.dtype), x.shape)

    return infinity_aware(rule)


def has_finite_sections(dims: Dims) -> Callable[[Operation, Mapping[str, Interval]], bool]:
    """Return the proof that no section of the operand `x` is all -Inf or has +Inf."""

    def holds(op: Operation, operands: Mapping[str, Interval]) -> bool:
        x = operands["x"]
        return _has_finite_sections(x, dims(op, len(x.shape)))

    return holds


def _has_finite_sections(x: Interval, dims: Sequence[int]) -> bool:
    if not x.may_be_infinite:
        return True
    if bool((x.upper == math.inf).any()):
        return False
    return bool((sections(x, dims).lower.amax(-1) > -math.inf).all())


def _empty(x: Interval) -> Interval:
    return Interval.fill(0, 0, x.shape, x.dtype)


@dataclass(frozen=True)
class LogarithmError:
    """How far the logarithm of a probability may stray, as kernels compute it or the probability.

    Attributes:
        relative: To the logarithm.
        absolute: Besides.
    """

    relative: float
    absolute: float

    def move(self, logarithm: Tensor, side: int) -> Tensor:
        """Return the logarithm of which a computed one strays most, upward for a side of 1, downward for -1."""
        return logarithm * (1 - side * self.relative) + side * self.absolute


def logarithm_error(size: int, dtype: torch.dtype, exp: Envelope, log: Envelope | None = None) -> LogarithmError:
    """Return the error of a probability among others, as one of its logarithm, or that of the logarithm itself.

    Args:
        size: How many numbers the section has.
        dtype: Their type.
        exp: Error of the exponential.
        log: That of the logarithm, if it is computed.
    """
    count = math.log(size)
    error = sum_error(size, dtype, SOFTMAX_ROUNDINGS) + 2 * unit(dtype) * count + 2 * exp.relative
    if log is None:
        return LogarithmError(2 * unit(dtype), error)
    return LogarithmError(4 * unit(dtype), error + 2 * log.relative * count + 2 * log.absolute)


def probability_error(error: LogarithmError, greatest: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the most by which computed probabilities stray from the true ones.

    For a probability p = e^-l, that is p (e^(r l + a) - 1), more than in the other direction.  p (e^(r l) - 1) falls
    with l from l = -ln(1 - r) / r on, which is 1.02 at most for r <= 0.02, and is less than 0.4 r before.

    Args:
        error: That of their logarithms.
        greatest: The greatest that they may be, in real numbers.
        dtype: Their type; what is smaller than its normal numbers may be 0.
    """
    small = -greatest.log()
    distance = torch.where(small > 1.02, greatest * torch.expm1(error.relative * small), 0.4 * error.relative)
    grown = distance.nan_to_num(0.0) * math.exp(error.absolute) + greatest * math.expm1(error.absolute)
    return grown + 2 * unit(dtype) * (greatest + grown) + 4 * tiny(dtype)


def _log_probabilities(rows: Sections) -> tuple[Tensor, Tensor]:
    """Return least and greatest logarithms of the softmax in real numbers; -Inf for elements that are."""
    return log_probability(rows.lower, rows.upper, rows.copies), log_probability(rows.upper, rows.lower, rows.copies)


def log_probability(x: Tensor, others: Tensor, copies: int = 1) -> Tensor:
    """Return ln softmax of each element of x with the rest of its section taken from `others`.

    Args:
        x: `(..., stored)`.
        others: Likewise.
        copies: How many elements of the section each stored one stands for.
    """
    reference, logarithm = _sum_of_others(others, copies)
    # Differences first: a large reference would absorb the logarithm.
    gap = (reference - x) + logarithm
    return torch.where(x == -math.inf, -math.inf, -torch.logaddexp(torch.zeros_like(gap), gap))


def _vanishes(rows: Sections, kernel: Envelope) -> Tensor:
    """Return where the exponential of the distance to the largest element is 0; with some kernels nowhere."""
    distance = rows.upper - rows.lower.amax(-1, keepdim=True)
    return (distance <= kernel.floor_until) & (kernel.floor_until > -math.inf)


def _sum_of_others(x: Tensor, copies: int) -> tuple[Tensor, Tensor]:
    """Return for each element a reference m and ln of the sum of e^(other - m) over the others of its section.

    Subtracting the element's own share from the sum of all cancels for the greatest element alone, which is
    computed separately.
    """
    greatest = _make_finite(x.amax(-1, keepdim=True))
    powers = (x - greatest).exp()
    total = powers.sum(-1, keepdim=True) * copies
    if copies > 1:
        return greatest, (total - powers).log()
    top = x.argmax(-1, keepdim=True)
    others = x.scatter(-1, top, -math.inf)
    second = _make_finite(others.amax(-1, keepdim=True))
    rest = (others - second).exp().sum(-1, keepdim=True)
    reference = greatest.expand(x.shape).scatter(-1, top, second)
    return reference, (total - powers).scatter(-1, top, rest).log()


def _greatest_other(x: Tensor) -> Tensor:
    top = x.argmax(-1, keepdim=True)
    others = x.scatter(-1, top, -math.inf).amax(-1, keepdim=True)
    return x.amax(-1, keepdim=True).expand(x.shape).scatter(-1, top, others)


def _make_finite(reference: Tensor) -> Tensor:
    return torch.where(reference == -math.inf, 0.0, reference)
