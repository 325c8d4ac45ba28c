"""Planes about softmax and its logarithm, which is x_i - lse(x), with lse the logarithm of the sum of exponentials.

lse is convex: its tangent plane in the middle of the box lies below it.  Each exponential lies below its chord, and the
logarithm of the sum of the chords below its tangent: a plane above.  Softmax is the exponential of the difference.

Sources: Z. Shi et al., Robustness Verification for Transformers, 2020, https://arxiv.org/abs/2002.06622; D. Wei et al.,
Convex Bounds on the Softmax Function with Applications to Robustness Verification, 2023,
https://arxiv.org/abs/2303.01713.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import double_share, tiny, unit
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.linear.curves import EXP
from ranum_falsify.domain.linear.relaxations import Slopes
from ranum_falsify.domain.linear.rows import Plane, RowFunction, RowLines
from ranum_falsify.domain.rules.softmax import LogarithmError, log_probability, logarithm_error, probability_error


@dataclass(frozen=True)
class _LogProbabilities:
    """Of rows: bounds of the logarithms, and what the planes about them are made of.

    Attributes:
        low: Least logarithms, `(..., n)`.
        high: Greatest ones.
        common: Slopes of planes below and above lse, `(2, ..., n)`.
        offsets: Their constants, `(2, ..., 1)`.
        least_middle: The plane below the logarithms in the middle of the box, `(..., n)`.
    """

    low: Tensor
    high: Tensor
    common: Tensor
    offsets: Tensor
    least_middle: Tensor

    @classmethod
    def of(cls, low: Tensor, high: Tensor, shares: Sequence[Tensor] = ()) -> _LogProbabilities:
        """Bound rows `(..., n)` between two bounds.

        Args:
            low: The lower bounds.
            high: The upper bounds.
            shares: Where the planes touch: on the way from the lower to the upper bounds, `(..., n)`, and from the
                least to the greatest sum of chords, `(..., 1)`; in the middle if not given.
        """
        middle, width = (low + high) / 2, high - low
        reference = high.amax(-1, keepdim=True)
        first, last = (low - reference).exp(), (high - reference).exp()
        ends = first.sum(-1, keepdim=True), last.sum(-1, keepdim=True)
        touched, total = middle, (ends[0] + ends[1]) / 2
        if shares:
            touched, total = low + shares[0] * width, ends[0] + shares[1] * (ends[1] - ends[0])
        rise = torch.where(width > 0, -last * torch.expm1(-width) / torch.where(width > 0, width, 1.0), 0.0)
        common = torch.stack(torch.broadcast_tensors(touched.softmax(-1), rise / total))
        # log(S) <= log(T) + (S - T) / T, with S for the sum of chords.
        above = reference + total.log() + (ends[0] - total) / total
        below = touched.logsumexp(-1, keepdim=True) - (common[0] * touched).sum(-1, keepdim=True)
        offsets = torch.stack([below, above - (common[1] * low).sum(-1, keepdim=True)])
        least_middle = middle - (common[1] * middle).sum(-1, keepdim=True) - offsets[1]
        bounds = [log_probability(low, high), log_probability(high, low)]
        own = [double_share(low.shape[-1]) * (1 + end.abs()) for end in bounds]
        return cls(bounds[0] - own[0], (bounds[1] + own[1]).clamp(max=0), common, offsets, least_middle)


class _LogSoftmaxRows(RowFunction):
    def __init__(self, error: LogarithmError, dtype: torch.dtype, highest: float) -> None:
        self._error, self._dtype, self._highest = error, dtype, highest

    def starts(self, low: Tensor, high: Tensor) -> Sequence[Tensor]:
        """See :meth:`RowFunction.starts`: where the planes about lse touch."""
        return _middles(low)

    def bound(
        self, low: Tensor, high: Tensor, shares: Sequence[Tensor] = (), squares: tuple[Tensor, Tensor] | None = None
    ) -> RowLines:
        """See :meth:`RowFunction.bound`."""
        y, one = _LogProbabilities.of(low, high, shares), torch.ones_like(low)
        zero = torch.zeros_like(low)
        stray = self._error.relative * y.low.abs() + self._error.absolute
        stray = stray + 2 * unit(self._dtype) * (y.low.abs() + stray) + tiny(self._dtype)
        return RowLines(
            common=y.common,
            lower=Plane(one, torch.stack([zero, -one]), -y.offsets[1].expand_as(y.common[1])),
            upper=Plane(one, torch.stack([-one, zero]), -y.offsets[0].expand_as(y.common[0])),
            stray=stray,
            least=y.low - stray,
            greatest=(y.high + stray).clamp(max=self._highest),
        )

    def minimise(self, weights: Tensor, least: Tensor, greatest: Tensor) -> Tensor:
        """See :meth:`RowFunction.minimise`: nothing is known but the bounds."""
        return torch.full(weights.shape[:-1], -math.inf, dtype=torch.float64)


class _SoftmaxRows(RowFunction):
    is_masked = True

    def __init__(self, error: LogarithmError, dtype: torch.dtype) -> None:
        self._error, self._dtype = error, dtype

    def starts(self, low: Tensor, high: Tensor) -> Sequence[Tensor]:
        """See :meth:`RowFunction.starts`: where the planes about lse touch, and the tangent of the exponential."""
        y = _LogProbabilities.of(low, high)
        return *_middles(low), ((y.least_middle - y.low) / (y.high - y.low)).clamp(0, 1)

    def bound(
        self, low: Tensor, high: Tensor, shares: Sequence[Tensor] = (), squares: tuple[Tensor, Tensor] | None = None
    ) -> RowLines:
        """See :meth:`RowFunction.bound`."""
        y = _LogProbabilities.of(low, high, shares[:2])
        chord = EXP.lines(y.low, y.high).upper_slope
        touched = torch.minimum(torch.maximum(y.least_middle, y.low), y.high)
        touched = y.low + shares[2] * (y.high - y.low) if shares else touched
        e = EXP.tilt(y.low, y.high, Slopes(touched.exp(), chord))
        own = 1 + double_share(low.shape[-1])
        zero, none = torch.zeros_like(e.lower_slope), torch.zeros_like(e.upper_slope)
        least, greatest = y.low.exp() / own, y.high.exp() * own
        stray = probability_error(self._error, greatest, self._dtype)
        return RowLines(
            common=y.common,
            lower=Plane(
                e.lower_slope, torch.stack([zero, -e.lower_slope]), _shift(e.lower_offset, e.lower_slope, y, 1)
            ),
            upper=Plane(
                e.upper_slope, torch.stack([-e.upper_slope, none]), _shift(e.upper_offset, e.upper_slope, y, 0)
            ),
            stray=stray,
            least=(least - stray).clamp(min=0),
            greatest=(greatest + stray).clamp(max=1),
        )

    def minimise(self, weights: Tensor, least: Tensor, greatest: Tensor) -> Tensor:
        """See :meth:`RowFunction.minimise`: probabilities add up to 1.

        For any number m, w p = m + (w - m) p is at least m + sum min((w - m) least, (w - m) greatest); best is the
        weight at which probabilities that are as large as they may be, those of the least weights first, are used up.
        """
        ordered, order = weights.detach().sort(-1)
        room = (greatest - least).expand_as(weights).gather(-1, order)
        free = 1 - least.sum(-1, keepdim=True)
        filled = (room.cumsum(-1) >= free).to(torch.uint8).argmax(-1, keepdim=True)
        level = ordered.gather(-1, filled)
        beyond = weights - level
        parts = beyond.clamp(min=0) * least + beyond.clamp(max=0) * greatest
        level = level.squeeze(-1)
        return level + parts.sum(-1) - double_share(weights.shape[-1]) * (level.abs() + parts.abs().sum(-1))


def _middles(low: Tensor) -> tuple[Tensor, Tensor]:
    """Return the shares with which planes about lse touch it in the middle of the box."""
    return torch.full_like(low, 0.5), torch.full_like(low[..., :1], 0.5)


def _shift(offset: Tensor, slope: Tensor, y: _LogProbabilities, plane: int) -> Tensor:
    return offset - slope * y.offsets[plane]


def softmax_rows(size: int, dtype: torch.dtype, exp: Envelope) -> RowFunction:
    """Return the softmax of rows of a number of elements of a type, given the error of the exponential."""
    return _SoftmaxRows(logarithm_error(size, dtype, exp), dtype)


def log_softmax_rows(size: int, dtype: torch.dtype, exp: Envelope, log: Envelope, highest: float = 0.0) -> RowFunction:
    """Return the logarithm of the softmax, given also the error of the logarithm, and what no kernel exceeds."""
    return _LogSoftmaxRows(logarithm_error(size, dtype, exp, log), dtype, highest)
