"""Sums that runtimes fuse with what comes before them, so that they round differently, and scaled integer products."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect
from torch import Tensor

from ranum_falsify.domain.error_bounds import unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.arithmetic.pairs import add
from ranum_falsify.domain.rules.arithmetic.variadic import sum_of_operands
from ranum_falsify.domain.rules.matrix.matmul import finite_sizes, largest_finite, overflows_in_parts, vanishes_beside
from ranum_falsify.domain.rules.quantisation import Represented, represent, scale_sums
from ranum_falsify.domain.rules.support.building import keeping_infinity, unknown
from ranum_falsify.domain.site import Site
from ranum_falsify.network.registry import spec_of
from ranum_falsify.operators.relations.matching import Field, fields_of, is_a, kind, pairs, source

_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
"""Operators whose sums ONNX Runtime may start from what is added to them."""

_LEVELS = 127
"""Steps from 0 to the largest weight, a signed integer of 8 bits."""


@keeping_infinity
def accumulate(site: Site, a: Interval, b: Interval) -> Interval:
    """Bound a + b, also where ONNX Runtime adds b inside the sum of products that is a, or regroups three summands."""
    if not a.is_floating:
        return add(site, a, b)
    (first, second), _ = pairs(site.op)
    wide = _widen(site, b, first), _widen(site, a, second)
    y = add(site, wide[1], wide[0])
    if "onnxruntime" in site.runtimes and (_overflows_inside(site, b, first) or _overflows_inside(site, a, second)):
        y = replace(y, overflows=True)
    regrouped = next((op for op in (is_a(first, "Add"), is_a(second, "Add")) if op is not None), None)
    if regrouped is None or len(y.shape) < 2 or y.may_be_infinite:
        return y
    return _regroup(site, y, regrouped, a, b)


@keeping_infinity
def sum_operands(site: Site, *data: Interval) -> Interval:
    """Bound `Sum`, which is fused as `Add` is if it has two operands."""
    return accumulate(site, *data) if len(data) == 2 else sum_of_operands(site, *data)


def _widen(site: Site, x: Interval, beside: Field) -> Interval:
    """Return bounds of a summand, widened by the error of the sum next to it, should it be added inside that sum.

    Whether it overflows there is another question, see :func:`_overflows_inside`.
    """
    error = error_inside(site, beside, x.dtype)
    if not error or not x.size or x.may_be_infinite:
        return x
    low, high = x.lower - error * x.lower.abs(), x.upper + error * x.upper.abs()
    return replace(x, lower=low, upper=high, gap=0.0).keep_finite()


def error_inside(site: Site, beside: Field, dtype: torch.dtype) -> float:
    """Return the relative rounding error of a summand that may be folded into the matrix product next to it; else 0."""
    op = is_a(beside, *_PRODUCTS)
    terms = 0 if op is None else _terms(site, op)
    return site.rounding(terms, dtype).growth(terms, dtype) if terms else 0.0


def _overflows_inside(site: Site, x: Interval, beside: Field) -> bool:
    """Tell whether the sum of products beside a summand may overflow because it starts from that summand."""
    op = is_a(beside, *_PRODUCTS)
    if op is None or not x.size:
        return False
    a, b, *bias = [site.find_known(field) for field in fields_of(op) if field is not None]
    if a is None or b is None or None in bias:
        return True
    alpha, beta = (op.alpha, op.beta) if is_a(op, "Gemm") else (1.0, 1.0)
    terms, size = _terms(site, op), largest_finite(x)
    small = rest = abs(beta) * sum(largest_finite(c) for c in bias if c is not None)
    if is_a(op, "Gemm") and bias[:1] and bias[0] is not None:
        # Of two masks, only the smaller number at each place must vanish.
        small = float(torch.minimum(finite_sizes(x), abs(beta) * finite_sizes(bias[0])).amax())
    how = site.rounding(terms, a.dtype)
    known = a.is_floating and a.size and b.size and not how.between and not how.cuts
    if known and vanishes_beside(a, b, terms, factor=alpha, bias=small):
        return False
    beside = float(size + rest)
    return overflows_in_parts(
        a, b, terms, factor=alpha, beside=beside, sums=lambda sizes: _add_up(op, sizes), rounding=how
    )


def _add_up(op: Operation, weights: Tensor) -> Tensor:
    """Return for each element of a product, or more of them, the sum of the weights that it is made with, or more."""
    if is_a(op, "Conv"):
        return weights.flatten(1).sum(1)
    if is_a(op, "ConvTranspose"):
        return weights.transpose(0, 1).flatten(1).sum(1)
    if is_a(op, "Gemm"):
        return weights.sum(1 if op.transpose_b else 0)
    return weights.sum(-2 if weights.dim() > 1 else 0)


_SATURATION = 2 * 255 * 128 - (2**15 - 1)
"""The most by which the sum of two products of 8-bit numbers, one factor of each signed, exceeds 16 bits."""


def is_beside_quantised(op: Operation) -> bool:
    """Tell whether ONNX Runtime may compute a layer in 8 bits, constants too, because its operand was quantised."""
    return is_a(fields_of(op)[0], "DequantizeLinear") is not None


def unless_quantised(form: Affine) -> Callable[[Operation], Affine | None]:
    """Return the linear form of a layer; None where ONNX Runtime may compute it in 8 bits."""
    return lambda op: None if is_beside_quantised(op) else form


def requantise(site: Site, w: Interval, b: Interval | None) -> tuple[Interval, Interval | None]:
    """Return a layer's weights and bias as ONNX Runtime may quantise them: by whole tensors, symmetrically."""
    if not is_beside_quantised(site.op) or "onnxruntime" not in site.runtimes or not w.size or w.may_be_infinite:
        return w, b
    x, weight, *bias = fields_of(site.op)
    step = max(map(abs, w.extremes)) / _LEVELS
    scale = site.find_known(fields_of(is_a(x, "DequantizeLinear"))[1])
    if isinstance(source(weight), np.ndarray):
        w = _move(w, step)
    if b is not None and isinstance(source(bias[0]), np.ndarray):
        b = _move(b, math.inf if scale is None else step * max(map(abs, scale.extremes)))
    return w, b


