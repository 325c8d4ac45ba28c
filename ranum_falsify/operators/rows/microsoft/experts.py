"""Mixtures of experts: of each token, a weighted sum of what the experts make of it that a router prefers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input
from torch import Tensor

from ranum_falsify.domain.error_bounds import gamma, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.arithmetic.pairs import multiply
from ranum_falsify.domain.rules.attention import bound_anything_of
from ranum_falsify.domain.rules.matrix.matmul import matrix_product
from ranum_falsify.domain.rules.shape import reshape
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.rows.microsoft.blocks import bound_block_product, unpack
from ranum_falsify.operators.support.families import opaque
from ranum_falsify.operators.support.microsoft import FLOATS, bound_part, evaluate_part, part, refused, schema

_ACTIVATIONS = {
    "relu": ("Relu", {}),
    "silu": ("Swish", {}),
    "gelu": ("Gelu", {"approximate": "tanh"}),
    "identity": ("Identity", {}),
}
_GATED = "swiglu"


def _check(op: Operation, other: object, count: int) -> None:
    """Refuse forms that ONNX Runtime's kernel for the CPU does not run, or not as it is defined."""
    limit = math.inf if op.swiglu_limit is None else op.swiglu_limit
    gated = op.activation_type == _GATED
    if other is not None or op.use_sparse_mixer or op.k > count or not limit > 0:
        forms = "weights fc3, use_sparse_mixer, a swiglu_limit of 0, and a k beyond the number of experts"
        raise refused(op, f"{forms} are not supported")
    if not math.isfinite(op.activation_alpha + op.activation_beta):
        raise refused(op, "activation_alpha and activation_beta are to be finite numbers")
    if op.swiglu_fusion != gated or not (gated or op.activation_type in _ACTIVATIONS):
        form = f"activation_type {op.activation_type!r} with swiglu_fusion {op.swiglu_fusion}"
        raise refused(op, f"{form} is not supported")


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
    # The kernel of QMoE leaves the attribute unread.
    normalises = op.normalize_routing_weights or isinstance(op, QMoE)
    return weights / weights.sum(-1, keepdim=True) if normalises else weights


def _experts(op: Operation, x: Tensor, router: Tensor, *layers: Any) -> Tensor:
    *two, third, _ = layers
    _check(op, third, len(layers[0]))
    return _mix_values(op, x, router, *two)


def _mix_values(
    op: Operation, x: Tensor, router: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None
) -> Tensor:
    """Return the weighted sum of what experts make of tokens."""
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


def _bounds(site: Site, x: Interval, router: Interval, *layers: Any) -> Interval:
    w1, b1, w2, b2, w3, _ = layers
    _check(site.op, w3, w1.shape[0])
    if isinstance(site.op.x, Operation) and not isinstance(site.op.x, Input):
        # ONNX Runtime may have the kernel write over what it still reads, if nothing else reads it later.
        return bound_anything_of(x.shape, x.dtype)

    def apply(tokens: Interval, layer: int, expert: int) -> Interval:
        weights = (w1, w2)[layer].move(lambda bound: bound[expert])
        return matrix_product(tokens, weights, _choose((b1, b2)[layer], expert), transposed=(False, True))

    return _bound_experts(site, x, router, w1.shape[0], apply)


_Layer = Callable[[Interval, int, int], "Interval | None"]
"""`layer(tokens, number, expert)`: bounds of the first or second layer of an expert; None where nothing is known."""


def _choose(x: Interval | None, number: int) -> Interval | None:
    return None if x is None else x.move(lambda bound: bound[number])


