"""Features made ready for a model: scaled, normalised, completed, cut off, chosen and put side by side."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.learned.scores import normalise
from ranum_falsify.domain.rules.shape import collapse, take
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.support.conditions import indices_of
from ranum_falsify.operators.support.families import exact
from ranum_falsify.operators.support.ml import DOMAIN, as_rows, as_single, check_finite, learned


def _by_feature(values: tuple[float, ...], shape: tuple[int, ...]) -> Tensor:
    """Return attributes of features, one or one each, in a shape that broadcasts to that of the features."""
    column = torch.tensor(values, dtype=torch.float32)
    if len(values) == 1 or len(shape) <= 2:
        return column
    # Kernels count features along dimension 1, and go through memory in order.
    return column[torch.arange(math.prod(shape)) % shape[1]].reshape(shape)


# scaling --------------------------------------------------------------------------------------------------------


def _scale(op: Operation, x: Tensor) -> Tensor:
    return _move_and_stretch(op, x if x.is_floating_point() else x.float()).float()


def _move_and_stretch(op: Operation, x: Tensor) -> Tensor:
    offset, factor = (_by_feature(v, tuple(x.shape)).to(x.device) for v in (op.offset, op.scale))
    return (x - offset) * factor


@infinity_aware
def _scale_bounds(site: Site, x: Interval) -> Interval:
    offset, factor = (_by_feature(v, x.shape).double() for v in (site.op.offset, site.op.scale))
    u, lost = unit(torch.float32), tiny(torch.float32)
    low, high = x.doubles()
    ends = []
    for end, direction in ((low, -1.0), (high, 1.0)):
        difference = end - offset
        converted = 0.0 if x.is_floating else u * end.abs()
        moved = _stray(difference, direction * (converted + 2 * u * difference.abs() + lost))
        # Where the difference overflows in float32, so does what follows.
        ends.append(_overflow(moved) if x.dtype is not torch.float64 else moved)
    # A factor of 0 makes NaN of an infinite difference, whether the operand is infinite or the difference overflows.
    if any(bool(((factor == 0) & ~end.isfinite()).any()) for end in ends):
        return replace(Interval.fill(-math.inf, math.inf, x.shape, torch.float32), nan=True)
    products = [end * factor for end in ends]
    least, greatest = torch.minimum(*products), torch.maximum(*products)
    return round_outward(
        _stray(least, -2 * u * least.abs() - lost),
        _stray(greatest, 2 * u * greatest.abs() + lost),
        torch.float32,
        x.shape,
    )


def _stray(x: Tensor, error: Tensor) -> Tensor:
    return torch.where(x.isinf(), x, x + error)


def _overflow(x: Tensor) -> Tensor:
    return torch.where(x.abs() > torch.finfo(torch.float32).max, x.sign() * math.inf, x)


@learned(torch=_scale, interval=_scale_bounds, linear=Affine(function=_move_and_stretch))
class Scaler(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_Scaler.html."""


# normalising ----------------------------------------------------------------------------------------------------


def _normalise(op: Operation, x: Tensor) -> Tensor:
    rows = as_rows(x)
    if op.norm == "L2":
        # In the type of the operand, as kernels do.
        squares = (rows * rows).float()
        total = squares.sum(1, keepdim=True)
        y = (squares / total).sqrt()
        y = torch.where(rows < 0, -y, y)
    else:
        single = rows.float()
        size = rows.abs().float() if op.norm == "L1" else single
        total = size.sum(1, keepdim=True) if op.norm == "L1" else size.amax(1, keepdim=True)
        y = single / total
    return torch.where(total == 0, rows.float(), y).reshape(x.shape)


@infinity_aware
def _normalise_bounds(site: Site, x: Interval) -> Interval:
    y = normalise(as_rows(x), site.op.norm)
    if len(x.shape) > 1:
        return y
    return replace(y.move(lambda end: end[0]), nan=y.nan, overflows=y.overflows)