def saturate(site: Site, y: Interval, w: Interval) -> Interval:
    """Return bounds of a layer that ONNX Runtime may compute in 8 bits, where pairs of products saturate in 16.

    See `MatMulInteger`; the weights are those that the layer reads.
    """
    if not is_beside_quantised(site.op) or "onnxruntime" not in site.runtimes or y.may_be_infinite:
        return y
    if not w.size:  # results of no terms are not written in 8 bits
        return unknown(site)[0]
    scales = [
        site.find_known(fields_of(op)[1])
        for op in (is_a(field, "DequantizeLinear") for field in fields_of(site.op)[:2])
        if op is not None
    ]
    steps = [math.inf if scale is None else max(map(abs, scale.extremes)) for scale in scales]
    if len(steps) == 1:
        steps.append(max(map(abs, w.extremes)) / _LEVELS)
    pairs_added = (_terms(site, site.op) + 1) // 2
    return replace(_move(y, pairs_added * _SATURATION * math.prod(steps)), nan=y.nan, overflows=y.overflows)


def _move(x: Interval, error: float) -> Interval:
    return round_outward(x.lower.double() - error, x.upper.double() + error, x.dtype, x.shape)


def _terms(site: Site, op: Operation) -> int:
    """Return how many products are added up in an element of the result, at most; 0 if it is not known."""
    known = site.find_known(fields_of(op)[1])
    if known is None or not known.shape:
        return 0
    if is_a(op, "Conv"):
        return math.prod(known.shape[1:])
    if is_a(op, "ConvTranspose"):
        return math.prod(known.shape) // max(known.shape[1], 1)
    if is_a(op, "Gemm"):
        return known.shape[1] if op.transpose_b else known.shape[0]
    return known.shape[-2] if len(known.shape) > 1 else known.shape[0]


