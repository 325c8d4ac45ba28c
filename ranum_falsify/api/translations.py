"""PyTorch's operators in ONNX as PyTorch computes them, where its exporter writes something else."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from ranum_falsify.api.resampling import list_resampling, op


@cache
def list_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return translations by operator, as `torch.onnx.export` takes them."""
    aten = torch.ops.aten
    return {
        **list_resampling(),
        aten._cdist_backward.default: _cdist_backward,
        aten._cdist_forward.default: _cdist_forward,
        aten.binary_cross_entropy.default: _binary_cross_entropy,
        aten.binary_cross_entropy_backward.default: _binary_cross_entropy_backward,
        aten.addcmul.default: _add_product,
        aten.expm1.default: _expm1,
        **dict.fromkeys((aten.lerp.Scalar, aten.lerp.Tensor), _lerp),
        aten.log1p.default: _log1p,
        aten.log_sigmoid.default: _log_sigmoid,
        aten.logaddexp.default: _log_add_exp,
        aten.logaddexp2.default: _log_add_exp2,
        **dict.fromkeys((aten.remainder.Tensor, aten.remainder.Scalar), _remainder),
        **dict.fromkeys((aten.floor_divide.default, aten.floor_divide.Scalar), _floor_divide),
        aten.select_scatter.default: _select_scatter,
        aten.special_entr.default: _entropy,
        aten.xlogy.Tensor: _times_logarithm,
        aten._native_batch_norm_legit_functional.default: _batch_norm,
        aten._native_batch_norm_legit.no_stats: _batch_norm_without_statistics,
        **{operator: partial(_refuse, operator) for operator in _list_others()},
    }


def _list_others() -> list[Any]:
    """Return operators whose kernels compute something else than any composition of ONNX's operators that is known."""
    aten = torch.ops.aten
    # Of small results a difference, as the exporter writes it, keeps nothing.
    return [aten.erfc.default, aten.special_erfcx.default, aten.special_log_ndtr.default]


def _refuse(operator: Any, *operands: Any, **attributes: Any) -> Any:
    raise NotImplementedError(f"{operator}: nothing in ONNX has its results; write it with other operators")


def _number(value: float, like: Any) -> Any:
    return op.CastLike(float(value), like)


_MEAN, _SUM = 1, 2
"""What PyTorch's losses make of their elements; 0 for nothing."""

_NEVER_BY_PRODUCT, _FEW_ROWS = 2, 25
"""PyTorch takes distances of more rows from a matrix product, whose squares may overflow, unless told never to."""

_LEAST_ROOT = 3e-23
"""No root of a positive float32 number is less: the square of this is 0."""

_LEAST_LOGARITHM = -100.0
_LEAST_DIVISOR = float(np.float32(1e-12))
"""Where PyTorch's binary cross entropy is clamped, and its derivative."""


def _binary_cross_entropy(self: Any, target: Any, weight: Any = None, reduction: int = _MEAN) -> Any:
    """Return a cross entropy with clamped logarithms; of what is no probability, as PyTorch refuses it, NaN."""
    one = _number(1.0, self)

    def clamped(logarithm: Callable[[Any], Any], x: Any, pole: float) -> Any:
        is_pole, least = op.Equal(x, _number(pole, x)), _number(_LEAST_LOGARITHM, x)
        return op.Where(is_pole, least, op.Max(logarithm(op.Where(is_pole, _number(0.5, x), x)), least))

    rest = op.Mul(op.Sub(one, target), clamped(lambda x: _log1p(op.Neg(x)), self, 1.0))
    loss = op.Neg(op.Add(op.Mul(target, clamped(op.Log, self, 0.0)), rest))
    loss = loss if weight is None else op.Mul(loss, weight)
    reduce = {_MEAN: op.ReduceMean, _SUM: op.ReduceSum}.get(reduction)
    return loss if reduce is None else reduce(loss, keepdims=0)


def _binary_cross_entropy_backward(
    grad_output: Any, self: Any, target: Any, weight: Any = None, reduction: int = _MEAN
) -> Any:
    """Return the derivative of a binary cross entropy, whose divisor is clamped."""
    spread = op.Mul(op.Sub(_number(1.0, self), self), self)
    found = op.Div(op.Mul(grad_output, op.Sub(self, target)), op.Max(spread, _number(_LEAST_DIVISOR, self)))
    found = found if weight is None else op.Mul(found, weight)
    return op.Div(found, _number(math.prod(self.shape), self)) if reduction == _MEAN else found


def _times_logarithm(self: Any, other: Any) -> Any:
    """Return x log(y), which is 0 where x is, whatever y may be but NaN."""
    is_zero, zero = op.Equal(self, _number(0.0, self)), _number(0.0, self)
    return op.Where(is_zero, zero, op.Mul(self, op.Log(op.Where(is_zero, _number(1.0, other), other))))


def _entropy(self: Any) -> Any:
    """Return -x log(x), which is 0 at 0."""
    return op.Neg(_times_logarithm(self, self))


