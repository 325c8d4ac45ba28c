"""PyTorch's operators in ONNX as PyTorch computes them, where its exporter writes something else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

__all__ = ["list_translations"]


@cache
def list_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return translations by operator, as `torch.onnx.export` takes them."""
    aten = torch.ops.aten
    return {
        aten.log_sigmoid.default: _log_sigmoid,
        aten.logaddexp.default: _log_add_exp,
        aten.select_scatter.default: _select_scatter,
        aten._native_batch_norm_legit_functional.default: _batch_norm,
        aten._native_batch_norm_legit.no_stats: _batch_norm_without_statistics,
    }


def _operators() -> Any:
    """Return ONNX's operators, which onnxscript offers as functions."""
    from onnxscript import opset18

    return opset18


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
    channels = [1, -1, *[1] * (len(input.shape) - 2)]

    def spread(x: Any) -> Any:
        return op.Reshape(x, op.Constant(value_ints=channels))

    if training:
        axes = op.Constant(value_ints=[i for i in range(len(input.shape)) if i != 1])
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
    return op.Add(op.Mul(input, alpha), beta), *saved, *statistics


def _batch_norm_without_statistics(
    input: Any, weight: Any = None, bias: Any = None, training: bool = True, momentum: float = 0.1, eps: float = 1e-5
) -> tuple[Any, ...]:
    """Return a batch norm that keeps no statistics, as an instance norm is one."""
    return _batch_norm(input, weight, bias, None, None, True, momentum, eps)[:3]
