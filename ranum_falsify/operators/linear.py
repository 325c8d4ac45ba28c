"""Matrix products."""

from __future__ import annotations

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Gemm, MatMul
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.forms import Affine, contraction
from ranum_falsify.domain.rules.building import infinity_aware
from ranum_falsify.domain.rules.matrices import matrix_product, scaled_sum
from ranum_falsify.domain.site import Site
from ranum_falsify.network.registry import operator
from ranum_falsify.operators.fused import is_beside_quantised, requantised, saturated

__all__ = ["MatMulInteger", "spelled_out"]


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product, for integers too; a vector counts as a row (left) or a column (right)."""
    if a.is_floating_point():
        return torch.matmul(a, b)
    # PyTorch has no product of integer matrices on CUDA.
    product = spelled_out if a.is_cuda else torch.matmul
    return product(a.long(), b.long()).to(a.dtype)


def spelled_out(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product as a sum of elementwise products; operands as of `torch.matmul`."""
    rows = a if a.ndim > 1 else a[None]
    columns = b if b.ndim > 1 else b[:, None]
    product = (rows[..., :, :, None] * columns[..., None, :, :]).sum(-2)
    product = product if b.ndim > 1 else product[..., 0]
    if a.ndim > 1:
        return product
    return product[..., 0, :] if b.ndim > 1 else product[..., 0]


def _gemm(op: Operation, a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
    a = a.mT if op.transpose_a else a
    plain = op.alpha == 1 and op.beta == 1
    if plain and a.is_floating_point() and (c is None or c.ndim == 1):
        result: Tensor = functional.linear(a, b if op.transpose_b else b.mT, c)
        return result
    product = _product(a, b.mT if op.transpose_b else b)
    product = product if op.alpha == 1 else (product * op.alpha).to(a.dtype)
    if c is None or op.beta == 0:
        return product
    return product + (c if op.beta == 1 else (c * op.beta).to(a.dtype))


def _matmul_integer(op: Operation, a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    left, right = a.to(torch.int32), b.to(torch.int32)
    if a_zero is not None:
        left = left - (a_zero.to(torch.int32)[..., None] if a_zero.ndim == 1 and a_zero.numel() > 1 else a_zero)
    if b_zero is not None:
        right = right - b_zero
    return _product(left.to(torch.int32), right.to(torch.int32))


@infinity_aware
def _matmul_bounds(site: Site, a: Interval, b: Interval) -> Interval:
    return saturated(site, matrix_product(a, b), b)


@infinity_aware
def _gemm_bounds(site: Site, a: Interval, b: Interval, c: Interval | None) -> Interval:
    op = site.op
    turned = (bool(op.transpose_a), bool(op.transpose_b))
    b, c = requantised(site, b, c)
    c = None if op.beta == 0 else c
    if op.alpha == 1 and op.beta == 1:
        return saturated(site, matrix_product(a, b, c, transposed=turned), b)
    return scaled_sum(saturated(site, matrix_product(a, b, transposed=turned), b), op.alpha, c, op.beta)


def _matmul_integer_bounds(
    site: Site, a: Interval, b: Interval, a_zero: Interval | None, b_zero: Interval | None
) -> Interval:
    if a_zero is not None and len(a_zero.shape) == 1 and a_zero.shape[0] > 1:
        a_zero = a_zero.moved(lambda t: t[..., None])
    exact = matrix_product(_above_zero_point(a, a_zero), _above_zero_point(b, b_zero))
    less, more = _saturated(a, b)
    if not (less or more):
        return exact
    low, high = exact.lower.long() - less, exact.upper.long() + more
    return Interval.of(low.clamp(*_INT32).to(torch.int32), high.clamp(*_INT32).to(torch.int32), exact.shape)


_INT16, _INT32 = (-(2**15), 2**15 - 1), (-(2**31), 2**31 - 1)


def _saturated(a: Interval, b: Interval) -> tuple[int, int]:
    """Return by how much a product may come out too low and too high where the second factor is signed.

    ONNX Runtime then multiplies unsigned with signed numbers and adds pairs of products in 16 bits, which saturate,
    on processors without the newer dot product instructions
    (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html).
    """
    if b.dtype is not torch.int8 or not a.size or not b.size:
        return 0, 0
    # Signed numbers in the first factor are moved to the unsigned ones.
    shift = 128 if a.dtype is torch.int8 else 0
    largest = int(a.extremes[1]) + shift
    pairs = (a.shape[-1] + 1) // 2
    low, high = (2 * largest * int(end) for end in b.extremes)
    return pairs * max(high - _INT16[1], 0), pairs * max(_INT16[0] - low, 0)


def _above_zero_point(x: Interval, zero: Interval | None) -> Interval:
    """Return 8-bit integers less their zero points, in int32."""
    low, high = x.lower.to(torch.int32), x.upper.to(torch.int32)
    if zero is not None:
        low, high = low - zero.upper.to(torch.int32), high - zero.lower.to(torch.int32)
    return Interval.of(low, high, x.shape)


_LINEAR = Affine(factors=("a", "b"), terms=contraction)


def _linear(op: Operation) -> Affine | None:
    return None if is_beside_quantised(op) else _LINEAR


operator(torch=lambda op, a, b: _product(a, b), interval=_matmul_bounds, linear=_linear)(MatMul)
operator(
    torch=_gemm,
    interval=_gemm_bounds,
    renamed={"transA": "transpose_a", "transB": "transpose_b"},
    linear=_linear,
)(Gemm)


@operator(torch=_matmul_integer, interval=_matmul_integer_bounds, overflow=False)
class MatMulInteger(Operation):
    """https://onnx.ai/onnx/operators/onnx__MatMulInteger.html."""