def _cdist_forward(x1: Any, x2: Any, p: float, compute_mode: int | None = None) -> Any:
    """Return the distances of all rows of one tensor from all of another."""
    if p == 2 and compute_mode != _NEVER_BY_PRODUCT and max(x1.shape[-2], x2.shape[-2]) > _FEW_ROWS:
        raise NotImplementedError("distances by matrix products, as of many rows, are not translated")
    last = op.Constant(value_ints=[-1])
    size = op.Abs(_all_differences(x1, x2))
    if p == math.inf:
        return op.ReduceMax(size, axes=[-1], keepdims=0)
    if p not in (1.0, 2.0):
        raise NotImplementedError(f"distances by the norm of order {p:g} are not translated; take 1, 2 or infinity")
    total = op.ReduceSum(size if p == 1 else op.Mul(size, size), last, keepdims=0)
    return total if p == 1 else op.Sqrt(total)


def _cdist_backward(grad: Any, x1: Any, x2: Any, p: float, cdist: Any) -> Any:
    """Return the derivative of distances with respect to the first tensor; PyTorch's is 0 where a distance is."""
    if p != 2.0:  # the others' are not the derivative of one formula everywhere
        raise NotImplementedError(f"derivatives of distances by the norm of order {p:g} are not translated; take 2")
    zero, last = _number(0.0, cdist), op.Constant(value_ints=[-1])
    is_zero = op.Equal(cdist, zero)
    divisor = op.Where(is_zero, _number(1.0, cdist), cdist)
    if cdist.dtype.name == "FLOAT":  # this changes nothing, and says so
        divisor = op.Max(divisor, _number(_LEAST_ROOT, cdist))
    # The product comes first, as in PyTorch's kernel: it overflows where the quotient would not.
    product = op.Mul(op.Unsqueeze(grad, last), _all_differences(x1, x2))
    each = op.Where(op.Unsqueeze(is_zero, last), zero, op.Div(product, op.Unsqueeze(divisor, last)))
    return op.ReduceSum(each, op.Constant(value_ints=[-2]), keepdims=0)


def _all_differences(x1: Any, x2: Any) -> Any:
    return op.Sub(op.Unsqueeze(x1, op.Constant(value_ints=[-2])), op.Unsqueeze(x2, op.Constant(value_ints=[-3])))


def _dot(*pairs: tuple[Any, Any]) -> Any:
    """Return a sum of products of elements, which some loops round once and others at every step, as `MatMul` may."""
    last, before = op.Constant(value_ints=[-1]), op.Constant(value_ints=[-2])
    whole = op.Shape(op.Sum(*(op.Mul(a, b) for a, b in pairs)))
    left, right = ([op.Unsqueeze(op.Expand(x, whole), last) for x in side] for side in zip(*pairs, strict=True))
    product = op.MatMul(op.Unsqueeze(op.Concat(*left, axis=-1), before), op.Unsqueeze(op.Concat(*right, axis=-1), last))
    return op.Squeeze(product, op.Constant(value_ints=[-2, -1]))


def _add_product(self: Any, tensor1: Any, tensor2: Any, value: float = 1.0) -> Any:
    """Return x + value y z."""
    scaled = tensor1 if value == 1 else op.Mul(_number(value, self), tensor1)
    if not self.dtype.is_floating_point():
        return op.Add(self, op.Mul(scaled, tensor2))
    return _dot((self, _number(1.0, self)), (scaled, tensor2))


def _lerp(self: Any, end: Any, weight: Any) -> Any:
    """Return x + weight (y - x), from the nearer end, as PyTorch does."""
    one, apart = _number(1.0, self), op.Sub(end, self)
    share = _number(weight, self) if isinstance(weight, int | float) else weight
    near, far = _dot((self, one), (share, apart)), _dot((end, one), (op.Sub(share, one), apart))
    return op.Where(op.Less(op.Abs(share), _number(0.5, self)), near, far)


def _expm1(self: Any) -> Any:
    """Return exp(x) - 1 as tanh(x / 2) (exp(x) + 1), which keeps a small x; the exporter's difference loses it."""
    return op.Mul(op.Tanh(op.Mul(self, _number(0.5, self))), op.Add(op.Exp(self), _number(1.0, self)))


def _log1p(self: Any) -> Any:
    """Return log(1 + x), of a small x as 2 atanh(x / (x + 2)), which keeps it; the exporter's sum loses it."""
    one, two, limit = (_number(value, self) for value in (1.0, 2.0, 0.5))
    small = op.Clip(self, op.Neg(limit), limit)
    near = op.Mul(op.Atanh(op.Div(small, op.Add(small, two))), two)
    return op.Where(op.Less(op.Abs(self), limit), near, op.Log(op.Add(self, one)))


def _log_sigmoid(self: Any) -> Any:
    """Return the logarithm of a sigmoid, which the exporter takes of a sigmoid that may be 0."""
    return op.Neg(op.Softplus(op.Neg(self)))


