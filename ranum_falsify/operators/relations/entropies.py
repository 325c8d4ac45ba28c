"""Entropies: the sum of p log(p + epsilon) where the shares p add up to no more than a known number.

Each term alone is at least -1/e, but n of them that add up to 1 together are at least -log(n).
"""

from __future__ import annotations

import math

import numpy as np
import onnx
import torch
from dnnv.nn import Operation

from ranum_falsify.domain.error_bounds import ELEMENTWISE_ROUNDINGS, sum_error, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.relations.matching import (
    Field,
    constant,
    fields_of,
    is_a,
    is_fit,
    is_same,
    kind,
    pairs,
    reduced_dims,
    source,
)
from ranum_falsify.operators.relations.norm_bounds import bound_sum_of_shares

_DEEPEST = 6
"""How many nodes back it is looked for what shares add up to."""

_LARGEST = 2.0
"""Logarithms of larger numbers are no part of an entropy."""


def sum_of_entropies(site: Site, x: Interval, axes: np.ndarray | None) -> Interval | None:
    """Bound the sum of p log(p + e), or of p log(max(p, e)), from below by the entropy of equal shares."""
    product, dims = is_a(site.op.data, "Mul"), reduced_dims(site.op, len(x.shape), axes)
    shares = None if product is None or not dims or not is_fit(x) else _find_shares(product)
    if shares is None:
        return None
    p, q = (site.find_known(field) for field in shares)
    if p is None or q is None or not is_fit(p, q) or p.shape != x.shape or q.shape != x.shape:
        return None
    if p.extremes[0] < 0 or q.extremes[0] <= 0 or q.extremes[1] > _LARGEST:
        return None
    count, total = math.prod(x.shape[dim] for dim in dims), _total(site, shares[0], dims)
    # Shares of which the sum is s are worth at least s log(s / n), which falls up to s = n / e.
    least = total * math.log(total / count) if 0 < total < count / math.e else -count / math.e
    kernel, u = site.envelope("Log"), unit(x.dtype)
    size = -least + 2 * total * math.log(max(q.extremes[1], 1.0))
    error = size * (sum_error(count, x.dtype, ELEMENTWISE_ROUNDINGS) + 2 * kernel.relative)
    error += total * (2 * kernel.absolute + 4 * u) + 2 * count * tiny(x.dtype)
    bound = q.doubles()[0].new_full((1,) * len(site.shape), least - error)
    return round_outward(bound, bound.new_full(bound.shape, math.inf), x.dtype, site.shape)


def _find_shares(product: Operation) -> tuple[Field, Field] | None:
    """Return p and q where a node is p log(q), with q no less than p: p itself, p + e, or max(p, e)."""
    for p, factor in pairs(product):
        logarithm = is_a(factor, "Log")
        if logarithm is None:
            continue
        (q,) = fields_of(logarithm)
        if is_same(q, p) or _is_no_less(q, p):
            return source(p), q
    return None


def _is_no_less(q: Field, p: Field) -> bool:
    op = is_a(q, "Add", "Max", "Clip")
    if op is None:
        return False
    first, *rest = fields_of(op)
    if kind(op) == "Clip":
        return is_same(first, p) and rest[1:] in ([], [None])
    if len(rest) != 1:
        return False
    for x, other in ((first, rest[0]), (rest[0], first)):
        number = constant(other)
        if is_same(x, p) and number is not None and number >= 0:
            return True
    return False


# what shares add up to ------------------------------------------------------------------------------------------


def _total(site: Site, field: Field, dims: list[int], depth: int = _DEEPEST) -> float:
    """Return a number that no sum along dimensions of a tensor, none of which is negative, is above."""
    x = site.find_known(field)
    if x is None or not x.size or x.extremes[0] < 0 or not depth:
        return math.inf
    largest = x.doubles()[1]
    for dim in dims:
        largest = largest.sum(dim, keepdim=True) * (x.shape[dim] if largest.shape[dim] == 1 else 1)
    return min(float(largest.amax()) * (1 + 1e-9), _total_by_node(site, field, x, dims, depth - 1))


def _total_by_node(site: Site, field: Field, x: Interval, dims: list[int], depth: int) -> float:
    op = is_a(field, "Cast", "OneHot", "ReduceMean", "ScatterElements", "Softmax")
    if op is None:
        return math.inf
    name, rank = kind(op), len(x.shape)
    if name == "Cast":
        return _total_of_cast(site, op, dims, rank, depth)
    if name == "ReduceMean":
        return _total_of_means(site, op, x, dims, depth)
    if dims != [op.axis % rank]:
        return math.inf
    if name == "OneHot":
        values = fields_of(op)[2]
        return float(values[1]) if isinstance(values, np.ndarray) and float(values[0]) == 0 else math.inf
    if name == "ScatterElements":
        return _total_of_written(site, op, dims[0])
    whole = bound_sum_of_shares(site, op, x, dims[0])
    return math.inf if whole is None else whole


def _total_of_cast(site: Site, op: Operation, dims: list[int], rank: int, depth: int) -> float:
    """Bound the sum of a Cast: of integers, or the number of true comparisons."""
    inner = fields_of(op)[0]
    while (cast := is_a(inner, "Cast")) is not None and cast.to == onnx.TensorProto.BOOL:
        inner = fields_of(cast)[0]
    test = is_a(inner, "Equal")
    if test is not None:
        several = len(dims) != 1 or not any(_tells_apart(site, a, b, dims[0], rank) for a, b in pairs(test))
        return math.inf if several else 1.0
    known = site.find_known(inner)
    whole = known is not None and not known.is_floating and known.dtype is not torch.bool
    return _total(site, inner, dims, depth) if whole else math.inf


def _tells_apart(site: Site, number: Field, numbers: Field, dim: int, rank: int) -> bool:
    """Tell whether one number is compared with constants along a dimension that all differ."""
    values, known = source(numbers), site.find_known(number)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu" or known is None:
        return False
    shape, other = ((1,) * (rank - len(one)) + tuple(one) for one in (values.shape, known.shape))
    return len(shape) == rank and shape[dim] == values.size == np.unique(values).size and other[dim] == 1


def _total_of_means(site: Site, op: Operation, x: Interval, dims: list[int], depth: int) -> float:
    """Return what means add up to: no more than the numbers that they are of."""
    operand, *axes = fields_of(op)
    inner = site.find_known(operand)
    if inner is None or inner.extremes[0] < 0 or any(isinstance(field, Operation) for field in axes):
        return math.inf
    given = axes[0] if axes else None
    reduced = reduced_dims(op, len(inner.shape), given if isinstance(given, np.ndarray) else None)
    kept = [dim for dim in range(len(inner.shape)) if op.keepdims or dim not in reduced]
    if not reduced or any(kept[dim] in reduced for dim in dims):
        return math.inf
    count = math.prod(inner.shape[dim] for dim in reduced)
    error = sum_error(count, x.dtype, ELEMENTWISE_ROUNDINGS)
    return _total(site, operand, [kept[dim] for dim in dims], depth) * (1 + error)


def _total_of_written(site: Site, op: Operation, dim: int) -> float:
    """Return the greatest number that a node writes to a section of zeros, of which it writes one."""
    before, places, written = fields_of(op)
    indices, updates = site.find_known(places), site.find_known(written)
    if constant(before) != 0 or indices is None or updates is None or not updates.size or indices.shape[dim] != 1:
        return math.inf
    if str(getattr(op, "reduction", "none") or "none") != "none":
        return math.inf
    return max(updates.extremes[1], 0.0)
