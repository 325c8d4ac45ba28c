"""Attention: means of values, weighted by a softmax of scores.

Weights are not negative and add up to 1, so that a result lies between the least and the greatest of the values that a
query may see, whatever the scores are, as long as these are numbers; a query that sees nothing gives 0 in ONNX's own
operator, and NaN in those of ONNX Runtime.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import accumulation, gamma, growth, tiny, unit
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.matrix.matmul import matrix_product, sum_scaled
from ranum_falsify.domain.rules.softmax import softmax
from ranum_falsify.domain.site import Site

_ELEMENTS = 1 << 22
"""Up to this number of pairs of a query's key and a value, bounds look at what each query may see."""


@dataclass(frozen=True)
class Bias:
    """What is added to scores, float64, broadcastable to `(batch, heads, queries, keys)`; -Inf hides a key.

    Attributes:
        low: Least values.
        high: Greatest values.
        shown: Least values where keys are not hidden.
        most: Greatest values where keys are not hidden.
    """

    low: Tensor
    high: Tensor
    shown: Tensor
    most: Tensor

    @classmethod
    def between(cls, low: Tensor, high: Tensor) -> Bias:
        """Return a bias of any numbers between two, in float64; -Inf is one of them where it is the least."""
        return cls(low.double(), high.double(), low.double().clamp(min=torch.finfo(torch.float64).min), high.double())

    @classmethod
    def of_choice(cls, surely: Tensor, maybe: Tensor) -> Bias:
        """Return the bias that hides keys, given which are surely and which are perhaps seen."""
        low, high = (torch.where(seen, 0.0, -math.inf).double() for seen in (surely, maybe))
        return cls(low, high, torch.zeros_like(low), torch.zeros_like(high))

    def add(self, other: Bias) -> Bias:
        """Return the bias of both."""
        return Bias(self.low + other.low, self.high + other.high, self.shown + other.shown, self.most + other.most)


def bound_anything_of(shape: tuple[int, ...], dtype: torch.dtype) -> Interval:
    """Return bounds of results of scores that may be infinite or NaN."""
    return replace(Interval.fill(-math.inf, math.inf, shape, dtype), nan=True, overflows=True)


def bound_scores(q: Interval, k: Interval, scale: float) -> Interval:
    """Return bounds of scaled products of queries and keys, `(..., queries, size)` and `(..., keys, size)`."""
    y = sum_scaled(matrix_product(q, k, transposed=(False, True)), scale, None, 0.0)
    # The definition scales both factors by the root first.
    factor = math.sqrt(abs(scale)) * max((abs(end) for x in (q, k) if x.size for end in x.extremes), default=0.0)
    limit = dtype_range(q.dtype)[1] / 1.01
    # Products that cancel may overflow once they are scaled.
    scaled = factor * factor * q.shape[-1] if abs(scale) > 1 else 0.0
    y = replace(y, overflows=y.overflows or factor > limit or scaled > limit)
    if q.dtype is torch.float64 and not y.may_be_infinite:
        # ONNX Runtime has the scale, and its root, in float32.
        share = 8 * unit(torch.float32)
        return replace(y, lower=y.lower - share * y.lower.abs(), upper=y.upper + share * y.upper.abs())
    if q.dtype not in (torch.float16, torch.bfloat16):
        lost = 8 * max(q.shape[-1], 1) * tiny(q.dtype)  # products of scaled factors may be denormal numbers
        low, high = y.lower - lost * (y.lower != 0), y.upper + lost * (y.upper != 0)
        return replace(y, lower=low, upper=high)
    # Both factors are scaled first, and each step may be rounded to half precision.
    sizes = [replace(x, lower=size, upper=size) for x in (q, k) for size in (torch.maximum(-x.lower, x.upper),)]
    size = sum_scaled(matrix_product(sizes[0], sizes[1], transposed=(False, True)), abs(scale), None, 0.0).upper
    low, high = y.doubles()
    error = size.double() * 8 * unit(q.dtype) + 8 * torch.finfo(q.dtype).tiny
    wide = round_outward((low - error).nan_to_num(-math.inf), (high + error).nan_to_num(math.inf), y.dtype, y.shape)
    return replace(wide, nan=y.nan, overflows=y.overflows)