def _log_add_exp(self: Any, other: Any) -> Any:
    """Return log(exp(a) + exp(b)), which the exporter takes of exponentials that may overflow."""
    return op.Add(op.Max(self, other), op.Softplus(op.Neg(op.Abs(op.Sub(self, other)))))


def _log_add_exp2(self: Any, other: Any) -> Any:
    """Return log2(2^a + 2^b), whose powers the exporter lets overflow."""
    two = _number(2.0, self)
    share = _log1p(op.Pow(two, op.Neg(op.Abs(op.Sub(self, other)))))
    return op.Add(op.Max(self, other), op.Div(share, op.Log(two)))


def _remainder(self: Any, other: Any) -> Any:
    """Return the remainder of the sign of the divisor; the exporter takes it from a rounded quotient."""
    divisor, rest, is_other = _divide(self, other)
    return op.Where(is_other, op.Add(rest, divisor), rest)


def _floor_divide(self: Any, other: Any) -> Any:
    """Return the quotient rounded down, which the exporter rounds to the next number before."""
    divisor, rest, is_other = _divide(self, other)
    quotient = op.Div(op.Sub(self, rest), divisor)
    quotient = op.Where(is_other, op.Sub(quotient, _number(1.0, self)), quotient)
    if not self.dtype.is_floating_point():
        return quotient
    below = op.Floor(quotient)
    is_above = op.Less(_number(0.5, self), op.Sub(quotient, below))
    return op.Where(is_above, op.Add(below, _number(1.0, self)), below)


def _divide(self: Any, other: Any) -> tuple[Any, Any, Any]:
    """Return the divisor, the remainder of the sign of the dividend, and whether the divisor has another sign."""
    divisor = _number(other, self) if isinstance(other, int | float) else other
    rest, zero = op.Mod(self, divisor, fmod=1), _number(0.0, self)
    is_other = op.Xor(op.Less(rest, zero), op.Less(divisor, zero))
    return divisor, rest, op.And(op.Not(op.Equal(rest, zero)), is_other)


def _select_scatter(self: Any, src: Any, dim: int, index: int) -> Any:
    """Return x with one slice replaced, for which the exporter writes a scatter of another rank."""
    size, axis = self.shape[dim], dim % len(self.shape)
    shape = [size if i == axis else 1 for i in range(len(self.shape))]
    places = op.Reshape(op.Constant(value_ints=list(range(size))), op.Constant(value_ints=shape))
    chosen = op.Equal(places, op.Constant(value_int=index % size))
    return op.Where(chosen, op.Unsqueeze(src, op.Constant(value_ints=[axis])), self)


def _batch_norm(
    input: Any,
    weight: Any = None,
    bias: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Any, ...]:
    """Return a batch norm, for which the exporter takes the running statistics even in training mode.

    The kernels of PyTorch compute `x * alpha + beta` as well.
    """
    narrow, rank, parameter = input, len(input.shape), input if weight is None else weight
    if narrow.dtype.name in ("FLOAT16", "BFLOAT16"):  # the kernel computes in float32
        wide = (None if x is None else op.Cast(x, to=1) for x in (input, weight, bias, running_mean, running_var))
        input, weight, bias, running_mean, running_var = wide
    channels = [1, -1, *[1] * (rank - 2)]

    def spread(x: Any) -> Any:
        return op.Reshape(x, op.Constant(value_ints=channels))

    if training:
        axes = op.Constant(value_ints=[i for i in range(rank) if i != 1])
        centre = op.ReduceMean(input, axes, keepdims=1)
        difference = op.Sub(input, centre)
        variance = op.ReduceMean(op.Mul(difference, difference), axes, keepdims=1)
    else:
        centre, variance = spread(running_mean), spread(running_var)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, _number(eps, variance))))
    alpha = inverse if weight is None else op.Mul(inverse, spread(weight))
    beta = op.Neg(op.Mul(centre, alpha))
    beta = beta if bias is None else op.Add(spread(bias), beta)
    flat = op.Constant(value_ints=[-1])
    saved = op.Reshape(centre, flat), op.Reshape(inverse, flat)
    statistics = (op.Identity(running_mean), op.Identity(running_var)) if running_mean is not None else (None, None)
    found = op.Add(op.Mul(input, alpha), beta)
    if narrow is not input:  # statistics are kept in the type of the parameters
        found, saved = op.CastLike(found, narrow), tuple(op.CastLike(each, parameter) for each in saved)
    return found, *saved, *statistics


def _batch_norm_without_statistics(
    input: Any, weight: Any = None, bias: Any = None, training: bool = True, momentum: float = 0.1, eps: float = 1e-5
) -> tuple[Any, ...]:
    """Return a batch norm that keeps no statistics, as an instance norm is one."""
    return _batch_norm(input, weight, bias, None, None, True, momentum, eps)[:3]