def _regroup(site: Site, y: Interval, inner: Operation, a: Interval, b: Interval) -> Interval:
    """Return bounds of a sum of three that a fused normalisation may add up in another order."""
    if not any(x is not None and x.is_point and len(x.shape) == 1 for x in map(site.find_known, fields_of(inner))):
        return y
    size = sum(largest_finite(x) for x in map(site.find_known, fields_of(inner)) if x is not None and x.size)
    size += max((largest_finite(x) for x in (a, b) if x.size), default=0.0)
    error = 6 * unit(y.dtype) * size
    low, high = y.doubles()
    low, high = torch.where(low >= 0, (low - error).clamp(min=0), low - error), high + error
    return round_outward(low, torch.where(y.upper <= 0, high.clamp(max=0), high), y.dtype, y.shape)


_INTEGERS, _SCALE, _ZERO = range(3)
"""Outputs of `DynamicQuantizeLinear`."""


def find_represented(site: Site, integers: Field, scale: Field, zero: Field) -> Represented | None:
    """Return the real values represented by the integers of a DynamicQuantizeLinear; None if it is none."""
    found = _find_quantiser(integers, _INTEGERS)
    if found is None or any(_find_quantiser(f, i) is not found for f, i in ((scale, _SCALE), (zero, _ZERO))):
        return None
    x = site.find_known(fields_of(found)[0])
    return None if x is None else represent(x)


def dequantised_product(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound a product or a convolution of integers times the scales of both factors."""
    if a.dtype is not torch.float32:
        return None
    for (sums, factor), scales in zip(pairs(site.op), (b, a), strict=True):
        op = _find_integers(sums)
        if op is None or scales.may_be_infinite:
            continue
        for scale, rest in _split_scale(site, factor):
            y = _bound_product(site, op, scale, rest)
            if y is not None:
                return y
    return None


def _find_quantiser(field: Field, output: int) -> Operation | None:
    """Return the node of which a field is the given output, if that quantises as it runs."""
    op = source(field)
    if not isinstance(op, OutputSelect) or op.index != output:
        return None
    return op.operation if kind(op.operation) == "DynamicQuantizeLinear" else None


def _find_integers(field: Field) -> Operation | None:
    """Return the product of integers of which a field is the conversion to floats."""
    cast = is_a(field, "Cast")
    if cast is None or cast.to != onnx.TensorProto.FLOAT:
        return None
    return is_a(fields_of(cast)[0], "MatMulInteger", "ConvInteger")


def _split_scale(site: Site, factor: Field) -> Iterator[tuple[Field, Interval]]:
    """Yield a scale and the bounds of what else a factor is the product of."""
    yield factor, Interval.fill(1, 1, (), torch.float32)
    product = is_a(factor, "Mul")
    for scale, other in () if product is None else pairs(product):
        rest = site.find_known(other)
        if rest is not None:
            yield scale, rest


def _bound_product(site: Site, op: Operation, scale: Field, rest: Interval) -> Interval | None:
    integers, weights, zero, weight_zero = fields_of(op)
    found = find_represented(site, integers, scale, zero)
    w, w_zero = site.find_known(weights), site.find_known(weight_zero)
    rule = spec_of(op).interval
    if found is None or rule is None or w is None or not w.size or (w_zero is None) != (weight_zero is None):
        return None
    steps, from_zero = (None if x is None else Interval.of(*x.doubles(), x.shape) for x in (w, w_zero))
    exact = rule(replace(site, op=op), found.numbers, steps, None, from_zero)
    assert isinstance(exact, Interval)
    columns = is_a(op, "MatMulInteger") is not None
    terms = w.shape[-2:][0] if columns else math.prod(w.shape[1:])
    sums = found.enclose_sums(exact, w, terms)
    if sums is None or np.broadcast_shapes(sums.shape, rest.shape) != sums.shape:
        return None
    return scale_sums(sums, [rest], None)
