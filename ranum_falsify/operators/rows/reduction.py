"""Reductions along axes, cumulative sums and products, positions of extremes, and the largest or smallest in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.linear.declarations import Affine, Extremum, summation
from ranum_falsify.domain.rules.reduction import (
    Bound,
    along,
    euclidean,
    extreme,
    log_of_sum,
    log_of_sum_of_exponentials,
    mean,
    position,
    product,
    running_product,
    running_sum,
    sum_of,
    sum_of_squares,
    top,
    total,
    total_of_sizes,
)
from ranum_falsify.domain.rules.support.definitions import of_exponentials
from ranum_falsify.domain.rules.wide_integers import between_elements, rounded_words
from ranum_falsify.domain.site import IntervalRule
from ranum_falsify.network.registry import TorchFunction
from ranum_falsify.operators.relations.entropies import sum_of_entropies
from ranum_falsify.operators.relations.masked_rows import first_is_largest, sum_of_votes
from ranum_falsify.operators.relations.matching import reduced_dims
from ranum_falsify.operators.relations.norm_bounds import sum_of_products
from ranum_falsify.operators.relations.patterns import (
    mean_of_squared_differences,
    refined,
    sum_of_exponentials,
    sum_of_shares,
)
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.conditions import WithinLimits, axes_of, check_axes
from ranum_falsify.operators.support.families import making, plain, summing
from ranum_falsify.operators.support.functions import ints
from ranum_falsify.validity import Bounds, Condition, GreaterThan, Operands

Reduction = Callable[[Tensor, list[int], bool], Tensor]
"""`fn(x, dims, keepdim)` with at least one dimension, in ascending order and not negative."""


def _reduced(reduction: Reduction, *, of_one: Callable[[Tensor], Tensor] | None = None) -> TorchFunction:
    """Return the row function of a reduction; of a single element it computes nothing if `of_one` is not given."""

    def evaluate(op: Operation, x: Tensor, axes: np.ndarray | None) -> Tensor:
        check_axes(x, ints(axes) or ())
        dims = reduced_dims(op, x.ndim, axes)
        if dims:
            return reduction(x, dims, bool(op.keepdims)).to(x.dtype)
        return x if of_one is None else of_one(x).to(x.dtype)

    return evaluate


def _bounded(bound: Bound, *, of_one: bool = True) -> IntervalRule:
    return rounded_words(along(bound, reduced_dims, of_one=of_one))


def _floating(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.double()


def _sum(x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    return torch.sum(x, dims, keepdim, dtype=x.dtype)


def _mean(x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    if not x.numel():
        return _sum(x, dims, keepdim)
    return torch.mean(_floating(x), dims, keepdim)


def _l1(x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    return _sum(x.abs(), dims, keepdim)


def _l2(x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    return _root(_sum_square(_floating(x), dims, keepdim))


def _root(x: Tensor) -> Tensor:
    # The derivative at 0 would be 0 * inf = NaN; a zero vector has no direction of ascent, so 0 serves.
    zero = x == 0
    return x.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)


def _sum_square(x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    return _sum(x * x, dims, keepdim)


def _log_sum(x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    return _sum(_floating(x), dims, keepdim).log()


def _log_sum_exp(x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    return torch.logsumexp(_floating(x), dims, keepdim)


def _product(x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    for dim in reversed(dims):
        x = torch.prod(x, dim, keepdim, dtype=x.dtype)
    return x


def _extreme(function: Callable[..., Tensor], *, of_none: float) -> Reduction:
    """Return the reduction by `amax` or `amin`, which gives the worst value where there are no elements."""

    def reduction(x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
        if all(x.shape[dim] for dim in dims):
            return function(x, dims, keepdim)
        kept = [1 if i in dims else size for i, size in enumerate(x.shape) if keepdim or i not in dims]
        return torch.full(kept, _worst(x.dtype, of_none), dtype=x.dtype, device=x.device)

    return reduction


def _worst(dtype: torch.dtype, infinity: float) -> float:
    if dtype.is_floating_point:
        return infinity
    if dtype is torch.bool:
        return infinity > 0
    return torch.iinfo(dtype).max if infinity > 0 else torch.iinfo(dtype).min


_MAX = _extreme(torch.amax, of_none=-math.inf)
_MIN = _extreme(torch.amin, of_none=math.inf)


def _log_sum_margin(op: Operation, operands: Operands) -> Tensor:
    x, axes = operands["data"], operands.get("axes")
    dims = reduced_dims(op, x.ndim, None if axes is None else np.asarray(axes))
    total = _sum(_floating(x), dims, bool(op.keepdims)) if dims else _floating(x)
    return torch.where(total <= 0, total - torch.finfo(total.dtype).tiny, total)


def _log_sum_holds(op: Operation, operands: Bounds) -> bool:
    x = operands["data"]
    if isinstance(op.axes, Operation):
        return False
    dims = reduced_dims(op, len(x.shape), op.axes)
    summed = sum_of(x, dims) if dims else x
    return not summed.nan and bool((summed.doubles()[0] > 0).all())


def _log_sum_fails(op: Operation, operands: Bounds) -> bool:
    x = operands["data"]
    if isinstance(op.axes, Operation) or not x.is_floating or x.may_be_infinite:
        return False
    dims = reduced_dims(op, len(x.shape), op.axes)
    summed = sum_of(x, dims) if dims else x
    return summed.size > 0 and bool((summed.upper <= 0).any())


_ON_AXES = axes_of("axes", "data")

_over_axes = partial(summing, batch=batching.reduced, linear=None, static=("axes",), valid=[_ON_AXES])


@_over_axes(
    torch=_reduced(_sum),
    interval=refined(
        _bounded(total, of_one=False),
        sum_of_exponentials,
        sum_of_shares,
        sum_of_votes,
        mean_of_squared_differences,
        sum_of_products,
        sum_of_entropies,
    ),
    linear=Affine(terms=summation),
)
class ReduceSum(Operation):
    """https://onnx.ai/onnx/operators/onnx__ReduceSum.html."""


