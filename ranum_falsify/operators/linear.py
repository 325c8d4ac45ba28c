"""Matrix products."""

from __future__ import annotations

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Gemm, MatMul
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.linear_forms import Affine, contraction
from ranum_falsify.network.registry import operator

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


operator(torch=lambda op, a, b: _product(a, b), linear=Affine(factors=("a", "b"), terms=contraction))(MatMul)
operator(
    torch=_gemm,
    renamed={"transA": "transpose_a", "transB": "transpose_b"},
    linear=Affine(factors=("a", "b"), terms=contraction),
)(Gemm)


@operator(torch=_matmul_integer, overflow=False)
class MatMulInteger(Operation):
    """https://onnx.ai/onnx/operators/onnx__MatMulInteger.html."""
