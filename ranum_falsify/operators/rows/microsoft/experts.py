"""Mixtures of experts: of each token, a weighted sum of what the experts make of it that a router prefers."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.arithmetic.pairs import multiply
from ranum_falsify.domain.rules.attention import bound_anything_of
from ranum_falsify.domain.rules.matrix.matmul import matrix_product
from ranum_falsify.domain.rules.shape import reshape
from ranum_falsify.domain.site import Site
from ranum_falsify.domain.slack import gamma, unit
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.support.families import plain
from ranum_falsify.operators.support.microsoft_parts import bound_part, evaluate_part, part
from ranum_falsify.operators.support.microsoft_schemas import DOMAIN, FLOATS, schema

__all__ = ["MoE"]

_ACTIVATIONS = {
    "relu": ("Relu", {}),
    "silu": ("Swish", {}),
    "gelu": ("Gelu", {"approximate": "tanh"}),
    "identity": ("Identity", {}),
}
_GATED = "swiglu"


def _check(op: Operation, other: object, count: int) -> None:
    """Refuse forms that ONNX Runtime's kernel for the CPU does not run, or not as it is defined.

    Raises:
        UnsupportedAttributeError: The node has one of these forms.
    """
    limit = math.inf if op.swiglu_limit is None else op.swiglu_limit
    gated = op.activation_type == _GATED
    if other is not None or op.use_sparse_mixer or op.k > count or not limit > 0:
        raise UnsupportedAttributeError(
            f"{DOMAIN}::MoE: weights fc3, use_sparse_mixer, a swiglu_limit of 0, and a k beyond the experts, "
            "are not supported"
        )
    if op.activation_type not in _ACTIVATIONS and not (gated and op.swiglu_fusion == 1):
        raise UnsupportedAttributeError(f"{DOMAIN}::MoE: activation_type {op.activation_type!r} is not supported here")


# values ---------------------------------------------------------------------------------------------------------


def _activate(op: Operation, h: Tensor) -> Tensor:
    if op.activation_type != _GATED:
        name, fields = _ACTIVATIONS[op.activation_type]
        return evaluate_part(part(op, name, fields), h)
    limit = math.inf if op.swiglu_limit is None else float(op.swiglu_limit)
    gate, other = h[..., 0::2].clamp(max=limit), h[..., 1::2].clamp(-limit, limit)
    y: Tensor = gate * torch.sigmoid(op.activation_alpha * gate) * (other + op.activation_beta)
    return y


def _weigh(op: Operation, router: Tensor) -> Tensor:
    """Return the weight of each expert for each token: 0 for those that are not chosen."""
    shares = router.softmax(-1)
    chosen = torch.zeros_like(shares).scatter(-1, shares.topk(op.k, -1).indices, 1.0)
    weights = shares * chosen
    return weights / weights.sum(-1, keepdim=True) if op.normalize_routing_weights else weights


def _experts(
    op: Operation,
    x: Tensor,
    router: Tensor,
    w1: Tensor,
    b1: Tensor | None,
    w2: Tensor,
    b2: Tensor | None,
    w3: Tensor | None,
    b3: Tensor | None,
) -> Tensor:
    _check(op, w3, len(w1))
    tokens = x.reshape(-1, x.shape[-1])
    hidden = torch.einsum("th,eih->tei", tokens, w1)
    hidden = _activate(op, hidden if b1 is None else hidden + b1)
    y = torch.einsum("tei,ehi->teh", hidden, w2)
    y = y if b2 is None else y + b2
    weights = _weigh(op, router.reshape(len(tokens), -1))
    return (y * weights[..., None]).sum(1).reshape(x.shape)


# bounds ---------------------------------------------------------------------------------------------------------

_NEAR = 1e-3
"""Differences of the router's numbers above this are differences of their softmax, unless both vanish there."""


def _activate_bounds(site: Site, h: Interval) -> Interval:
    """Bound an activation, which kernels compute with an error of a few roundings of its operand."""
    op, count = site.op, h.shape[-1]
    if op.activation_type == _GATED:
        h = h.split(len(h.shape) - 1)
        limit = torch.finfo(h.dtype).max if op.swiglu_limit is None else float(op.swiglu_limit)
        gate, other = (h.move(lambda bound, i=i: bound[..., i:count:2]) for i in range(2))  # type: ignore[misc]
        gate, other = gate.clamp(-math.inf, limit), other.clamp(-limit, limit)
        swish = _stray(bound_part(site, part(op, "Swish", {"alpha": op.activation_alpha}), gate), gate)
        low, high = (end + op.activation_beta for end in other.doubles())
        error = 2 * unit(h.dtype) * (torch.maximum(low.abs(), high.abs()) + abs(op.activation_beta))
        return multiply(site, swish, round_outward(low - error, high + error, h.dtype, other.shape))
    name, fields = _ACTIVATIONS[op.activation_type]
    y = bound_part(site, part(op, name, fields), h)
    return y if op.activation_type in ("relu", "identity") else _stray(y, h)


