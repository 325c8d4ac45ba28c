"""Planes about numbers divided by their deviation or by their root mean square, less their mean or not.

With z for x, less its mean, and v for the mean of z^2 plus epsilon, the result is z r with r = 1 / sqrt(v).  v lies
between a tangent plane and the mean of chords, r between a tangent and a chord of these: planes about r.  The product
lies between McCormick's planes, or what is between these.

Source: Z. Shi et al., Robustness Verification for Transformers, 2020, https://arxiv.org/abs/2002.06622.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import double_share, gamma, tiny
from ranum_falsify.domain.linear.backsubstitution import BoundedTensor
from ranum_falsify.domain.linear.curves import SQUARE
from ranum_falsify.domain.linear.rows import Plane, RowFunction, RowLines, Rows
from ranum_falsify.domain.linear.steps import AffineFunction, AffineStep, Box, CurveStep, Step
from ranum_falsify.domain.rules.normalisation.statistics import bound_scores
from ranum_falsify.domain.rules.support.sections import Sections

_SMALLEST = 1e-190
"""The least number of which the root's cube has an inverse in float64."""

_LOST_ROOT = 2 * math.sqrt(tiny(torch.float64))
"""Coefficients below this may be missing from a norm, because their squares underflow."""


def _bound_centred(low: Tensor, high: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Return bounds of numbers less their mean, given the weights of that: an element counts in its own mean, too."""
    least, greatest = low - (mean * high).sum(-1, True), high - (mean * low).sum(-1, True)
    own = double_share(low.shape[-1]) * torch.maximum(low.abs(), high.abs()).amax(-1, keepdim=True)
    return least + mean * (high - low) - own, greatest - mean * (high - low) + own


def _is_cubed(least: Tensor, greatest: Tensor) -> Tensor:
    """Tell whether the slopes of 1 / sqrt, which are those of cubes of roots, are float64 numbers."""
    return (least > _SMALLEST) & (greatest < 1 / _SMALLEST)


@dataclass(frozen=True)
class _InverseRoot:
    """Bounds of r over boxes of rows, and planes about it.

    Attributes:
        low: Its least value, `(..., 1)`.
        high: Its greatest.
        slopes: Those of planes below and above it, `(2, ..., n)`.
        offsets: Their constants, `(2, ..., 1)`.
        sizes: The magnitudes of what the constants are sums of, which may cancel.
    """

    low: Tensor
    high: Tensor
    slopes: Tensor
    offsets: Tensor
    sizes: Tensor


class StandardisedRows(RowFunction):
    """`(x - mean) / sqrt(variance + epsilon)`, or `x / sqrt(mean(x^2) + epsilon)`."""

    def __init__(
        self, epsilon: float, dtype: torch.dtype, *, centred: bool, cancels: torch.dtype | None = None
    ) -> None:
        """Describe the function.

        Args:
            epsilon: The number that is added.
            dtype: Type of the tensor.
            centred: Whether the mean is subtracted.
            cancels: Type in which a runtime computes the variance as mean(x^2) - mean(x)^2, if one does.
        """
        self._epsilon, self._dtype, self.centred = epsilon, dtype, centred
        self._cancels = cancels

    def starts(self, low: Tensor, high: Tensor) -> Sequence[Tensor]:
        """See :meth:`RowFunction.starts`: the planes of the product, below and above, and those about r."""
        middle = torch.full_like(low, 0.5)
        return middle, middle, middle, middle[..., :1], middle[..., :1]

    def bound(
        self, low: Tensor, high: Tensor, shares: Sequence[Tensor] = (), squares: tuple[Tensor, Tensor] | None = None
    ) -> RowLines:
        """See :meth:`RowFunction.bound`."""
        rows = Sections(lower=low, upper=high, copies=1, dtype=self._dtype, dims=(), stored=())
        scores = bound_scores(rows, self._epsilon, centred=bool(self.centred), cancels=self._cancels)
        n = low.shape[-1]
        mean = torch.full_like(low, 1 / n if self.centred else 0.0)
        least, greatest = _bound_centred(low, high, mean)
        fewest, most = scores.squares
        if squares is not None:
            fewest, most = torch.maximum(fewest, squares[0]), torch.minimum(most, squares[1])
            most = torch.maximum(fewest, most)
        y = self._bound_inverse(low, high, fewest, most, shares[2:])
        sides, rounding = shares[:2] or (0.5, 0.5), 8 * gamma(n + 8, torch.float64)

        def plane(first: Tensor | float, side: float) -> Plane:
            # z r >= a r + b z - a b for the least a and b or the greatest, <= that for one of each.
            last = 1 - first
            ends = (y.low, y.high) if side < 0 else (y.high, y.low)
            centre, factor = first * least + last * greatest, first * ends[0] + last * ends[1]
            rest = first * least * ends[0] + last * greatest * ends[1]
            rising, falling = centre.clamp(min=0), centre.clamp(max=0)
            # What multiplies the plane below r, and the one above it.
            below, above = (rising, falling) if side < 0 else (falling, rising)
            factor = factor.expand_as(centre)
            offset = below * y.offsets[0] + above * y.offsets[1] - rest
            size = below.abs() * y.sizes[0] + above.abs() * y.sizes[1] + rest.abs()
            offset = offset + side * rounding * size
            shared = -factor if self.centred else torch.zeros_like(factor)
            return Plane(factor, torch.stack([shared, below, above]), offset)

        return RowLines(
            common=torch.stack(torch.broadcast_tensors(mean, *y.slopes)),
            lower=plane(sides[0], -1.0),
            upper=plane(sides[1], 1.0),
            stray=torch.where(_is_cubed(fewest + self._epsilon, most + self._epsilon), scores.stray, math.inf),
            least=scores.lower,
            greatest=scores.upper,
        )

    def _bound_inverse(
        self, low: Tensor, high: Tensor, fewest: Tensor, most: Tensor, shares: Sequence[Tensor]
    ) -> _InverseRoot:
        """Bound r over rows whose mean squares lie between two bounds.

        Args:
            low: Lower bounds of the rows.
            high: Upper bounds.
            fewest: The least mean square.
            most: The greatest.
            shares: Where the tangent plane below the mean square touches, `(..., n)`; the origin of chords, and where
                the tangent below r touches, `(..., 1)`; in the middle if not given.
        """
        n, middle = low.shape[-1], (low + high) / 2
        origin = middle.mean(-1, keepdim=True) if self.centred else torch.zeros_like(low[..., :1])
        touched = middle
        if shares:
            touched = low + shares[0] * (high - low)
            if self.centred:
                origin = (low + shares[1] * (high - low)).mean(-1, keepdim=True)
        from_low, from_high, apart = low - origin, high - origin, touched - origin
        # (x - c)^2 lies below its chord, and the variance below its mean.
        chord = (from_low + from_high) / n
        chord_offset = -((from_low * from_high).sum(-1, True) / n + (chord * origin).sum(-1, True))
        # The variance is at least mean(2 a z - a^2) for any a.
        tangent = 2 * (apart - apart.mean(-1, keepdim=True) if self.centred else apart) / n
        tangent_offset = -apart.square().mean(-1, keepdim=True)
        fewest, most = fewest + self._epsilon, most + self._epsilon
        start = ((chord * middle).sum(-1, True) + chord_offset + self._epsilon).clamp(min=fewest).clamp(max=most)
        if shares:
            start = fewest + shares[2] * (most - fewest)
        value, slope = start.rsqrt(), -0.5 * start.rsqrt() / start
        least, greatest = most.rsqrt(), fewest.rsqrt()
        width = most - fewest
        fall = torch.where(width > 0, (least - greatest) / torch.where(width > 0, width, 1.0), 0.0)
        below = value + slope * (chord_offset + self._epsilon - start)
        above = greatest + fall * (tangent_offset + self._epsilon - fewest)
        terms = torch.maximum(from_low.abs(), from_high.abs()).square().sum(-1, True) / n
        terms = terms + (chord * origin).abs().sum(-1, True) + abs(self._epsilon) + start
        size = greatest + fall.abs() * (tangent_offset.abs() + abs(self._epsilon) + fewest)
        return _InverseRoot(
            least,
            greatest,
            slopes=torch.stack([slope * chord, fall * tangent]),
            offsets=torch.stack([below, above]),
            sizes=torch.stack([value + slope.abs() * terms, size]),
        )

    def minimise(self, weights: Tensor, least: Tensor, greatest: Tensor) -> Tensor:
        """See :meth:`RowFunction.minimise`: the squares of n results add up to n at most, and they to 0 if centred."""
        if not self._epsilon >= 0:  # what is less than the mean square divides
            return torch.full(weights.shape[:-1], -math.inf, dtype=weights.dtype)
        n = weights.shape[-1]
        across = weights - weights.mean(-1, keepdim=True) if self.centred else weights
        norm: Tensor = torch.linalg.vector_norm(across, dim=-1)
        return -math.sqrt(n) * (1 + double_share(n)) * norm - n * _LOST_ROOT


def squares_of_rows(
    read: int, first: int, rows: Rows, box: Box, *, centred: bool
) -> tuple[list[Step], list[BoundedTensor]]:
    """Return steps to the mean squares of rows, in real numbers, and the variables that they write.

    Args:
        read: Variable of the rows.
        first: Number of the first variable that is written; the last one has the mean squares, one for each row.
        rows: The rows.
        box: Bounds of them, `(1, *shape)`.
        centred: Whether the mean is subtracted first.
    """
    own, shape = double_share(rows.size), tuple(box[0].shape[1:])
    steps: list[Step] = []
    found: list[BoundedTensor] = []
    if centred:
        reach = own * torch.maximum(box[0].abs(), box[1].abs()).max()
        box = box[0] - _spread(rows, box[1]) - reach, box[1] - _spread(rows, box[0]) + reach
        found.append(BoundedTensor(shape, box))
        steps.append(
            AffineStep(
                (read,), (first,), AffineFunction(lambda x: (x - _spread(rows, x),), [shape]), lambda: [2 * reach]
            )
        )
        read, first = first, first + 1
    ends = box[0].square(), box[1].square()
    least = torch.where((box[0] < 0) & (box[1] > 0), 0.0, torch.minimum(*ends)) * (1 - own)
    squares = least, torch.maximum(*ends) * (1 + own)
    found.append(BoundedTensor(shape, squares))
    steps.append(CurveStep(read, first, SQUARE, torch.zeros(1, dtype=torch.float64), 0.0, squares))
    error = own * squares[1].max()
    low, high = (rows.cut(end).mean(-1) for end in squares)
    found.append(BoundedTensor(tuple(low.shape[1:]), (low - error, high + error)))
    steps.append(
        AffineStep((first,), (first + 1,), AffineFunction(lambda x: (rows.cut(x).mean(-1),), [shape]), lambda: [error])
    )
    return steps, found


def _spread(rows: Rows, x: Tensor) -> Tensor:
    """Return the mean of each row at the place of each of its elements."""
    parts = rows.cut(x)
    return rows.join(parts.mean(-1, keepdim=True).expand_as(parts))