def _bound_experts(site: Site, x: Interval, router: Interval, experts: int, apply: _Layer) -> Interval:
    """Return bounds of the weighted sum of what experts make of tokens."""
    if not x.size:
        return Interval.fill(0, 0, x.shape, x.dtype)
    tokens = reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    ends = []
    for expert in range(experts):
        y: Interval | None = apply(tokens, 0, expert)
        y = None if y is None or _fails(y) else _activate_bounds(site, y)
        y = None if y is None or _fails(y) else apply(y, 1, expert)
        if y is None or _fails(y):
            return bound_anything_of(x.shape, x.dtype)
        ends.append([end.double() for end in y.expand()])
    low, high = (torch.stack(column) for column in zip(*ends, strict=True))
    return _mix(site.op, low, high, reshape(router, (tokens.shape[0], experts)), x)


def _fails(y: Interval) -> bool:
    return y.nan or y.overflows or y.may_be_infinite


def _mix(op: Operation, low: Tensor, high: Tensor, router: Interval, x: Interval) -> Interval:
    """Return bounds of weighted sums of the experts' results, `(experts, tokens, size)`.

    Weights add up to 1, or to less where they are those of a softmax over more experts.
    """
    experts = len(low)
    maybe = _may_choose(router, op.k)
    least, greatest = torch.where(maybe, low, math.inf).amin(0), torch.where(maybe, high, -math.inf).amax(0)
    # In half precision, ONNX Runtime gives 0 where weights are not normalised.
    if not op.normalize_routing_weights and (op.k < experts or x.dtype is torch.float16):
        least, greatest = least.clamp(max=0), greatest.clamp(min=0)
    size = torch.where(maybe, torch.maximum(low.abs(), high.abs()), 0).amax(0)
    error = gamma(2 * experts + op.k + 32, x.dtype) * size + 2.0**-120
    return round_outward((least - error).reshape(x.shape), (greatest + error).reshape(x.shape), x.dtype, x.shape)


_KERNELS = ("Gelu tanh", "Swish")
_ATTRIBUTES: dict[str, int | float | str] = {
    "k": 1,
    "activation_type": "relu",
    "normalize_routing_weights": 0,
    "use_sparse_mixer": 0,
    "swiglu_fusion": 0,
    "activation_alpha": 1.0,
    "activation_beta": 0.0,
}


