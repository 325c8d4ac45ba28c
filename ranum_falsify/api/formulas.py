"""Operators that PyTorch has kernels for, in PyTorch's other operators, as these kernels compute them.

Each takes what its operator takes, and computes what its kernel does but for rounding: no step overflows, or gives NaN,
where that of the kernel does not.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._decomp import decomposition_table
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from ranum_falsify.api.derivatives import list_derivatives, score, share_heads
from ranum_falsify.api.fidelity import HALVES

_NONE, _MEAN = 0, 1
"""What PyTorch's losses make of their elements; any other number for the sum."""


def list_formulas(*, of_torch: bool = True) -> dict[Any, Callable[..., Any]]:
    """Return the functions by operator, forward and backward.

    Args:
        of_torch: Whether they say what PyTorch computes where the exporter writes something less valid.
    """
    aten = torch.ops.aten
    return {
        **list_derivatives(),
        aten._trilinear.default: _multiply_three,
        aten._safe_softmax.default: _safe_softmax,
        **dict.fromkeys((aten.add.Tensor, aten.add.Scalar), _add),
        **dict.fromkeys((aten.sub.Tensor, aten.sub.Scalar), lambda x, y, alpha=1: _add(x, y, -alpha)),
        **dict.fromkeys((aten.rsub.Tensor, aten.rsub.Scalar), _subtract_from),
        **dict.fromkeys((aten.div.Tensor_mode, aten.div.Scalar_mode), _divide),
        **{
            getattr(getattr(aten, name), overload): partial(formula, getattr(aten, name).Tensor)
            for names, formula in (("mul div", _scale), ("eq ne lt le gt ge", _compare))
            for name, overload in itertools.product(names.split(), ("Tensor", "Scalar"))
        },
        aten.addcdiv.default: _add_quotient,
        **{function: partial(_compute_wide, function) for function in _list_wide()},
        aten.conv3d.default: _convolve,
        aten.native_layer_norm.default: _normalise_layers,
        aten.clamp.default: _clamp,
        aten.mse_loss.default: _squared_error,
        aten.smooth_l1_loss.default: _smooth_l1,
        aten.huber_loss.default: _huber,
        # The exporter leaves out the sum of weights.
        **{op: decomposition_table[op] for op in (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)},
        aten.cumprod.default: _accumulate_products,
        aten.empty_permuted.default: _clear,
        aten.index_put.default: _put,
        aten.cross_entropy_loss.default: _cross_entropy_of_shares,
        aten.multi_margin_loss.default: _multi_margin_loss,
        aten.multi_margin_loss_backward.default: _multi_margin_loss_backward,
        aten.multilabel_margin_loss_backward.default: _multilabel_margin_loss_backward,
        aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
        aten.scaled_dot_product_attention.default: partial(_attention_whole, of_torch=of_torch),
        aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
        aten.std.correction: _deviation,
        aten.std.default: lambda x, unbiased=True: _deviation(x, correction=int(unbiased)),
        aten.std.dim: lambda x, dim, unbiased=True, keepdim=False: _deviation(x, dim, int(unbiased), keepdim),
        aten.std_mean.correction: _deviation_and_mean,
    }


def _multiply_three(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    expand_x: Sequence[int],
    expand_y: Sequence[int],
    expand_z: Sequence[int],
    summed: Sequence[int],
    unrolled: int = 1,
) -> Tensor:
    """Return the products of three tensors, added up, as bilinear layers and their derivatives take them."""
    for dims, i in ((expand_x, 0), (expand_y, 1), (expand_z, 2)):
        for dim in sorted(dims):
            x, y, z = (t.unsqueeze(dim) if k == i else t for k, t in enumerate((x, y, z)))
    found: Tensor = (x * y * z).sum(list(summed)) if summed else x * y * z
    return found


def _put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    """Return `x` after `x[mask] = number`, without the list of places that the exporter makes of a mask."""
    given = [(place, index) for place, index in enumerate(indices) if index is not None]
    place, mask = given[0]
    if accumulate or len(given) > 1 or mask.dtype is not torch.bool or values.numel() != 1 or values.dim() > 1:
        return NotImplemented
    for _ in range(x.dim() - place - mask.dim()):
        mask = mask.unsqueeze(-1)
    return torch.where(mask, values if values.dim() == 0 else values.squeeze(0), x)


