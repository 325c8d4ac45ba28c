"""Matrix products and Einstein summation."""

from __future__ import annotations

import math
import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import permutations

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Gemm, MatMul
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.linear.declarations import Affine, contraction
from ranum_falsify.domain.rules.matrix.bilinear import bilinear, bound_weighted
from ranum_falsify.domain.rules.matrix.elimination import determinant
from ranum_falsify.domain.rules.matrix.matmul import largest_finite, matrix_product, overflows_in_parts, sum_scaled
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.relations.fused import requantise, saturate, unless_quantised
from ranum_falsify.operators.relations.norm_bounds import product_of_rows, weighted_means
from ranum_falsify.operators.relations.patterns import refined
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.families import plain, summing


def matrix_of(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product, for integers too; a vector counts as a row (left) or a column (right)."""
    # Beside a vector, the rows of a matrix are a batch for ONNX Runtime.
    batch = a.shape[: -1 if b.ndim == 1 else -2]
    if not b.numel() and (batch if b.ndim == 1 else np.broadcast_shapes(batch, b.shape[:-2]) != batch):
        raise UnsupportedAttributeError("a batch of empty factors, of which ONNX Runtime reads one")
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
    batched = max(len(a.shape), len(b.shape)) > 2
    return saturate(
        site, matrix_product(a, b, rounding=lambda terms: site.rounding(terms, a.dtype, batched=batched)), b
    )


@infinity_aware
def _gemm_bounds(site: Site, a: Interval, b: Interval, c: Interval | None) -> Interval:
    op = site.op
    turned = (bool(op.transpose_a), bool(op.transpose_b))
    b, c = requantise(site, b, c)
    c = None if op.beta == 0 else c
    terms = a.shape[-2 if turned[0] else -1]
    how = site.rounding(terms, a.dtype, batched=False)
    if op.alpha == 1 and op.beta == 1:
        return saturate(site, matrix_product(a, b, c, transposed=turned, rounding=lambda _: how), b)
    product = matrix_product(a, b, transposed=turned, rounding=lambda _: how)
    y = sum_scaled(saturate(site, product, b), op.alpha, c, op.beta)
    beside = 0.0 if c is None else abs(op.beta) * largest_finite(c)
    return replace(y, overflows=overflows_in_parts(a, b, terms, factor=op.alpha, beside=beside, rounding=how))


_LINEAR = unless_quantised(Affine(factors=("a", "b"), terms=contraction))

summing(
    torch=lambda op, a, b: matrix_of(a, b),
    interval=refined(_matmul_bounds, product_of_rows, weighted_means),
    linear=_LINEAR,
    batch=batching.matmul,
)(MatMul)
summing(
    torch=_gemm,
    interval=refined(_gemm_bounds, product_of_rows),
    linear=_LINEAR,
    batch=batching.gemm,
    renamed={"transA": "transpose_a", "transB": "transpose_b"},
)(Gemm)


def _det(op: Operation, x: Tensor) -> Tensor:
    work = torch.promote_types(x.dtype, torch.float32)
    y: Tensor = torch.linalg.det(x.to(work))
    return y.to(x.dtype)


@plain(torch=_det, interval=determinant)
class Det(Operation):
    """https://onnx.ai/onnx/operators/onnx__Det.html."""


def _einsum(op: Operation, *inputs: Tensor) -> Tensor:
    # Sums of integers become int64 in torch.
    return torch.einsum(op.equation.replace(" ", ""), *inputs).to(inputs[0].dtype)


# bounds ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Labelled:
    """Bounds of an operand whose dimensions are labelled, one letter each."""

    bounds: Interval
    labels: str


@infinity_aware
def _einsum_bounds(site: Site, *inputs: Interval) -> Interval:
    if not all(x.size for x in inputs):
        # There is nothing, or sums of nothing, which PyTorch multiplies with sums of the other operand.
        nothing = Interval.fill(0, 0, site.shape, site.dtype)
        return replace(nothing, nan=any(x.may_be_infinite for x in inputs))
    operands, output = _label(site.op.equation.replace(" ", ""), inputs)
    sizes: dict[str, int] = {}
    for x in operands:
        for label, size in zip(x.labels, x.bounds.shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), size)
    terms = math.prod(size for label, size in sizes.items() if label not in output)
    operands = [_leave_repeated(x, sizes) for x in operands]
    if len(operands) == 1:
        return _contract(operands, output, sizes, terms).bounds
    alone = [set(x.labels).difference(other.labels, output) for x, other in permutations(operands, 2)]
    if (len(operands) > 2 or any(alone)) and _may_overflow(operands, terms):
        # The order of sums and products decides which of them overflow.
        top = Interval.fill(-math.inf, math.inf, site.shape, site.dtype)
        return replace(top, nan=True) if top.is_floating else Interval.top(site.shape, site.dtype)
    if len(operands) == 2 and operands[0].bounds.dtype in (torch.float16, torch.bfloat16):
        # Before it multiplies, PyTorch sums each operand over the labels that the other lacks, and rounds the sums.
        operands = [_sum(x, lone, sizes, terms) for x, lone in zip(operands, alone, strict=True)]
    found = operands[0]
    for i, x in enumerate(operands[1:], start=2):
        needed = set(output).union(*(later.labels for later in operands[i:]))
        kept = "".join(dict.fromkeys(label for label in found.labels + x.labels if label in needed))
        found = _contract([found, x], output if i == len(operands) else kept, sizes, terms)
    return found.bounds