def cap_scores(scores: Interval, cap: float) -> Interval:
    """Return bounds of cap tanh(scores / cap), which is no further from 0 than the scores are, nor than the cap."""
    limit = cap * (1 + 8 * unit(scores.dtype))
    # A quotient by a large limit may be a denormal number.
    error, lost = 16 * unit(scores.dtype), cap * min(tiny(scores.dtype), 2.0**-24)
    low, high = (end.double() for end in (scores.lower, scores.upper))
    low, high = (
        end + sign * (end.abs() * error + lost).nan_to_num(0.0).where(end != 0, 0.0)
        for end, sign in ((low, -1), (high, 1))
    )
    low, high = low.clamp(-limit, 0).where(low < 0, 0.0), high.clamp(0, limit).where(high > 0, 0.0)
    y = round_outward(low, high, scores.dtype, scores.shape)
    # Sums that overflow may be NaN, which no limit takes back.
    return replace(y, nan=scores.nan or scores.may_be_infinite, overflows=scores.overflows)


def scores_stay_numbers(scores: Interval, bias: Bias | None) -> bool:
    """Tell whether each query has scores whose softmax is defined: none is +Inf or NaN, nor do all overflow to -Inf."""
    if scores.nan or scores.overflows or scores.may_be_infinite:
        return False
    if bias is None:
        return True
    low, high = scores.doubles()
    limit = dtype_range(scores.dtype)[1] * (1 - 4 * unit(scores.dtype))
    if bool((high + bias.high > limit).any()) or _hides_too_little(low, high, bias, limit):
        return False
    under = (bias.high > -math.inf) & (low + bias.shown < -limit)
    kept = (bias.low > -math.inf) & ~under
    return not bool((under.any(-1) & ~kept.any(-1)).any())


def _hides_too_little(low: Tensor, high: Tensor, bias: Bias, limit: float) -> bool:
    """Tell whether a hidden key may weigh something all the same, where a kernel adds the lowest number for -Inf."""
    stored = bias.shown <= torch.finfo(torch.float64).min
    reach = torch.maximum((low + bias.shown).abs().masked_fill(stored, 0.0), high + bias.most)
    return bool((bias.low == -math.inf).any() and (reach > limit / 4).any())


def attention_bounds(
    site: Site,
    q: Interval,
    k: Interval,
    v: Interval,
    bias: Bias | None,
    *,
    scale: float,
    cap: float = 0.0,
    all_seen: bool = True,
    blank: bool = False,
) -> tuple[Interval, Interval, Interval]:
    """Return bounds of attention, of its scores, and of its scores as they are capped.

    Args:
        site: The node; its row names the kernels `Exp` and `Softmax` unless keys are hidden by something else.
        q: Queries, `(batch, heads, queries, size)`.
        k: Keys, with as many heads or a divisor of them.
        v: Values.
        bias: What is added to the scores.
        scale: Factor of the scores.
        cap: Limit of the scores; 0 for none.
        all_seen: Whether nothing but the bias hides keys.
        blank: Whether kernels give 0 for a query that sees nothing, and not NaN.
    """
    times = q.shape[1] // max(k.shape[1], 1)
    keys, values = (x.move(lambda bound: bound.repeat_interleave(times, 1)) for x in (k, v))
    shape = (*q.shape[:3], v.shape[3])
    if not math.isfinite(scale) or (cap and not tiny(v.dtype) <= cap <= torch.finfo(v.dtype).max):
        # Kernels take a negative limit for none, or for another, and divide by one that rounds to 0 or infinity.
        anything = bound_anything_of((*q.shape[:3], k.shape[2]), q.dtype)
        return bound_anything_of(shape, v.dtype), anything, anything
    scores = bound_scores(q, keys, scale)
    capped = cap_scores(scores, cap) if cap else scores
    unseen = not blank and bias is not None and bool((bias.low == -math.inf).all(-1).any())
    if unseen or v.may_be_infinite or not scores_stay_numbers(capped, bias):
        return bound_anything_of(shape, v.dtype), scores, capped
    y = bound_means(values, bias, shape)
    weights = _bound_weights(site, capped, bias, q.shape[3]) if all_seen else None
    if weights is not None:
        z = matrix_product(weights, values)
        if not (z.nan or z.overflows or z.may_be_infinite or y.may_be_infinite):
            y = y.meet(z)
    return y, scores, capped


