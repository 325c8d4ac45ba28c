"""PyTorch's operators in ONNX as PyTorch computes them, where its exporter writes something else."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch


@cache
def list_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return translations by operator, as `torch.onnx.export` takes them."""
    aten = torch.ops.aten
    return {
        aten._cdist_backward.default: _cdist_backward,
        aten._cdist_forward.default: _cdist_forward,
        aten.binary_cross_entropy.default: _binary_cross_entropy,
        aten.binary_cross_entropy_backward.default: _binary_cross_entropy_backward,
        aten.log_sigmoid.default: _log_sigmoid,
        aten.logaddexp.default: _log_add_exp,
        aten.select_scatter.default: _select_scatter,
        aten.special_entr.default: _entropy,
        aten.xlogy.Tensor: _times_logarithm,
        aten._native_batch_norm_legit_functional.default: _batch_norm,
        aten._native_batch_norm_legit.no_stats: _batch_norm_without_statistics,
    }


def _operators() -> Any:
    """Return ONNX's operators, which onnxscript offers as functions."""
    from onnxscript import opset18

    return opset18


def _number(value: float, like: Any) -> Any:
    op = _operators()
    return op.CastLike(op.Constant(value_float=value), like)


_MEAN, _SUM = 1, 2
"""What PyTorch's losses make of their elements; 0 for nothing."""

_NEVER_BY_PRODUCT, _FEW_ROWS = 2, 25
"""PyTorch takes distances of more rows from a matrix product, whose squares may overflow, unless told never to."""

_LEAST_ROOT = 3e-23
"""No root of a positive float32 number is less: the square of this is 0."""

_LEAST_LOGARITHM = -100.0
_LEAST_DIVISOR = 1e-12
"""Where PyTorch's binary cross entropy is clamped, and its derivative."""


def _binary_cross_entropy(self: Any, target: Any, weight: Any = None, reduction: int = _MEAN) -> Any:
    """Return a cross entropy with clamped logarithms; of what is no probability, as PyTorch refuses it, NaN."""
    op = _operators()
    one = _number(1.0, self)

    def logarithm(x: Any) -> Any:
        is_zero, least = op.Equal(x, _number(0.0, x)), _number(_LEAST_LOGARITHM, x)
        return op.Where(is_zero, least, op.Max(op.Log(op.Where(is_zero, one, x)), least))

    rest = op.Mul(op.Sub(one, target), logarithm(op.Sub(one, self)))
    loss = op.Neg(op.Add(op.Mul(target, logarithm(self)), rest))
    loss = loss if weight is None else op.Mul(loss, weight)
    reduce = {_MEAN: op.ReduceMean, _SUM: op.ReduceSum}.get(reduction)
    return loss if reduce is None else reduce(loss, keepdims=0)


def _binary_cross_entropy_backward(
    grad_output: Any, self: Any, target: Any, weight: Any = None, reduction: int = _MEAN
) -> Any:
    """Return the derivative of a binary cross entropy, whose divisor is clamped."""
    op = _operators()
    spread = op.Mul(op.Sub(_number(1.0, self), self), self)
    slope = op.Div(op.Sub(self, target), op.Max(spread, _number(_LEAST_DIVISOR, self)))
    found = op.Mul(grad_output, slope)
    found = found if weight is None else op.Mul(found, weight)
    return op.Div(found, _number(float(math.prod(self.shape)), self)) if reduction == _MEAN else found


def _times_logarithm(self: Any, other: Any) -> Any:
    """Return x log(y), which is 0 where x is, whatever y may be but NaN."""
    op = _operators()
    is_zero, zero = op.Equal(self, _number(0.0, self)), _number(0.0, self)
    return op.Where(is_zero, zero, op.Mul(self, op.Log(op.Where(is_zero, _number(1.0, other), other))))


def _entropy(self: Any) -> Any:
    """Return -x log(x), which is 0 at 0."""
    return _operators().Neg(_times_logarithm(self, self))


def _cdist_forward(x1: Any, x2: Any, p: float, compute_mode: int | None = None) -> Any:
    """Return the distances of all rows of one tensor from all of another."""
    op = _operators()
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
    op = _operators()
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
    op = _operators()
    return op.Sub(op.Unsqueeze(x1, op.Constant(value_ints=[-2])), op.Unsqueeze(x2, op.Constant(value_ints=[-3])))


def _log_sigmoid(self: Any) -> Any:
    """Return the logarithm of a sigmoid, which the exporter takes of a sigmoid that may be 0."""
    op = _operators()
    return op.Neg(op.Softplus(op.Neg(self)))


def _log_add_exp(self: Any, other: Any) -> Any:
    """Return log(exp(a) + exp(b)), which the exporter takes of exponentials that may overflow."""
    op = _operators()
    return op.Add(op.Max(self, other), op.Softplus(op.Neg(op.Abs(op.Sub(self, other)))))


def _select_scatter(self: Any, src: Any, dim: int, index: int) -> Any:
    """Return x with one slice replaced, for which the exporter writes a scatter of another rank."""
    op = _operators()
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
    op = _operators()
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
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, op.CastLike(op.Constant(value_float=eps), variance))))
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