def _label(equation: str, inputs: Sequence[Interval]) -> tuple[list[_Labelled], str]:
    """Return the operands and the labels of the result, with letters for what an ellipsis stands for."""
    left, arrow, output = equation.partition("->")
    parts = left.split(",")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    hidden = [len(x.shape) - len(part.replace("...", "")) for x, part in zip(inputs, parts, strict=True)]
    widest = max((n for n, part in zip(hidden, parts, strict=True) if "..." in part), default=0)
    letters = "".join(free[:widest])
    labels = [part.replace("...", letters[widest - n :]) for n, part in zip(hidden, parts, strict=True)]
    if not arrow:
        used = left.replace("...", "").replace(",", "")
        output = "..." + "".join(sorted(label for label in set(used) if used.count(label) == 1))
    operands = [_Labelled(_split_repeated(x, part), part) for x, part in zip(inputs, labels, strict=True)]
    return operands, output.replace("...", letters)


def _leave_repeated(x: _Labelled, sizes: dict[str, int]) -> _Labelled:
    """Return an operand without the labels along which its only element is repeated: it is as if it lacked them."""
    once = [dim for dim, label in enumerate(x.labels) if x.bounds.shape[dim] < sizes[label]]
    if not once:
        return x
    labels = "".join(label for dim, label in enumerate(x.labels) if dim not in once)
    return _Labelled(_split_repeated(x.bounds.move(lambda bound: bound.squeeze(once)), labels), labels)


def _sum(x: _Labelled, over: Collection[str], sizes: dict[str, int], terms: int) -> _Labelled:
    """Return the sum of an operand over some labels."""
    rest = "".join(dict.fromkeys(label for label in x.labels if label not in over))
    return _contract([x], rest, sizes, terms) if over else x


def _split_repeated(x: Interval, labels: str) -> Interval:
    """Return the bounds with the dimensions of a diagonal not merged."""
    return x.split(*(dim for dim, label in enumerate(labels) if labels.count(label) > 1))


def _may_overflow(operands: Sequence[_Labelled], terms: int) -> bool:
    sizes = [max(1.0, *(abs(end) for end in x.bounds.extremes)) for x in operands]
    return terms * reduce(lambda p, q: p * q, sizes) >= dtype_range(operands[0].bounds.dtype)[1] / 8


def _contract(operands: Sequence[_Labelled], output: str, sizes: dict[str, int], terms: int) -> _Labelled:
    """Return one operand summed, or two multiplied; a label whose bounds are merged everywhere counts by its size."""
    stored: dict[str, int] = {}
    for x in operands:
        for label, size in zip(x.labels, x.bounds.lower.shape, strict=True):
            stored[label] = max(stored.get(label, 1), size)
    times = math.prod(sizes[label] for label in stored if label not in output and stored[label] == 1)
    equation = f"{','.join(x.labels for x in operands)}->{output}"
    shape = tuple(sizes[label] for label in output)

    def total(*tensors: Tensor) -> Tensor:
        result = torch.einsum(equation, *tensors)
        return result * times if times > 1 else result.clone()

    def product(a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
        return total(a, b) if c is None else total(a, b) + c

    if len(operands) == 1:
        return _Labelled(bound_weighted(total, operands[0].bounds, terms=terms, shape=shape), output)
    a, b = (x.bounds for x in operands)
    count = math.prod(sizes[label] for label in stored if label not in output)
    return _Labelled(bilinear(product, a, b, terms=terms, shape=shape, count=count), output)


@plain(torch=_einsum, interval=_einsum_bounds, operands=("x",))
class Einsum(Operation):
    """https://onnx.ai/onnx/operators/onnx__Einsum.html."""
