"""Scalar products of rows of known length, and with rows of shares.

A scalar product is at most the product of the lengths (Cauchy and Schwarz), however long the rows are: cosines, and
similarities by them, lie between -1 and 1.  One with sizes that are not negative and add up to at most about 1, such as
those of a softmax, lies between the least and the greatest of the numbers that it weighs, or 0, however many they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect

from ranum_falsify.domain.error_bounds import ELEMENTWISE_ROUNDINGS, sum_error, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.relations.fused import is_beside_quantised
from ranum_falsify.operators.relations.matching import (
    WIDENING,
    Field,
    Reduced,
    fields_of,
    find_reduction,
    is_a,
    is_fit,
    is_same,
    kind,
    reduced_dims,
    rounds_apart,
    source,
    square_of,
    undo_widening,
)
from ranum_falsify.operators.relations.quotients import find_lower_limit, find_root_of_squares
from ranum_falsify.operators.support.functions import ints

_DEEPEST = 6
"""How many nodes back a length, or a softmax, is looked for."""

_SHARE = 0.999
"""Of a limit of a divisor, for the rounding of the limit."""


def product_of_rows(site: Site, a: Interval, b: Interval, *rest: Interval | None) -> Interval | None:
    """Bound a product of matrices, perhaps transposed and times a number, by the lengths of rows and columns."""
    if not is_fit(a, b) or any(x is not None for x in rest) or not a.shape or not b.shape:
        return None
    op = site.op
    moved = getattr(op, "transpose_batch_a", 0) or getattr(op, "transpose_batch_b", 0)
    # Beside a vector, ONNX Runtime's kernel sums what is no row or column of a matrix to be transposed.
    moved = moved or (len(b.shape) == 1 and getattr(op, "transpose_a", 0))
    if moved or is_beside_quantised(op):
        return None
    rows = len(a.shape) - (2 if getattr(op, "transpose_a", 0) and len(a.shape) > 1 else 1)
    columns = len(b.shape) - (1 if getattr(op, "transpose_b", 0) or len(b.shape) == 1 else 2)
    first, second, *_ = fields_of(op)
    limit = _bound_product(site, (first, rows), (second, columns), a)
    limit *= 1 + site.rounding(a.shape[rows], a.dtype).beyond(a.shape[rows], a.dtype)
    limit *= abs(float(getattr(op, "alpha", 1.0))) * (1 + 4 * unit(a.dtype))
    return _within(limit, site.shape, a.dtype)


def sum_of_products(site: Site, x: Interval, axes: np.ndarray | None) -> Interval | None:
    """Bound the sum of elementwise products along one dimension by the lengths of what is multiplied."""
    product = is_a(site.op.data, "Mul")
    dims = reduced_dims(site.op, len(x.shape), axes)
    if product is None or len(dims) != 1 or not is_fit(x):
        return None
    first, second = fields_of(product)
    known = [site.find_known(field) for field in (first, second)]
    if any(one is None or one.shape != x.shape or not is_fit(one) for one in known):
        return None
    return _within(_bound_product(site, (first, dims[0]), (second, dims[0]), x), site.shape, x.dtype)


def cosine_by_squares(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound sum(x y) / sqrt((sum(x^2) + e) (sum(y^2) + e)), the cosine of two rows but for e > 0."""
    root = is_a(site.op.b, "Sqrt")
    whole = None if root is None else is_a(fields_of(root)[0], "Mul")
    product = None if whole is None else _find_sum(site, site.op.a)
    factors = None if product is None else is_a(product[0], "Mul")
    if whole is None or product is None or factors is None or a.may_be_infinite or rounds_apart(site, a):
        return None
    count, dtypes = product[1], [product[-1]]
    least: list[float] = []
    squared: list[Field] = []
    for field in fields_of(whole):
        epsilon, inner = find_lower_limit(field) if is_a(field, "Add") else (0.0, field)
        squares = _find_sum(site, inner)
        if squares is None or squares[1:-1] != product[1:-1]:
            return None
        squared.append(square_of(squares[0]))
        least.append(epsilon)
        dtypes.append(squares[-1])
    (x, y), (one, other) = fields_of(factors), squared
    if not ((is_same(x, one) and is_same(y, other)) or (is_same(x, other) and is_same(y, one))):
        return None
    # Products may be rounded to a narrower type before they are added up.
    coarsest = max((a.dtype, *dtypes), key=unit)
    error = sum_error(count, a.dtype, ELEMENTWISE_ROUNDINGS) + 2 * unit(coarsest)
    smallest = max(tiny(dtype) for dtype in (a.dtype, *dtypes))
    # Squares below the smallest normal number may be lost, which epsilon far exceeds.
    if error > 0.1 or min(*least, math.prod(least)) < 1e6 * count * smallest:
        return None
    limit = (1 + error) / (1 - error) * (1 + 16 * unit(a.dtype))
    return _within(limit + 2 * count * smallest / math.sqrt(math.prod(least)), site.shape, a.dtype)