@_over_axes(
    torch=_reduced(_mean),
    interval=refined(_bounded(mean, of_one=False), mean_of_squared_differences),
    linear=Affine(terms=summation),
)
class ReduceMean(Operation):
    """https://onnx.ai/onnx/operators/onnx__ReduceMean.html."""


@_over_axes(torch=_reduced(_product), interval=_bounded(product, of_one=False))
class ReduceProd(Operation):
    """https://onnx.ai/onnx/operators/onnx__ReduceProd.html."""


def _reads_something(op: Operation, shape: Sequence[int], axes: np.ndarray | None) -> bool:
    """Tell whether a reduction has an element for each result."""
    dims = reduced_dims(op, len(shape), axes)
    return all(shape[dim] for dim in dims) or not all(n for dim, n in enumerate(shape) if dim not in dims)


def _extreme_margin(op: Operation, operands: Operands) -> Tensor:
    axes = operands.get("axes")
    x = operands["data"]
    reads = not x.is_floating_point() or _reads_something(op, x.shape, None if axes is None else np.asarray(axes))
    # It is the same for all results, which are not known of what ONNX Runtime alone has run.
    shape = operands["output"].shape if "output" in operands else ()
    return torch.full(shape, 1.0 if reads else -1.0, device=x.device)


def _extreme_holds(op: Operation, operands: Bounds) -> bool:
    x = operands["data"]
    if not x.is_floating or x.size:
        return True
    return not isinstance(op.axes, Operation) and _reads_something(op, x.shape, op.axes)


def _extreme_fails(op: Operation, operands: Bounds) -> bool:
    return not isinstance(op.axes, Operation) and not _extreme_holds(op, operands)


def _reduced_elements(op: Operation, places: Tensor, axes: np.ndarray | None) -> Tensor:
    """Return the elements that are reduced to one along a last dimension."""
    dims = reduced_dims(op, places.ndim, axes)
    moved = places.movedim(dims, tuple(range(-len(dims), 0))) if dims else places
    return moved.reshape(*moved.shape[: places.ndim - len(dims)], -1)


_NOT_EMPTY = Condition(
    "there are elements to compare",
    "extreme of no elements",
    margin_of=_extreme_margin,
    holds_of=_extreme_holds,
    fails_of=_extreme_fails,
)


@_over_axes(
    torch=_reduced(_MAX),
    interval=_bounded(between_elements(extreme(_MAX)), of_one=False),
    linear=Extremum(windows=_reduced_elements),
    valid=[_NOT_EMPTY, _ON_AXES],
    overflow=False,
)
class ReduceMax(Operation):
    """https://onnx.ai/onnx/operators/onnx__ReduceMax.html."""


@_over_axes(
    torch=_reduced(_MIN),
    interval=_bounded(between_elements(extreme(_MIN)), of_one=False),
    linear=Extremum(windows=_reduced_elements, greatest=False),
    valid=[_NOT_EMPTY, _ON_AXES],
    overflow=False,
)
class ReduceMin(Operation):
    """https://onnx.ai/onnx/operators/onnx__ReduceMin.html."""


@_over_axes(torch=_reduced(_l1, of_one=torch.abs), interval=_bounded(total_of_sizes))
class ReduceL1(Operation):
    """https://onnx.ai/onnx/operators/onnx__ReduceL1.html."""