def _clear(size: Sequence[int], order: Sequence[int], **options: Any) -> Tensor:
    """What is not initialised may be 0."""
    return torch.zeros(size, dtype=options.get("dtype"), device=options.get("device"))


def _normalise_layers(x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    if x.dtype is not torch.float64:
        return NotImplemented
    # ONNX's has its mean and deviation in float32.
    dims = list(range(-len(shape), 0))
    mean = x.mean(dims, keepdim=True)
    scale = torch.rsqrt((x - mean).square().mean(dims, keepdim=True) + eps)
    y = (x - mean) * scale
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, mean, scale


def _accumulate_products(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """Return the products of what comes before, and of each element, which the kernel keeps in float64."""
    steps = x.unbind(dim) if x.dim() else ()
    if x.dtype not in (torch.float32, *HALVES) or dtype not in (None, x.dtype) or not 0 < len(steps) <= _MANY_FACTORS:
        return NotImplemented
    wide = (step.double() for step in steps)
    return torch.stack([product.to(x.dtype) for product in itertools.accumulate(wide, operator.mul)], dim)


_MANY_FACTORS = 64
"""Of more factors products are not written one by one."""


def _list_wide() -> list[Any]:
    """Return operators whose kernels compute in float32 what is in half precision, Python's numbers included."""
    aten = torch.ops.aten
    return [aten.addcmul.default, aten.lerp.Scalar, aten.lerp.Tensor, aten.sinc.default, aten.softplus.default]


def _compute_wide(function: Callable[..., Any], *operands: Any, **options: Any) -> Any:
    _, dtype = _find_types(*(x for x in operands if isinstance(x, Tensor)))
    if dtype not in HALVES:
        return NotImplemented
    wide = (x.float() if isinstance(x, Tensor) and x.is_floating_point() else x for x in operands)
    return function(*wide, **options).to(dtype)


def _find_types(*tensors: Tensor) -> tuple[torch.dtype, torch.dtype]:
    """Return the types that an operator of numbers computes in and returns."""
    return elementwise_dtypes(*tensors, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)


def _add(x: Any, y: Any, alpha: float = 1) -> Any:
    """Return x + alpha y, which vectors round once; the exporter writes a product and a sum."""
    dtype = torch.result_type(x, y)
    if abs(alpha) == 1 or dtype not in (torch.float32, torch.float64):
        return NotImplemented
    x, y, scale = (
        torch.ops.aten.full([], z, dtype=dtype) if not isinstance(z, Tensor) else z.to(dtype) for z in (x, y, alpha)
    )
    return torch.addcmul(x, scale, y)


def _scale(function: Callable[..., Tensor], x: Any, y: Any) -> Any:
    """Return a product or quotient of halves and a number, which kernels have in float32."""
    dtype = torch.result_type(x, y)
    if dtype not in HALVES or all(isinstance(z, Tensor) and z.dtype is dtype for z in (x, y)):
        return NotImplemented
    return function(*(z.float() if isinstance(z, Tensor) else z for z in (x, y))).to(dtype)


def _compare(function: Callable[..., Tensor], x: Tensor, y: Any) -> Any:
    """Compare halves with a number, which is one of them for kernels; the exporter compares in float32."""
    dtype = torch.result_type(x, y)
    if dtype not in HALVES or all(z.dtype is dtype if isinstance(z, Tensor) else _is_short(z) for z in (x, y)):
        return NotImplemented
    other = y.to(dtype) if isinstance(y, Tensor) else torch.full([], y, dtype=dtype, device=x.device)
    return function(x.to(dtype), other)


def _is_short(number: float) -> bool:
    """Tell whether a number is one of every type."""
    return abs(number) <= 1 and float(math.ldexp(number, 8)).is_integer()


def _subtract_from(x: Tensor, y: Any, alpha: float = 1) -> Any:
    found = _add(y, x, -alpha)
    return torch._refs.rsub(x, y, alpha=alpha) if found is NotImplemented else found


def _divide(x: Tensor, y: Any, *, rounding_mode: str | None) -> Any:
    # The exporter rounds the quotient before it rounds it down.
    is_floor = rounding_mode == "floor" and torch.result_type(x, y).is_floating_point
    return torch.floor_divide(x, y) if is_floor else NotImplemented


def _add_quotient(x: Tensor, dividend: Tensor, divisor: Tensor, value: float = 1) -> Tensor:
    """Return x + value y / z; the exporter divides first."""
    wide, dtype = _find_types(x, dividend, divisor)
    scaled = dividend.to(wide) if value == 1 else dividend.to(wide) * value
    return (x.to(wide) + scaled / divisor.to(wide)).to(dtype)


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None, *options: Any, **named: Any) -> Any:
    # The exporter makes one of the wrong shape where there is none.
    return NotImplemented if bias is not None else F.conv3d(x, weight, x.new_zeros(len(weight)), *options, **named)


def _reduce(rows: Tensor, reduction: int) -> Tensor:
    return rows if reduction == _NONE else rows.mean() if reduction == _MEAN else rows.sum()


def _clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Any:
    # The exporter has no operator for limits of two types.
    if not x.is_floating_point() or type(low) is type(high) or low is None or high is None:
        return NotImplemented
    return torch.clamp(x, float(low), float(high))


def _squared_error(x: Tensor, target: Tensor, reduction: int = _MEAN) -> Any:
    if torch.result_type(x, target) not in HALVES:
        return NotImplemented
    distance = x - target  # is rounded
    return _reduce(distance * distance, reduction)


def _smooth_l1(x: Tensor, target: Tensor, reduction: int = _MEAN, beta: float = 1.0) -> Any:
    dtype = torch.result_type(x, target)
    if dtype not in HALVES or beta == 0:
        return NotImplemented
    distance, limit = _measure(x, target, beta, wide=dtype is torch.bfloat16)
    each = torch.where(distance < limit, 0.5 * distance * distance / limit, distance - 0.5 * limit)
    return _reduce(each.to(dtype), reduction)


def _huber(x: Tensor, target: Tensor, reduction: int = _MEAN, delta: float = 1.0) -> Any:
    dtype = torch.result_type(x, target)
    if dtype not in HALVES:
        return NotImplemented
    distance, limit = _measure(x, target, delta, wide=dtype is torch.float16)
    each = torch.where(distance <= limit, 0.5 * distance * distance, limit * (distance - 0.5 * limit))
    return _reduce(each.to(dtype), reduction)


def _measure(x: Tensor, target: Tensor, limit: float, *, wide: bool) -> tuple[Tensor, Tensor]:
    """Return how far halves are from a target, and a limit of that, in float32 or rounded, as a kernel has them."""
    given = (x.float(), target.float()) if wide else (x, target)
    distance = (given[0] - given[1]).abs()
    return distance, torch.full([], limit, dtype=distance.dtype, device=x.device)


def _deviation(
    x: Tensor, dim: list[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    # The kernel adds up in float64: of numbers whose squares are 0 in float32, the deviation is not.
    wide = x.double()
    if dim is None or len({i % max(x.dim(), 1) for i in dim}) in (0, x.dim()):
        # That of all elements takes the mean first, which may overflow.
        wide = wide - (x if x.dtype is torch.float64 else x.float()).mean().double()
    variance: Tensor = torch.ops.aten.var.correction(wide, dim, correction=correction, keepdim=keepdim)
    return variance.sqrt().to(x.dtype)


def _deviation_and_mean(
    x: Tensor, dim: list[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    mean = x.mean() if dim is None else x.mean(dim, keepdim=keepdim)
    return _deviation(x, dim, correction, keepdim), mean


def _safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    # The least number in place of -inf: what all of a row is hidden from has shares, too, of which none is taken.
    shares = torch.softmax(x.clamp(min=torch.finfo(x.dtype).min), dim, dtype=dtype)
    return torch.where(x == -torch.inf, 0.0, shares)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return attention, and the logarithm of what its rows are divided by, which the derivative takes."""
    scores, seen = score(query, key, is_causal, attn_mask, scale)
    scores = scores if seen is None else torch.where(seen, scores, -math.inf)
    found = _safe_softmax(scores, -1) @ share_heads(value.to(scores.dtype), query)
    return found.to(query.dtype), torch.logsumexp(scores, -1)


def _attention_whole(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    of_torch: bool,
) -> Any:
    if not dropout_p:
        numbers = attn_mask is not None and attn_mask.dtype is not torch.bool
        if of_torch and numbers and query.dtype not in HALVES:
            # The exporter writes a softmax that is NaN where such a mask hides all of a row.
            return _attention(query, key, value, attn_mask=attn_mask, scale=scale)[0]
        return NotImplemented  # the exporter knows it
    options: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa}
    found: tuple[Tensor, ...] = torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, **options
    )
    return found[0]


def _cross_entropy_of_shares(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    if not target.is_floating_point():
        return NotImplemented  # the exporter knows it
    axis = 1 if x.dim() > 1 else 0
    classes = x.shape[axis]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    found = F.log_softmax(x, axis) * target
    if weight is not None:
        found = found * weight.reshape([classes if i == axis else 1 for i in range(x.dim())])
    rows = x.numel() / classes
    if reduction == _NONE:
        return -found.sum(axis)
    return -found.sum() / rows if reduction == _MEAN else -found.sum()


# margins ----------------------------------------------------------------------------------------------------------


def _margins(
    x: Tensor, target: Tensor, p: float, margin: float, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, float | Tensor]:
    """Return by how much each class comes too near to the right one, which that is, and the weight of each row."""
    rows, right = torch.atleast_2d(x), target.reshape(-1, 1)
    is_right = torch.arange(rows.shape[1], device=x.device) == right
    lacking = torch.where(is_right, 0.0, margin - rows.gather(1, right) + rows)
    return rows, lacking, is_right, 1.0 if weight is None else weight[right]


def _multi_margin_loss(
    x: Tensor,
    target: Tensor,
    p: float = 1,
    margin: float = 1,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    rows, lacking, _, scale = _margins(x, target, p, margin, weight)
    each = lacking.clamp(min=0)
    found = ((each if p == 1 else each * each) * scale).sum(1) / rows.shape[1]
    return _reduce(found.reshape(target.shape), reduction)


def _multi_margin_loss_backward(
    gradient: Tensor,
    x: Tensor,
    target: Tensor,
    p: float,
    margin: float,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    rows, lacking, is_right, scale = _margins(x, target, p, margin, weight)
    share = 1.0 / (rows.numel() if reduction == _MEAN else rows.shape[1])
    slopes = torch.where(lacking > 0, share if p == 1 else 2 * share * lacking, 0.0) * scale
    slopes = torch.where(is_right, -slopes.sum(1, keepdim=True), slopes)
    return (slopes * (gradient.reshape(-1, 1) if reduction == _NONE else gradient)).reshape(x.shape)


def _label_margins(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return by how much each class comes too near to each label, `(rows, labels, classes)`, and which pairs count.

    Also return which class each label is, and which classes are labels. Labels after a negative one are none.
    """
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    counts = (labels < 0).to(torch.int64).cumsum(1) == 0
    classes = torch.arange(rows.shape[1], device=x.device)
    is_class = (labels.unsqueeze(-1) == classes) & counts.unsqueeze(-1)
    is_label = is_class.to(torch.int64).sum(1) > 0
    lacking = 1.0 - rows.gather(1, torch.where(counts, labels, 0)).unsqueeze(-1) + rows.unsqueeze(1)
    return lacking, counts.unsqueeze(-1) & ~is_label.unsqueeze(1), is_class, is_label


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    lacking, counted, _, is_label = _label_margins(x, target)
    found = torch.where(counted, lacking.clamp(min=0), 0.0).sum((1, 2)) / x.shape[-1]
    return _reduce(found.reshape(x.shape[:-1]), reduction), is_label.reshape(target.shape).to(x.dtype)


def _multilabel_margin_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    lacking, counted, is_class, _ = _label_margins(x, target)
    share = 1.0 / (x.numel() if reduction == _MEAN else x.shape[-1])
    slopes = torch.where(counted & (lacking > 0), share, 0.0).to(x.dtype)
    of_labels = (slopes.sum(2, keepdim=True) * is_class.to(x.dtype)).sum(1)
    found = slopes.sum(1) - of_labels
    return (found * (gradient.reshape(-1, 1) if reduction == _NONE else gradient)).reshape(x.shape)
