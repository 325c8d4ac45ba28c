"""Products of integers times their scales: the numbers that a tensor stands for which was quantised as it runs.

The scale and the integers of `DynamicQuantizeLinear` depend on each other: the larger the one, the further apart the
numbers.  Separate bounds of both would say little, as the scale of zeros alone is 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.dequantisation import Represented, represent, scale_sums
from ranum_falsify.domain.site import Site
from ranum_falsify.network.registry import spec_of
from ranum_falsify.operators.relations.matching import Field, fields_of, is_a, kind, pairs, source

__all__ = ["dequantised_product", "find_represented"]

_INTEGERS, _SCALE, _ZERO = range(3)
"""Outputs of `DynamicQuantizeLinear`."""


def find_represented(site: Site, integers: Field, scale: Field, zero: Field) -> Represented | None:
    """Return the numbers that integers stand for which a node quantised together with their scale and zero point."""
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
