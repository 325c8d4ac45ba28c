"""Kernels of support vector machines: how similar a row is to each vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import gamma, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.exponential import power
from ranum_falsify.domain.rules.learned.scores import anything, as_scores, logistic
from ranum_falsify.domain.rules.matrix.matmul import matrix_product, sum_scaled
from ranum_falsify.domain.site import Site

_SINGLE = torch.float32

_EXP_ROUNDINGS = 4
"""Error of the C library's exponential, in roundings, beside that of ONNX Runtime's own."""

_DISTANCE_ROUNDINGS = 4
"""Of a squared difference times gamma besides those of the sum: difference (twice, squared), square, product."""

_LEAST_PROBABILITY = 1e-7
"""Kernels keep pairwise probabilities this far from 0 and 1."""

_COUPLING_ERROR = 1e-3
"""Bounds of coupled probabilities of two classes are this far outside [0, 1].

Kernels iterate, twice at most; a sweep over all shares that float32 has stays between 0 and 1.
"""


def similarities(
    site: Site, x: Interval, vectors: Tensor, kind: str, parameters: Sequence[float], constant: float = 0.0
) -> Interval:
    """Bound the kernel's values, `(rows, vectors)`.

    Args:
        site: The node.
        x: Rows of features, float32.
        vectors: `(vectors, features)`, float32.
        kind: LINEAR, POLY, RBF or SIGMOID.
        parameters: Factor, constant and exponent of the kernel.
        constant: What a linear kernel adds.
    """
    shape = (x.shape[0], len(vectors))
    if x.may_be_infinite:
        return anything(shape)
    factor, added, exponent = (float(np.float32(p)) for p in parameters)
    if kind == "RBF":
        return _gaussian(site, x, vectors, factor)
    transposed = Interval.point(vectors.T.contiguous())
    if kind == "LINEAR":
        bias = None if constant == 0 else Interval.fill(constant, constant, (1,), _SINGLE)
        return matrix_product(x, transposed, bias)
    product = matrix_product(x, transposed)
    bias = None if added == 0 else Interval.fill(added, added, (1, 1), _SINGLE)
    inner = sum_scaled(product, factor, bias, 1.0)
    inner = replace(inner, shape=shape, overflows=inner.overflows or product.may_be_infinite)
    if inner.may_be_infinite or inner.nan:
        return anything(shape)
    if kind == "SIGMOID":
        low, high = (end.tanh() for end in inner.doubles())
        return round_outward(low, high, _SINGLE, shape, site.envelope("Tanh", _SINGLE))
    y = power(as_scores(site, shape), inner, Interval.fill(exponent, exponent, (1, 1), _SINGLE))
    assert isinstance(y, Interval), "a power has one output"
    return replace(y, shape=shape)


def _gaussian(site: Site, x: Interval, vectors: Tensor, factor: float) -> Interval:
    low, high = (end.expand(end.shape[0], x.shape[1])[:, None] for end in x.doubles())
    points = vectors.double()
    below, above = low - points, high - points
    size = torch.maximum(below.abs(), above.abs())
    least = torch.where((below <= 0) & (above >= 0), 0.0, torch.minimum(below.abs(), above.abs()))
    error = gamma(x.shape[1] + _DISTANCE_ROUNDINGS, _SINGLE)
    lost = (x.shape[1] + 1) * tiny(_SINGLE)
    nearest = ((least * least).sum(-1) * (1 - error) - lost).clamp(min=0)
    farthest = (size * size).sum(-1) * (1 + error) + lost
    shape = (x.shape[0], len(vectors))
    # Where the distance overflows, the exponential is 0 or infinite, or, if its factor is 0, NaN.
    beyond = bool((farthest >= torch.finfo(_SINGLE).max).any())
    if beyond and factor <= 0:
        return anything(shape)
    farthest = torch.where(farthest >= torch.finfo(_SINGLE).max, math.inf, farthest)
    exponents = (-factor * farthest, -factor * nearest) if factor > 0 else (-factor * nearest, -factor * farthest)
    ends = [end * (1 + side * end.sign() * 2 * unit(_SINGLE)) for end, side in zip(exponents, (-1, 1), strict=True)]
    kernel = site.envelope("Exp", _SINGLE)
    widened = Envelope(kernel.relative + _EXP_ROUNDINGS * unit(_SINGLE), kernel.absolute, 0.0)
    y = round_outward(ends[0].exp(), ends[1].exp(), _SINGLE, shape, widened)
    return replace(y, overflows=beyond and factor <= 0)


# probabilities --------------------------------------------------------------------------------------------------


def pair_probabilities(site: Site, scores: Interval, factors: Tensor, constants: Tensor) -> Interval:
    """Bound the probability of the first class of each pair, 1 - logistic(score * factor + constant)."""
    if scores.may_be_infinite or scores.nan:
        return anything(scores.shape)
    low, high = scores.doubles()
    corners = torch.stack([low * factors.double(), high * factors.double()])
    least, greatest = corners.amin(0) + constants.double(), corners.amax(0) + constants.double()
    error = 4 * unit(_SINGLE) * (corners.abs().amax(0) + constants.double().abs()) + 2 * tiny(_SINGLE)
    inner = round_outward(least - error, greatest + error, _SINGLE, scores.shape)
    share = logistic(site, inner)
    if share.nan:
        return anything(scores.shape)
    low, high = (1 - end for end in reversed(share.doubles()))
    limit = _LEAST_PROBABILITY
    return round_outward(
        low.clamp(limit, 1 - limit) - limit / 2, high.clamp(limit, 1 - limit) + limit / 2, _SINGLE, scores.shape
    )


def couple(shares: Interval, classes: int) -> Interval:
    """Bound the probabilities of classes that kernels find by iteration from those of pairs.

    Nothing is known of more than two classes: where pairs are decided clearly, the iteration divides by numbers that
    consist of rounding errors.
    """
    shape = (shares.shape[0], classes)
    if classes > 2 or shares.nan:
        return anything(shape)
    return Interval.fill(-_COUPLING_ERROR, 1 + _COUPLING_ERROR, shape, _SINGLE)
