"""Products of matrices, batches of them, and scaled sums with a bias: `MatMul` and `Gemm`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import ROUNDED, ProductRounding, accumulation, double_share, growth, unit
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rounding import flush, round_outward
from ranum_falsify.domain.rules.matrix.bilinear import bilinear, is_known, stretch
from ranum_falsify.domain.rules.matrix.integers import EXACT, largest_of


def matrix_product(
    a: Interval,
    b: Interval,
    bias: Interval | None = None,
    *,
    transposed: tuple[bool, bool] = (False, False),
    rounding: Callable[[int], ProductRounding] = lambda terms: ROUNDED,
) -> Interval:
    """Return bounds on a matrix product, as `torch.matmul`: with batch dimensions, vectors as rows and columns.

    Args:
        a: First factor, `(..., m, k)` or `(k,)`.
        b: Second factor, `(..., k, n)` or `(k,)`.
        bias: Tensor to add; it broadcasts to the result.
        transposed: Whether the last two dimensions of each are exchanged first.
        rounding: How kernels round sums of some products.
    """
    left, right = _as_rows(a, transposed[0]), _as_columns(b, transposed[1])
    if not left.shape[-1]:  # a sum of no terms is that of a zero
        left = Interval.fill(0, 0, (*left.shape[:-1], 1), left.dtype)
        right = Interval.fill(0, 0, (*right.shape[:-2], 1, right.shape[-1]), right.dtype)
    count = left.shape[-1]
    rows, right_stored = left.shape[-2], right.lower.shape[-2]
    once_left, once_right = left.lower.shape[-1] < count, right_stored < count

    def product(x: Tensor, y: Tensor, c: Tensor | None) -> Tensor:
        if once_left and once_right:
            y = y * count
        elif once_left and y.shape[-2] > 1:
            y = y.sum(-2, keepdim=True)
        elif once_right:
            x = x.sum(-1, keepdim=True)
        if c is not None and c.ndim <= 2 and x.ndim == y.ndim == 2 and _fits(c, x.shape[0], y.shape[1]):
            return torch.addmm(c, x, y)
        result = torch.matmul(x, y)
        return result if c is None else result + c

    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    shape = (*batch, rows, right.shape[-1])
    alike = [len(right.shape) - 2] if once_left and not once_right else []
    how = rounding(count)
    if bias is not None and not how.cuts and _absorbs(left, right, count, bias):
        result = _bound_beside(bilinear(product, left, right, terms=count, shape=shape, alike=alike), bias, count)
    else:
        result = bilinear(product, left, right, terms=count, shape=shape, bias=bias, alike=alike, rounding=how)
    dropped = [dim for dim, x in ((-2, a), (-1, b)) if len(x.shape) == 1]
    return _drop_dims(result, dropped)


def _absorbs(a: Interval, b: Interval, terms: int, bias: Interval) -> bool:
    """Tell whether a bias, such as a mask of the lowest number, is so large that products vanish beside it."""
    work = accumulation(bias.dtype)
    if not bias.is_floating or bias.dtype is not work or any(x.may_be_infinite or not x.size for x in (a, b, bias)):
        return False
    if largest_of(bias) * (1 + growth(terms + 4, work)) < torch.finfo(work).max / 2:
        return False
    return vanishes_beside(a, b, terms)


def _bound_beside(product: Interval, bias: Interval, terms: int) -> Interval:
    """Return bounds of a bias to which products are added that vanish beside the largest number, in any order.

    No sum on the way leaves the finite range: see :func:`vanishes_beside`.

    Args:
        product: Bounds on the sum of the products.
        bias: The bias, which broadcasts to the product.
        terms: How many products are added up.
    """
    low, high = bias.doubles()
    error = growth(terms + 4, bias.dtype)
    low, high = low - error * low.abs() + product.lower.double(), high + error * high.abs() + product.upper.double()
    return round_outward(low, high, bias.dtype, product.shape).keep_finite()


def _fits(c: Tensor, rows: int, columns: int) -> bool:
    sizes = (1, 1, *c.shape)[-2:]
    return sizes[0] in (1, rows) and sizes[1] in (1, columns)


def _as_rows(x: Interval, transposed: bool) -> Interval:
    if len(x.shape) > 1:
        return _rearrange(x, lambda t: t.mT) if transposed else x
    return _rearrange(x, lambda t: t[None])


def _as_columns(x: Interval, transposed: bool) -> Interval:
    if len(x.shape) > 1:
        return _rearrange(x, lambda t: t.mT) if transposed else x
    return _rearrange(x, lambda t: t[:, None])


def _rearrange(x: Interval, view: Callable[[Tensor], Tensor]) -> Interval:
    """Return the bounds with dimensions exchanged or added; their extremes stay known."""
    low = view(x.lower)
    shape = tuple(view(torch.empty(x.shape, device="meta")).shape)
    result = Interval(low, low if is_known(x) else view(x.upper), shape)
    result.__dict__["extremes"] = x.extremes
    return result


def _drop_dims(x: Interval, dims: list[int]) -> Interval:
    """Return the bounds without dimensions of size 1."""
    low, high, shape = x.lower, x.upper, torch.empty(x.shape, device="meta")
    for dim in sorted(dims):
        low, high, shape = low.select(dim, 0), high.select(dim, 0), shape.select(dim, 0)
    return Interval(low, high, tuple(shape.shape), x.nan, x.overflows)


def sum_scaled(product: Interval, alpha: float, bias: Interval | None, beta: float) -> Interval:
    """Return bounds on `alpha * product + beta * bias`, each part rounded or fused.

    Args:
        product: Bounds on a product.
        alpha: Its factor; for integers, the scaled value is truncated towards 0.
        bias: Tensor to add; it broadcasts to the product.
        beta: Its factor.
    """
    parts = [_scale(product, alpha)] if bias is None else [_scale(product, alpha), _scale(bias, beta)]
    if not product.is_floating:
        return _wrap_sum(parts, product)
    low, high = parts[0].lower, parts[0].upper
    nan = product.nan or (not alpha and product.may_be_infinite)
    for part in parts[1:]:
        opposite = ((low == -math.inf) & (part.upper == math.inf)) | ((high == math.inf) & (part.lower == -math.inf))
        nan = nan or bool(opposite.any())
        low, high = low + part.lower, high + part.upper
    low, high = low.nan_to_num(-math.inf, math.inf, -math.inf), high.nan_to_num(math.inf, math.inf, -math.inf)
    return replace(flush(Interval.of(low, high, product.shape)), nan=nan)


def _scale(x: Interval, factor: float) -> Interval:
    """Return bounds on a scaled operand; in float64 for integers."""
    low, high = (x.lower, x.upper) if x.is_floating else x.doubles()
    ends = (low * factor, high * factor) if factor >= 0 else (high * factor, low * factor)
    if x.is_floating:
        # If it is fused with the sum, the scaled value is not rounded separately.
        share = 4 * unit(x.dtype)
        return Interval.of(stretch(ends[0], -share), stretch(ends[1], share), x.shape)
    return Interval.of(ends[0].trunc(), ends[1].trunc(), x.shape)


def _wrap_sum(parts: list[Interval], like: Interval) -> Interval:
    """Return the sum of float64 bounds in an integer dtype; its whole range where the sum may wrap."""
    low = sum((part.lower for part in parts[1:]), parts[0].lower)
    high = sum((part.upper for part in parts[1:]), parts[0].upper)
    least, greatest = dtype_range(like.dtype)
    exact = bool((low.abs() < EXACT).all()) and bool((high.abs() < EXACT).all())
    fits = exact and bool((low >= least).all()) and bool((high <= greatest).all())
    if not fits:
        return Interval.top(like.shape, like.dtype)
    return Interval.of(low.to(like.dtype), high.to(like.dtype), like.shape)


def overflows_in_parts(
    a: Interval,
    b: Interval,
    terms: int,
    *,
    factor: float = 1.0,
    beside: float = 0.0,
    sums: Callable[[Tensor], Tensor] | None = None,
    rounding: ProductRounding = ROUNDED,
) -> bool:
    """Tell whether part of a sum of products may overflow because kernels scale each part before adding it.

    They do so block by block, into memory that holds a bias: the whole sum may be far smaller than its parts.

    Args:
        a: First factor of the products.
        b: Second factor.
        terms: The largest number of products that are added up.
        factor: Factor of each part.
        beside: Greatest magnitude of the numbers to which the parts are added.
        sums: Adds numbers of the second factor up that are in one sum; if not given, each counts as the largest.
        rounding: How kernels round the sums.
    """
    if not a.is_floating or not a.size or not b.size:
        return False
    share = rounding.growth(terms + 4, a.dtype)
    limit = torch.finfo(a.dtype if rounding.between else accumulation(a.dtype)).max
    if _bound_parts(a, b, terms, factor, share) + beside * (1 + share) <= limit:
        return False
    if sums is None:
        return True
    total = float(sums(finite_sizes(b).double().expand(b.shape)).amax()) * (1 + double_share(terms))
    return not abs(factor) * total * largest_finite(a) * (1 + share) + beside * (1 + share) <= limit


def vanishes_beside(a: Interval, b: Interval, terms: int, *, factor: float = 1.0, bias: float = 0.0) -> bool:
    """Tell whether a sum of products is lost beside the largest number, in whatever parts it is added to that.

    Sums of numbers that are together less than half a unit in the last place of the largest one round to it at most.

    Args:
        a: First factor of the products.
        b: Second factor.
        terms: The largest number of products that are added up.
        factor: Factor of each part.
        bias: Greatest magnitude of what else is added.
    """
    work = accumulation(a.dtype)
    return _bound_parts(a, b, terms, factor, growth(terms + 4, a.dtype)) + bias < torch.finfo(work).max * unit(work) / 2


def _bound_parts(a: Interval, b: Interval, terms: int, factor: float, share: float) -> float:
    """Return the greatest magnitude of any part of a sum of scaled products, with a share of it as its error."""
    return abs(factor) * terms * largest_finite(a) * largest_finite(b) * (1 + share)


def largest_finite(x: Interval) -> float:
    """Return the greatest magnitude of a finite element."""
    return float(finite_sizes(x).amax()) if x.may_be_infinite else largest_of(x)


def finite_sizes(x: Interval) -> Tensor:
    """Return the greatest magnitude of each element while it is finite, in the stored shape; 0 where it never is."""
    low, high = x.doubles()
    size = torch.maximum(low.abs(), high.abs()).clamp(max=torch.finfo(x.dtype).max)
    return torch.where(low.isinf() & (low == high), 0.0, size)
