"""Attention of several heads, in the form that ONNX Runtime's optimiser writes: projections, a mask, no past."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.arithmetic.pairs import add
from ranum_falsify.domain.rules.matrix.matmul import matrix_product, sum_scaled
from ranum_falsify.domain.rules.softmax import softmax
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.domain.slack import growth
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.support.families import opaque
from ranum_falsify.operators.support.microsoft_schemas import DOMAIN, FLOATS, schema

__all__ = ["FusedAttention"]


def _check(op: Operation, mask: Tensor | Interval | None) -> None:
    """Refuse forms that the optimiser does not write.

    Raises:
        UnsupportedAttributeError: The node has one of these forms.
    """
    given = {name: getattr(op, name) for name in ("unidirectional", "do_rotary", "qkv_hidden_sizes")}
    for name, value in given.items():
        if value not in (None, 0):
            raise UnsupportedAttributeError(f"{DOMAIN}::Attention: {name} is not supported; leave it out")
    if mask is not None and len(mask.shape) != 2:
        raise UnsupportedAttributeError(
            f"{DOMAIN}::Attention: a mask of {len(mask.shape)} dimensions is not supported; use (batch, sequence)"
        )


def _scale(op: Operation, size: int) -> float:
    """Return the factor of the scores: 1 / sqrt(head size) unless another is given."""
    return float(op.scale) if op.scale else 1 / math.sqrt(size)


def _heads(op: Operation, x: Tensor, number: int) -> Tensor:
    """Return the queries (0), keys (1) or values (2) among projections `(batch, sequence, 3 hidden)`, by head."""
    chosen: Tensor = x.chunk(3, -1)[number]
    return chosen.reshape(*chosen.shape[:-1], op.num_heads, -1).transpose(1, 2)


def _join(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def _attention(op: Operation, x: Tensor, weights: Tensor, bias: Tensor | None, mask: Tensor | None) -> Tensor:
    _check(op, mask)
    projected = x @ weights
    projected = projected if bias is None else projected + bias
    q, k, v = (_heads(op, projected, number) for number in range(3))
    scores = q @ k.mT * _scale(op, q.shape[-1])
    if mask is not None:
        scores = scores + torch.where(mask > 0, 0.0, float(op.mask_filter_value))[:, None, None].to(scores.dtype)
    return _join(torch.softmax(scores, -1) @ v)


_softmax = softmax(lambda op, rank: (rank - 1,), "Softmax")


def _mask(site: Site, scores: Interval, mask: Interval, terms: int) -> Interval:
    """Return bounds of scores plus the filter value, or of sums that start from it, where the mask is not above 0."""
    value = float(np.float32(site.op.mask_filter_value))
    seen, hidden = mask.lower > 0, mask.upper <= 0
    error = growth(terms + 2, scores.dtype) * abs(value)
    low = torch.where(seen, 0.0, min(value, 0.0) - error).to(scores.dtype)
    low = torch.where(hidden, value - error, low)
    high = torch.where(hidden, value + error, torch.where(seen, 0.0, max(value, 0.0) + error))
    shape = (mask.shape[0], 1, 1, mask.shape[1])
    low, high = (end.to(scores.dtype)[:, None, None] for end in (low, high))
    return add(site, scores, Interval.of(low, high, shape))


@infinity_aware
def _attention_bounds(
    site: Site, x: Interval, weights: Interval, bias: Interval | None, mask: Interval | None
) -> Interval:
    op = site.op
    _check(op, mask)
    projected = matrix_product(x, weights, bias)
    q, k, v = (projected.move(lambda t, n=number: _heads(op, t, n)) for number in range(3))  # type: ignore[misc]
    size = q.shape[-1]
    scores = sum_scaled(matrix_product(q, k, transposed=(False, True)), _scale(op, size), None, 0.0)
    if mask is not None:
        scores = _mask(site, scores, mask, size)
    if any(y.nan or y.overflows or y.may_be_infinite for y in (projected, scores)):
        return replace(Interval.fill(-math.inf, math.inf, site.shape, site.dtype), nan=True, overflows=True)
    shares = _softmax(site, scores)
    assert isinstance(shares, Interval)
    return matrix_product(shares, v).move(_join)


@opaque(
    schema=schema(
        "Attention",
        "input:T weights:T bias:T? mask_index:M?",
        "Y:T",
        {"T": FLOATS, "M": ("int32",)},
        defaults={"unidirectional": 0, "mask_filter_value": -10000.0, "do_rotary": 0},
        kinds={"num_heads": "int?", "scale": "float?", "qkv_hidden_sizes": "ints?"},
    ),
    torch=_attention,
    interval=_attention_bounds,
    kernel=("Exp", "Softmax"),
    valid=(),
    operands=("x", "weights", "bias", "mask"),
    renamed={"input": "x", "mask_index": "mask"},
)
class FusedAttention(Operation):
    """Projections of one tensor, scores, a mask and a weighted sum, for each head."""