def _find_sum(site: Site, field: Field) -> tuple[Field, int, list[int], int, int, torch.dtype] | None:
    """Return what a field is the sum of, how many of it, along which dimensions, the ranks of both, and its type.

    Where counts, dimensions and ranks agree, sums of products and of squares stand beside each other as their rows do.
    Wider types of sums do not matter.
    """
    cast = is_a(field, "Cast")
    op = is_a(field if cast is None else fields_of(cast)[0], "ReduceSum")
    if op is None:
        return None
    operand, *axes = fields_of(op)
    x, y, whole = (site.find_known(one) for one in (operand, op, field))
    if x is None or y is None or whole is None or any(isinstance(one, Operation) for one in axes):
        return None
    if cast is not None and (whole.dtype, y.dtype) not in WIDENING:
        return None
    dims = reduced_dims(op, len(x.shape), axes[0] if axes and isinstance(axes[0], np.ndarray) else None)
    summed = undo_widening(site, operand)
    narrow = site.find_known(summed) or x
    return summed, math.prod(x.shape[dim] for dim in dims), dims, len(x.shape), len(y.shape), narrow.dtype


def _within(limit: float, shape: tuple[int, ...], dtype: torch.dtype) -> Interval | None:
    return Interval.fill(-limit, limit, shape, dtype) if limit < torch.finfo(dtype).max else None


def _bound_product(site: Site, left: tuple[Field, int], right: tuple[Field, int], x: Interval) -> float:
    """Return how large a computed scalar product of sections of two fields can be."""
    # Lengths by the bounds alone say no more than the bounds.
    if not any(_is_shaped(site, *side) for side in (left, right)):
        return math.inf
    count = x.shape[left[1]]
    product = _length(site, *left) * _length(site, *right)
    return product * (1 + sum_error(count, x.dtype, ELEMENTWISE_ROUNDINGS)) + 2 * count * tiny(x.dtype)


def _is_shaped(site: Site, field: Field, dim: int) -> bool:
    return any(True for _ in _lengths_by_nodes(site, field, dim, _DEEPEST))


def _length(site: Site, field: Field, dim: int, depth: int = _DEEPEST) -> float:
    """Return a bound of the lengths of the sections of a tensor along a dimension."""
    x = site.find_known(field)
    if x is None or not is_fit(x):
        return math.inf
    size = torch.maximum(*(end.abs() for end in x.doubles()))
    squares = size.square().sum(dim) * (x.shape[dim] if size.shape[dim] == 1 else 1)
    found = [math.sqrt(float(squares.amax())) * (1 + 1e-9)]
    return min(found + list(_lengths_by_nodes(site, field, dim, depth)))