@opaque(
    schema=schema(
        "MoE",
        "input:T router_probs:T fc1_experts_weights:T fc1_experts_bias:T? fc2_experts_weights:T fc2_experts_bias:T?"
        " fc3_experts_weights:T? fc3_experts_bias:T?",
        "output:T",
        {"T": FLOATS},
        defaults=_ATTRIBUTES,
        kinds={"swiglu_limit": "float?"},
    ),
    torch=_experts,
    interval=_bounds,
    kernel=_KERNELS,
    valid=(),
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


# quantised ------------------------------------------------------------------------------------------------------

_LAYERS = (("w1", "s1", "z1"), ("w2", "s2", "z2"))
_BESIDE = ("w3", "s3", "b3", "z3", "router_weights", "global_1", "global_2", "act_1", "act_2", "block_1", "block_2")
_QUANTISED = (
    *("x", "router", "w1", "s1", "b1", "w2", "s2", "b2", "w3", "s3", "b3", "z1", "z2", "z3"),
    *("router_weights", "global_1", "global_2", "act_1", "act_2", "block_1", "block_2"),
)
_FORMAL = (
    "input:T router_probs:T fc1_experts_weights:U fc1_scales:T? fc1_experts_bias:T? fc2_experts_weights:U fc2_scales:T?"
    " fc2_experts_bias:T? fc3_experts_weights:U? fc3_scales:T? fc3_experts_bias:T? fc1_zero_points:U?"
    " fc2_zero_points:U? fc3_zero_points:U? router_weights:T? fc1_global_scale:T? fc2_global_scale:T? fc1_act_scale:T?"
    " fc2_act_scale:T? fc1_act_block_scale:T? fc2_act_block_scale:T?"
)


def _check_quantised(op: Operation, given: Mapping[str, Any]) -> None:
    """Refuse forms that ONNX Runtime's kernel for the CPU does not run, or not as they are defined."""
    _check(op, None, given["w1"].shape[0])
    if {len(given[name].shape) for name in ("w1", "w2")} != {3}:
        raise refused(op, "weights of other than 3 dimensions are not supported")
    mixed = {getattr(op, f"fc{i}_expert_weight_bits") for i in (1, 2, 3)} - {None, op.expert_weight_bits}
    missing = any(given[name] is None for name in ("s1", "s2"))
    if mixed or missing or op.quant_type != "int" or any(given[name] is not None for name in _BESIDE):
        raise refused(op, "other operands than two layers of integers of one width, with scales, are not supported")
    if {len(given[name].shape) for name in ("s1", "s2")} != {3 if op.block_size else 2}:
        raise refused(op, "only scales by column, or by block of a column, are supported")


def _read_layer(op: Operation, weights: Tensor, scales: Tensor, zeros: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return integers, zero points and scales of all elements, `(..., n, k)` and float64."""
    bits = op.expert_weight_bits
    integers = unpack(weights, bits).double()
    n, k = integers.shape[-2:]
    count = k // op.block_size if op.block_size else 1
    sizes = scales.double().reshape(*scales.shape[:1], n, count)
    points = torch.full_like(sizes, float(2 ** (bits - 1)))
    if zeros is not None:
        numbers = unpack(zeros, bits).double()
        points = numbers[..., :count] if op.block_size else numbers[..., :n, None]
    return integers, *(x.repeat_interleave(k // count, -1) for x in (points, sizes))  # type: ignore[return-value]


def _quantised(op: Operation, *operands: Tensor | None) -> Tensor:
    given: dict[str, Any] = dict(zip(_QUANTISED, operands, strict=True))
    _check_quantised(op, given)
    weights = []
    for names in _LAYERS:
        integers, points, sizes = _read_layer(op, *(given[name] for name in names))
        weights.append(((integers - points) * sizes).to(given["x"].dtype))
    return _mix_values(op, given["x"], given["router"], weights[0], given["b1"], weights[1], given["b2"])


def _quantised_bounds(site: Site, *operands: Interval | None) -> Interval:
    op, given = site.op, dict[str, Any](zip(_QUANTISED, operands, strict=True))
    _check_quantised(op, given)
    x, fixed = given["x"], [given[name] for names in _LAYERS for name in names if given[name] is not None]
    # What the kernel makes of zero points of one layer alone is not known: some columns differ from any reading.
    alike = len({given[names[-1]] is None for names in _LAYERS}) == 1
    if x.dtype is not torch.float32 or not alike or not all(part.is_point for part in fixed):
        return bound_anything_of(x.shape, x.dtype)
    biases = given["b1"], given["b2"]

    def apply(tokens: Interval, layer: int, expert: int) -> Interval | None:
        parts = (given[name] and given[name].expand()[0][expert : expert + 1] for name in _LAYERS[layer])
        integers, points, sizes = (part[0] for part in _read_layer(op, *parts))
        length = op.block_size or tokens.shape[1]
        return bound_block_product(tokens, integers, points, sizes, _choose(biases[layer], expert), length)

    return _bound_experts(site, x, given["router"], given["w1"].shape[0], apply)


@opaque(
    schema=schema(
        "QMoE",
        _FORMAL,
        "output:T",
        {"T": FLOATS, "U": ("uint8",)},
        defaults=_ATTRIBUTES
        | {"expert_weight_bits": 4, "quant_type": "int", "accuracy_level": 0}
        | {"weights_prepacked": -1},
        kinds={
            "swiglu_limit": "float?",
            "block_size": "int?",
            **{f"fc{i}_expert_weight_bits": "int?" for i in (1, 2, 3)},
        },
    ),
    torch=_quantised,
    interval=_quantised_bounds,
    kernel=_KERNELS,
    valid=(),
    operands=_QUANTISED,
    renamed={text.split(":")[0]: name for text, name in zip(_FORMAL.split(), _QUANTISED, strict=True)},
)
class QMoE(Operation):
    """`MoE` with experts of quantised weights."""