def _stray(y: Interval, x: Interval) -> Interval:
    size = torch.maximum(*(end.abs() for end in x.doubles()))
    error = 16 * unit(x.dtype) * size + 2.0**-120
    low, high = y.doubles()
    return replace(round_outward(low - error, high + error, y.dtype, y.shape), nan=y.nan, overflows=y.overflows)


def _may_choose(router: Interval, count: int) -> Tensor:
    """Return which experts may be among those that a router prefers, `(experts, tokens, 1)`."""
    low, high = (end.expand(router.shape).double() for end in (router.lower, router.upper))
    above = (low[:, None, :] > high[:, :, None] + _NEAR + 1e-6 * high[:, :, None].abs()).sum(-1)
    return (above < count).T[..., None]


def _bounds(
    site: Site,
    x: Interval,
    router: Interval,
    w1: Interval,
    b1: Interval | None,
    w2: Interval,
    b2: Interval | None,
    w3: Interval | None,
    b3: Interval | None,
) -> Interval:
    op, experts = site.op, w1.shape[0]
    _check(op, w3, experts)
    if not x.size:
        return Interval.fill(0, 0, x.shape, x.dtype)
    tokens = reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    ends = []
    for number in range(experts):
        first, shift, second, last = (
            None if t is None else t.move(lambda bound, e=number: bound[e])  # type: ignore[misc]
            for t in (w1, b1, w2, b2)
        )
        assert first is not None and second is not None
        hidden = matrix_product(tokens, first, shift, transposed=(False, True))
        active = hidden if _fails(hidden) else _activate_bounds(site, hidden)
        y = active if _fails(active) else matrix_product(active, second, last, transposed=(False, True))
        if _fails(y):
            return bound_anything_of(x.shape, x.dtype)
        ends.append([end.double() for end in y.expand()])
    low, high = (torch.stack(column) for column in zip(*ends, strict=True))
    return _mix(op, low, high, reshape(router, (tokens.shape[0], experts)), x)


def _fails(y: Interval) -> bool:
    return y.nan or y.overflows or y.may_be_infinite


def _mix(op: Operation, low: Tensor, high: Tensor, router: Interval, x: Interval) -> Interval:
    """Return bounds of weighted sums of the experts' results, `(experts, tokens, size)`.

    Weights add up to 1, or to less where they are those of a softmax over more experts.
    """
    experts = len(low)
    maybe = _may_choose(router, op.k)
    least, greatest = torch.where(maybe, low, math.inf).amin(0), torch.where(maybe, high, -math.inf).amax(0)
    if not op.normalize_routing_weights and op.k < experts:
        least, greatest = least.clamp(max=0), greatest.clamp(min=0)
    size = torch.where(maybe, torch.maximum(low.abs(), high.abs()), 0).amax(0)
    error = gamma(2 * experts + op.k + 32, x.dtype) * size + 2.0**-120
    return round_outward((least - error).reshape(x.shape), (greatest + error).reshape(x.shape), x.dtype, x.shape)


@plain(
    schema=schema(
        "MoE",
        "input:T router_probs:T fc1_experts_weights:T fc1_experts_bias:T? fc2_experts_weights:T fc2_experts_bias:T?"
        " fc3_experts_weights:T? fc3_experts_bias:T?",
        "output:T",
        {"T": FLOATS},
        defaults={
            "k": 1,
            "activation_type": "relu",
            "normalize_routing_weights": 0,
            "use_sparse_mixer": 0,
            "swiglu_fusion": 0,
            "activation_alpha": 1.0,
            "activation_beta": 0.0,
        },
        kinds={"swiglu_limit": "float?"},
    ),
    torch=_experts,
    interval=_bounds,
    operands=("x", "router", "w1", "b1", "w2", "b2", "w3", "b3"),
    renamed={
        "input": "x",
        "router_probs": "router",
        **{f"fc{i}_experts_weights": f"w{i}" for i in (1, 2, 3)},
        **{f"fc{i}_experts_bias": f"b{i}" for i in (1, 2, 3)},
    },
)
class MoE(Operation):
    """A weighted sum of what a few of several experts, of two layers each, make of a token."""