def _lengths_by_nodes(site: Site, field: Field, dim: int, depth: int) -> Iterator[float]:
    """Yield bounds of the lengths of sections that follow from how a tensor is computed."""
    field = source(field)
    if isinstance(field, OutputSelect) and kind(field.operation) == "Split" and depth:
        yield from _lengths_by_nodes(site, fields_of(field.operation)[0], dim, depth - 1)
        return
    op = is_a(field, "Concat", "Div", "Mul", "Slice", "Softmax", "Transpose", "Unsqueeze")
    x = site.find_known(field)
    if op is None or x is None or not depth or not is_fit(x):
        return
    rank, parts = len(x.shape), fields_of(op)
    if kind(op) == "Softmax":
        whole = bound_sum_of_shares(site, op, x, dim)
        if whole is not None:
            yield whole
    elif kind(op) == "Concat":
        if op.axis % rank != dim and all(any(True for _ in _lengths_by_nodes(site, p, dim, depth - 1)) for p in parts):
            yield max(_length(site, part, dim, depth - 1) for part in parts)
    elif kind(op) == "Slice":
        yield from _lengths_by_nodes(site, parts[0], dim, depth - 1)
    elif kind(op) == "Transpose":
        order = ints(op.permutation) or list(reversed(range(rank)))
        yield from _lengths_by_nodes(site, parts[0], order[dim], depth - 1)
    elif kind(op) == "Unsqueeze" and isinstance(parts[1], np.ndarray):
        added = {axis % rank for axis in ints(parts[1]) or ()}
        if dim not in added:
            inner = dim - sum(axis < dim for axis in added)
            yield from _lengths_by_nodes(site, parts[0], inner, depth - 1)
    else:
        yield from _lengths_of_scaled(site, field, x, dim, depth)


def _lengths_of_scaled(site: Site, field: Field, x: Interval, dim: int, depth: int) -> Iterator[float]:
    """Yield bounds of lengths where rows were multiplied by one number, or divided by one, or by their length."""
    op = is_a(field, "Div", "Mul")
    assert op is not None
    a, b = fields_of(op)
    known = [site.find_known(one) for one in (a, b)]
    for number, inner in enumerate((a, b)[: 1 if kind(op) == "Div" else 2]):
        whole, scale = known[number], known[1 - number]
        if whole is None or scale is None or whole.shape != x.shape or scale.size != 1 or not scale.is_floating:
            continue
        if kind(op) == "Div" and scale.distance < tiny(x.dtype):
            continue
        size = max(map(abs, scale.extremes)) if kind(op) == "Mul" else 1 / scale.distance
        lost = math.sqrt(x.shape[dim]) * tiny(x.dtype)
        for length in _lengths_by_nodes(site, inner, dim, depth - 1):
            yield length * size * (1 + 4 * unit(x.dtype)) + lost
    if kind(op) == "Div" and known[0] is not None and known[0].shape == x.shape:
        found = _find_norm(site, a, b)
        if found is not None and found[0].dims == [dim]:
            yield _length_over(found[0], found[1], x)


def _length_over(norm: Reduced, least: float, x: Interval) -> float:
    """Return a bound of the lengths of rows over their norms, which are no less than a limit.

    Squares below the smallest normal number may be lost in the norm, so that only the limit keeps these rows short.
    """
    error = sum_error(norm.count, x.dtype, ELEMENTWISE_ROUNDINGS)
    if error > 0.1:
        return math.inf
    lost = 2 * norm.count * tiny(x.dtype)
    share = math.sqrt(norm.count) if is_a(norm.op, "ReduceMean") else 1.0
    length = share / (1 - error) + math.sqrt(lost) / (_SHARE * least)
    return length * (1 + 2 * unit(x.dtype)) + math.sqrt(lost) * unit(x.dtype)


def _find_norm(site: Site, x: Field, divisor: Field) -> tuple[Reduced, float] | None:
    """Return the norm of x that a divisor is, or the root of its mean square, and a positive limit of the divisor."""
    least, field = find_lower_limit(divisor)
    norm = find_reduction(site, field, "ReduceL2")
    if norm is not None:
        return (norm, least) if is_same(norm.operand, x) and least > 0 else None
    root = find_root_of_squares(site, field, x)
    if root is None:
        return None
    norm, epsilon, added = root
    least = max(least, added, math.sqrt(epsilon))
    return (norm, least) if least > 0 else None