@learned(torch=_normalise, interval=_normalise_bounds)
class Normalizer(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_Normalizer.html."""


# missing values, thresholds -------------------------------------------------------------------------------------


def _imputed(op: Operation, floating: bool) -> tuple[float, tuple[float, ...]]:
    """Return the value that is replaced, and by which values."""
    if floating:
        check_finite(op.imputed_value_floats, "its imputed_value_floats")
        return op.replaced_value_float, op.imputed_value_floats
    return op.replaced_value_int64, op.imputed_value_int64s


def _fill_in(values: tuple[float, ...], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    width = shape[0] if len(shape) == 1 else shape[1]
    if dtype is torch.int64:
        column = torch.tensor(values[:1] if len(values) != width else values)
        return column if len(shape) <= 2 else column[torch.arange(math.prod(shape)) % len(column)].reshape(shape)
    return _by_feature(values if len(values) == width else values[:1], shape).to(dtype)


def _impute(op: Operation, x: Tensor) -> Tensor:
    missing, values = _imputed(op, x.is_floating_point())
    found = x.isnan() if math.isnan(missing) else x == missing
    y: Tensor = torch.where(found, _fill_in(values, tuple(x.shape), x.dtype).to(x.device), x)
    return y


@infinity_aware
def _impute_bounds(site: Site, x: Interval) -> Interval:
    missing, values = _imputed(site.op, x.is_floating)
    column = _fill_in(values, x.shape, x.dtype)
    filled = Interval.of(column, column, x.shape)
    if math.isnan(missing):
        # No operator makes NaN; a constant that is NaN has no bounds at all.
        return x.hull(filled) if x.may_be_infinite else x
    number = torch.tensor(missing, dtype=x.dtype)
    surely = (x.lower == number) & (x.upper == number)
    perhaps = (x.lower <= number) & (x.upper >= number)
    both = x.hull(filled)
    low = torch.where(perhaps, torch.where(surely, filled.lower, both.lower), x.lower)
    high = torch.where(perhaps, torch.where(surely, filled.upper, both.upper), x.upper)
    return Interval.of(low, high, x.shape)


@learned(torch=_impute, interval=_impute_bounds, overflow=False)
class Imputer(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_Imputer.html."""


def _exceeds(op: Operation, x: Tensor) -> Tensor:
    y: Tensor = (x > op.threshold).to(x.dtype)
    return y


@infinity_aware
def _exceeds_bounds(site: Site, x: Interval) -> Interval:
    return x.map(lambda end: _exceeds(site.op, end))


@exact(domain=DOMAIN, torch=_exceeds, interval=_exceeds_bounds)
class Binarizer(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_Binarizer.html."""


# choosing and joining -------------------------------------------------------------------------------------------


def _extract(op: Operation, x: Tensor, indices: Tensor) -> Tensor:
    rows = as_rows(x)
    # ONNX Runtime refuses an index out of range; here one bad sample must not stop a batch.
    return rows.index_select(-1, torch.remainder(indices.reshape(-1), max(rows.shape[-1], 1)))


@infinity_aware
def _extract_bounds(site: Site, x: Interval, indices: Interval) -> Interval:
    rows = as_rows(x)
    count, width, axis = indices.size, rows.shape[-1], len(rows.shape) - 1
    shape = (*rows.shape[:-1], count)
    if indices.is_point:
        at = torch.remainder(indices.expand()[0].reshape(-1), max(width, 1))
        return replace(take(rows, axis, at), shape=shape)
    least, greatest = (int(end) for end in indices.extremes)
    window = range(least, greatest + 1) if 0 <= least and greatest < width else range(width)
    chosen = take(rows, axis, torch.tensor(list(window)))
    return replace(collapse(replace(chosen, shape=(*rows.shape[:-1], len(window))), axis), shape=shape)


@learned(
    torch=_extract,
    interval=_extract_bounds,
    linear=Affine(operands=("x",)),
    overflow=False,
    valid=[indices_of("indices", "x", lambda op: -1, wraps=False)],
    operands=("x", "indices"),
    renamed={"X": "x", "Y": "indices"},
)
class ArrayFeatureExtractor(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_ArrayFeatureExtractor.html."""


def _join(op: Operation, *columns: Tensor) -> Tensor:
    return _pad_and_join(op, *(x.float() for x in columns))


def _pad_and_join(op: Operation, *columns: Tensor) -> Tensor:
    parts = []
    for x, width in zip(columns, op.inputdimensions, strict=True):
        rows = as_rows(x).flatten(1)[:, :width]
        parts.append(torch.nn.functional.pad(rows, (0, width - rows.shape[1])))
    return torch.cat(parts, 1)


@infinity_aware
def _join_bounds(site: Site, *columns: Interval) -> Interval:
    parts = [as_single(x) for x in columns]
    low, high = (_join(site.op, *(ends[side] for ends in map(Interval.expand, parts))) for side in (0, 1))
    return Interval.of(low, high)


@learned(
    torch=_join,
    interval=_join_bounds,
    linear=Affine(function=_pad_and_join),
    batch="vmap",
    operands=("columns",),
    variadic=True,
)
class FeatureVectorizer(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_FeatureVectorizer.html."""
