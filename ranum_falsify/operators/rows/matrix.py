"""Matrix products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Gemm, MatMul
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.forms import Affine, contraction
from ranum_falsify.domain.rules.matrix.determinant import determinant
from ranum_falsify.domain.rules.matrix.matmul import largest_finite, matrix_product, overflows_in_parts, sum_scaled
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.relations.fused import is_beside_quantised, requantise, saturate
from ranum_falsify.operators.relations.lengths import product_of_rows
from ranum_falsify.operators.relations.patterns import refined
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.families import across, opaque

__all__ = ["Det", "matrix_of", "spell_out"]


def matrix_of(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product, for integers too; a vector counts as a row (left) or a column (right).

    Raises:
        UnsupportedAttributeError: ONNX Runtime takes a batch of empty matrices for one of them.
    """
    batch = a.shape[:-2]
    if b.ndim > 2 and not b.numel() and np.broadcast_shapes(batch, b.shape[:-2]) != batch:
        raise UnsupportedAttributeError("a batch of empty matrices, of which ONNX Runtime reads one")
    if a.is_floating_point():
        return torch.matmul(a, b)
    # PyTorch has no product of integer matrices on CUDA.
    product = spell_out if a.is_cuda else torch.matmul
    return product(a.long(), b.long()).to(a.dtype)


def spell_out(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product as a sum of elementwise products; operands are as in `torch.matmul`."""
    rows = a if a.ndim > 1 else a[None]
    columns = b if b.ndim > 1 else b[:, None]
    product = (rows[..., :, :, None] * columns[..., None, :, :]).sum(-2)
    product = product if b.ndim > 1 else product[..., 0]
    if a.ndim > 1:
        return product
    return product[..., 0, :] if b.ndim > 1 else product[..., 0]


def _times(x: Tensor, factor: float) -> Tensor:
    # The product of integers and a number would be float32.
    return x * factor if x.is_floating_point() else (x.double() * factor).to(x.dtype)


def _gemm(op: Operation, a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
    a = a.mT if op.transpose_a else a
    if not a.shape[-1] and op.beta not in (0, 1):
        raise UnsupportedAttributeError("beta beside a product of no terms, where ONNX Runtime ignores it")
    plain = op.alpha == 1 and op.beta == 1
    if plain and a.is_floating_point() and (c is None or c.ndim == 1):
        result: Tensor = functional.linear(a, b if op.transpose_b else b.mT, c)
        return result
    product = matrix_of(a, b.mT if op.transpose_b else b)
    product = product if op.alpha == 1 else _times(product, op.alpha)
    if c is None or op.beta == 0:
        return product
    return product + (c if op.beta == 1 else _times(c, op.beta))


@infinity_aware
def _matmul_bounds(site: Site, a: Interval, b: Interval) -> Interval:
    return saturate(site, matrix_product(a, b, roundings=lambda terms: site.roundings_within(terms, a.dtype)), b)


@infinity_aware
def _gemm_bounds(site: Site, a: Interval, b: Interval, c: Interval | None) -> Interval:
    op = site.op
    turned = (bool(op.transpose_a), bool(op.transpose_b))
    b, c = requantise(site, b, c)
    c = None if op.beta == 0 else c
    terms = a.shape[-2 if turned[0] else -1]
    often = site.roundings_within(terms, a.dtype)
    if op.alpha == 1 and op.beta == 1:
        return saturate(site, matrix_product(a, b, c, transposed=turned, roundings=lambda _: often), b)
    product = matrix_product(a, b, transposed=turned, roundings=lambda _: often)
    y = sum_scaled(saturate(site, product, b), op.alpha, c, op.beta)
    beside = 0.0 if c is None else abs(op.beta) * largest_finite(c)
    return replace(y, overflows=overflows_in_parts(a, b, terms, factor=op.alpha, beside=beside, rounds=often > 0))


_LINEAR = Affine(factors=("a", "b"), terms=contraction)


def _linear(op: Operation) -> Affine | None:
    return None if is_beside_quantised(op) else _LINEAR


across(
    torch=lambda op, a, b: matrix_of(a, b),
    interval=refined(_matmul_bounds, product_of_rows),
    linear=_linear,
    batch=batching.matmul,
    kernel=None,
    valid=(),
)(MatMul)
across(
    torch=_gemm,
    interval=refined(_gemm_bounds, product_of_rows),
    linear=_linear,
    batch=batching.gemm,
    kernel=None,
    valid=(),
    renamed={"transA": "transpose_a", "transB": "transpose_b"},
)(Gemm)


def _det(op: Operation, x: Tensor) -> Tensor:
    work = torch.promote_types(x.dtype, torch.float32)
    y: Tensor = torch.linalg.det(x.to(work))
    return y.to(x.dtype)


@opaque(torch=_det, interval=determinant, kernel=None, valid=())
class Det(Operation):
    """https://onnx.ai/onnx/operators/onnx__Det.html."""