# shares ---------------------------------------------------------------------------------------------------------


def weighted_means(site: Site, a: Interval, b: Interval, *rest: Interval | None) -> Interval | None:
    """Bound a product of matrices, the second perhaps transposed, whose first one has rows of shares."""
    op = site.op
    moved = any(getattr(op, f"transpose{which}", 0) for which in ("_a", "_batch_a", "_batch_b"))
    factor = float(getattr(op, "alpha", 1.0))
    known = all(x.is_floating and x.size and not x.may_be_infinite for x in (a, b))
    if moved or not known or any(x is not None for x in rest) or min(len(a.shape), len(b.shape)) < 2:
        return None
    whole = None if is_beside_quantised(op) else _bound_shares(site, fields_of(op)[0])
    if whole is None or factor < 0:
        return None
    keys, along = a.shape[-1], -1 if getattr(op, "transpose_b", 0) else -2
    low, high = (end.expand(b.shape) if end.shape[along] != keys else end for end in b.doubles())
    low, high = low.amin(along, keepdim=True).clamp(max=0) * whole, high.amax(along, keepdim=True).clamp(min=0) * whole
    if along == -1:
        low, high = low.mT, high.mT
    size, how = torch.maximum(-low, high), site.rounding(keys, a.dtype)
    lost = how.lost(keys, a.dtype, max(whole, float(size.max())))
    error = size * (how.growth(keys, a.dtype) + 4 * unit(a.dtype)) + lost
    if not bool(((size + error) * max(factor, 1) < torch.finfo(a.dtype).max).all()):
        return None
    return round_outward((low - error) * factor, (high + error) * factor, a.dtype, site.shape)


def _bound_shares(site: Site, field: Field, depth: int = _DEEPEST) -> float | None:
    """Return what numbers that are not negative add up to at most along the last dimension; None if nothing tells."""
    op, x = is_a(field, "Mul", "Softmax", "Where"), site.find_known(field)
    if op is None or x is None or not depth or not x.shape or x.dtype not in (torch.float32, torch.float64):
        return None
    if kind(op) == "Softmax":
        return bound_sum_of_shares(site, op, x, len(x.shape) - 1)
    found = [(_bound_shares(site, share, depth - 1), factor) for share, factor in _list_reduced(site, op, x)]
    return min((whole * factor for whole, factor in found if whole is not None), default=None)


def bound_sum_of_shares(site: Site, op: Operation, x: Interval, dim: int) -> float | None:
    """Return what the results x of a softmax add up to at most along a dimension; None if its rows do not lie there.

    It is a bound of the lengths of the rows, too.
    """
    rank = len(x.shape)
    if op.axis % rank != dim or (op.version < 13 and dim != rank - 1):
        return None
    kernel, count = site.envelope("Exp"), x.shape[dim]
    error = 2 * sum_error(count, x.dtype, ELEMENTWISE_ROUNDINGS) + 4 * kernel.relative
    return 1 + error + 4 * unit(x.dtype) * math.log(count) + count * (tiny(x.dtype) + kernel.absolute)


def _list_reduced(site: Site, op: Operation, x: Interval) -> Iterator[tuple[Field, float]]:
    """Yield operands of a node, each with a factor that no result exceeds of it at the same place."""
    if kind(op) == "Where":
        _, *branches = fields_of(op)
        pairs = (branches, branches[::-1])
        found = [(share, 1.0) for share, other in pairs if isinstance(other, np.ndarray) and not other.any()]
    else:
        first, second = fields_of(op)
        known = [(share, site.find_known(factor)) for share, factor in ((first, second), (second, first))]
        ends = [(share, factor.extremes) for share, factor in known if factor is not None]
        found = [(share, high * (1 + 4 * unit(x.dtype))) for share, (low, high) in ends if 0 <= low <= high < math.inf]
    for share, factor in found:
        inner = site.find_known(share)
        if inner is not None and inner.shape == x.shape:
            yield share, factor