_softmax = softmax(lambda op, rank: (rank - 1,), "Softmax")


def _bound_weights(site: Site, scores: Interval, bias: Bias | None, size: int) -> Interval | None:
    """Return bounds of the softmax of biased scores; None where keys may be hidden or not, or a query sees none."""
    low, high = scores.doubles()
    if bias is not None:
        if bool(((bias.low == -math.inf) != (bias.high == -math.inf)).any()):
            return None
        if bool((bias.low == -math.inf).all(-1).any()):
            return None
        # Kernels may start the sums of products from what is added.
        largest = torch.maximum(bias.low.abs(), bias.high.abs())
        error = torch.where(largest.isinf(), 0.0, largest) * growth(size + 2, scores.dtype)
        low, high = low + bias.low - error, high + bias.high + error
    low, high = torch.broadcast_tensors(low, high)
    biased = round_outward(low, high, scores.dtype, scores.shape)
    if not biased.size or bool((biased.upper == math.inf).any()):
        return None
    y = _softmax(site, biased.split(len(scores.shape) - 1))
    assert isinstance(y, Interval)
    return y


def bound_means(v: Interval, bias: Bias | None, shape: tuple[int, ...]) -> Interval:
    """Return bounds of means of values, `(batch, heads, keys, size)`, over the keys that queries may see.

    Args:
        v: Finite values.
        bias: What is added to the scores.
        shape: Shape of the result, `(batch, heads, queries, size)`.
    """
    keys = v.shape[-2]
    if not math.prod(shape) or not keys:
        return Interval.fill(0, 0, shape, v.dtype)
    low, high = v.doubles()
    size = torch.maximum(low.abs(), high.abs()).amax((-2, -1), keepdim=True)
    zero = torch.zeros((), dtype=torch.bool)
    if bias is None:
        low, high = low.amin(-2, keepdim=True), high.amax(-2, keepdim=True)
    else:
        zero = ~(bias.low > -math.inf).expand(*bias.low.shape[:-1], keys).any(-1, keepdim=True)
        low, high = _extremes(low, high, (bias.high > -math.inf).expand(*bias.high.shape[:-1], keys), shape)
    work = accumulation(v.dtype)
    # The weights add up to 1 but for rounding; in half precision small ones may vanish.
    error = size * (2 * gamma(2 * keys + 16, work) + (0.0 if work is v.dtype else 8 * unit(v.dtype) + keys * 2.0**-24))
    low, high = torch.where(zero, low.clamp(max=0), low), torch.where(zero, high.clamp(min=0), high)
    below, above = low - error, high + error
    below, above = torch.where(low >= 0, below.clamp(min=0), below), torch.where(high <= 0, above.clamp(max=0), above)
    y = round_outward(below, above, v.dtype, shape)
    # Kernels add values up before they divide by the sum of the weights, the greatest of which is 1.
    overflows = bool((size * keys * (1 + gamma(keys + 16, work)) > torch.finfo(work).max).any())
    # ONNX Runtime's kernel of float64 gives NaN where the others, and the standard, give 0.
    nan = overflows or (v.dtype is torch.float64 and bool(zero.any()))
    return replace(y, nan=nan, overflows=overflows)


def _extremes(low: Tensor, high: Tensor, maybe: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest values that each query may see; 0 where it sees none."""
    keys = maybe.shape[-1]
    if bool(maybe.all()) or math.prod(shape) * keys > _ELEMENTS:
        return low.amin(-2, keepdim=True), high.amax(-2, keepdim=True)
    places = maybe.unsqueeze(-1)
    least = torch.where(places, low.unsqueeze(-3), math.inf).amin(-2)
    greatest = torch.where(places, high.unsqueeze(-3), -math.inf).amax(-2)
    none = ~maybe.any(-1, keepdim=True)
    return torch.where(none, 0.0, least), torch.where(none, 0.0, greatest)