@_over_axes(
    torch=_reduced(_l2, of_one=torch.abs),
    interval=_bounded(euclidean),
    gradient_valid=[GreaterThan("output", 0.0, reason="derivative of the Euclidean norm at zero")],
)
class ReduceL2(Operation):
    """https://onnx.ai/onnx/operators/onnx__ReduceL2.html."""


@_over_axes(torch=_reduced(_sum_square, of_one=torch.square), interval=_bounded(sum_of_squares))
class ReduceSumSquare(Operation):
    """https://onnx.ai/onnx/operators/onnx__ReduceSumSquare.html."""


@_over_axes(
    torch=_reduced(_log_sum, of_one=torch.log),
    interval=_bounded(log_of_sum),
    kernel="Log",
    valid=[
        Condition(
            "the sum of data is positive",
            reason="logarithm of a non-positive sum",
            margin_of=_log_sum_margin,
            crossing_of=_log_sum_margin,
            holds_of=_log_sum_holds,
            fails_of=_log_sum_fails,
        ),
        _ON_AXES,
    ],
)
class ReduceLogSum(Operation):
    """https://onnx.ai/onnx/operators/onnx__ReduceLogSum.html."""


@_over_axes(
    torch=_reduced(_log_sum_exp),
    interval=of_exponentials(_bounded(log_of_sum_of_exponentials)),
    kernel=("Exp", "Log"),
)
class ReduceLogSumExp(Operation):
    """https://onnx.ai/onnx/operators/onnx__ReduceLogSumExp.html."""


def _position(function: Callable[[Tensor, int, bool], Tensor]) -> TorchFunction:
    def evaluate(op: Operation, x: Tensor) -> Tensor:
        check_axes(x, [op.axis])
        if not op.select_last_index:
            return function(x, op.axis, bool(op.keepdims))
        backwards = function(x.flip(op.axis), op.axis, bool(op.keepdims))
        return torch.sub(x.shape[op.axis] - 1, backwards)

    return evaluate


@making(torch=_position(torch.argmax), interval=position(largest=True))
class ArgMax(Operation):
    """https://onnx.ai/onnx/operators/onnx__ArgMax.html."""


@making(torch=_position(torch.argmin), interval=position(largest=False))
class ArgMin(Operation):
    """https://onnx.ai/onnx/operators/onnx__ArgMin.html."""


def _cumulated(function: Callable[..., Tensor], *, start: int) -> Callable[..., Tensor]:
    """Return the row function of a running sum or product whose empty value is `start`."""

    def evaluate(op: Operation, x: Tensor, axis: np.ndarray) -> Tensor:
        dim = int(np.asarray(axis).reshape(-1)[0])
        if op.reverse:
            x = x.flip(dim)
        if op.exclusive:
            head = torch.full_like(x.narrow(dim, 0, 1), start)
            x = torch.cat([head, x.narrow(dim, 0, x.shape[dim] - 1)], dim)
        result = function(x, dim, dtype=x.dtype)
        return result.flip(dim) if op.reverse else result

    return evaluate


_RUNNING_SUM = _cumulated(torch.cumsum, start=0)
_RUNNING_PRODUCT = _cumulated(torch.cumprod, start=1)


@plain(torch=_RUNNING_SUM, interval=running_sum(_RUNNING_SUM), valid=[axes_of("axis", "x")], static=("axis",))
class CumSum(Operation):
    """https://onnx.ai/onnx/operators/onnx__CumSum.html."""


@plain(
    torch=_RUNNING_PRODUCT, interval=running_product(_RUNNING_PRODUCT), valid=[axes_of("axis", "x")], static=("axis",)
)
class CumProd(Operation):
    """https://onnx.ai/onnx/operators/onnx__CumProd.html."""


def _top_k(op: Operation, x: Tensor, k: np.ndarray) -> tuple[Tensor, Tensor]:
    # A stable sort gives the lower index first among equals, as ONNX asks; `torch.topk` gives any.
    descending = True if op.largest is None else bool(op.largest)
    values, indices = torch.sort(x, stable=True, dim=op.axis, descending=descending)
    # ONNX Runtime refuses other counts, which must not stop a batch.
    count = min(max(int(np.asarray(k).reshape(-1)[0]), 0), x.shape[op.axis])
    return values.narrow(op.axis, 0, count), indices.narrow(op.axis, 0, count)


_COUNTS = WithinLimits(
    "k",
    "0 <= k <= the size of the axis",
    lambda op, operands: (0, int(operands["x"].shape[op.axis])),
    reason="ONNX Runtime refuses other counts",
)


@making(torch=_top_k, interval=first_is_largest(top), valid=[_COUNTS], static=("k",))
class TopK(Operation):
    """https://onnx.ai/onnx/operators/onnx__TopK.html."""
