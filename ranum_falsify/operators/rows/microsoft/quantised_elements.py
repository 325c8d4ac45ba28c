"""ONNX Runtime's operators on quantised tensors that compute element by element, or choose and join them.

Sums and products are computed in float32 or, on ARM64, in fixed point; functions of one operand are looked up in a
table of 256 results that is made when the model is loaded (`requantising` says how far both may stray).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import onnx
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.quantisation import (
    Grid,
    Table,
    anything,
    is_product_normal,
    requantise,
    round_to_steps,
)
from ranum_falsify.domain.rules.shape import choose, join
from ranum_falsify.domain.rules.support.building import corner_products, result_shape
from ranum_falsify.domain.rules.support.real_functions import sigmoid
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network.tensorise import Surroundings, lowering, refuse
from ranum_falsify.operators.rows import quantisation
from ranum_falsify.operators.support.families import exact, making
from ranum_falsify.operators.support.microsoft import BYTES, DOMAIN, FLOATS, doing_as, schema


def dequantise(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Return the numbers that integers represent, float64; of scales and zero points, kernels read the first alone."""
    steps = x.double() if zero is None else x.double() - _first(zero).double()
    return steps * _first(scale).double()


def _first(x: Tensor) -> Tensor:
    return x.reshape(-1)[0] if x.numel() else x


def _quantise(x: Tensor, scale: Tensor, zero: Tensor | None, dtype: torch.dtype) -> Tensor:
    zero = x.new_zeros(()) if zero is None else _first(zero)
    return round_to_steps(x / _first(scale).double(), zero, dtype)


# sums and products ----------------------------------------------------------------------------------------------


def _combining(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return the row function of a function of two operands."""

    def evaluate(op: Operation, *operands: Any) -> Tensor:
        *parts, scale, zero = operands
        a, b = (dequantise(*part) for part in _triples(parts))
        return _quantise(function(a, b), scale, zero, parts[0].dtype)

    return evaluate


def _grid(scale: Interval, zero: Interval | None, dtype: torch.dtype) -> Grid | None:
    """Return the grid of constants that are one number each: of several, kernels read the first alone."""
    is_one = scale.size == 1 and (zero is None or zero.size == 1)
    return Grid.from_constants(scale, zero, dtype) if is_one else None


def _triples(values: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
    """Return tensors, each with its scale and its zero point."""
    return list(zip(values[::3], values[1::3], values[2::3], strict=True))


def _read_parts(values: Sequence[Any]) -> list[tuple[Interval, Grid | None]]:
    """Return bounds of tensors, each with its grid, if that is known."""
    return [(x, _grid(scale, zero, x.dtype)) for x, scale, zero in _triples(values)]


_OnGrids = Callable[[Interval, Grid, Interval, Grid, Grid], Interval | None]
"""Bounds the result on a third grid, given two operands on theirs; None if the result may be anything."""


def _on_grids(bounds: _OnGrids) -> Callable[..., Interval]:
    """Return the rule of a function of two operands."""

    def rule(site: Site, *operands: Any) -> Interval:
        *parts, scale, zero = operands
        (a, first), (b, second) = _read_parts(parts)
        grid, found = _grid(scale, zero, a.dtype), None
        if first is not None and second is not None and grid is not None:
            found = bounds(a, first, b, second, grid)
        return anything(result_shape(a, b), a.dtype) if found is None else found

    return rule


def _add(a: Interval, first: Grid, b: Interval, second: Grid, grid: Grid) -> Interval | None:
    ratios = first.scale / grid.scale, second.scale / grid.scale
    if not all(is_product_normal(ratio) for ratio in ratios):
        return None
    (low, high), (least, greatest) = first.offsets(a), second.offsets(b)
    # Zero points are scaled separately.
    size = 256 * (ratios[0] + ratios[1]) + first.zero.abs() * ratios[0] + second.zero.abs() * ratios[1]
    low, high = low * ratios[0] + least * ratios[1], high * ratios[0] + greatest * ratios[1]
    return requantise(low, high, size, grid, result_shape(a, b), wraps=True)


def _multiply(a: Interval, first: Grid, b: Interval, second: Grid, grid: Grid) -> Interval | None:
    if not is_product_normal(first.scale, second.scale, 1 / grid.scale):
        return None
    ratio = first.scale * second.scale / grid.scale
    low, high = (end * ratio for end in corner_products(first.offsets(a), second.offsets(b)))
    return requantise(low, high, torch.maximum(low.abs(), high.abs()), grid, result_shape(a, b), wraps=True)


# functions of one operand ---------------------------------------------------------------------------------------


def _mapping(function: Callable[[Operation, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return the row function of a function of one operand."""

    def evaluate(
        op: Operation, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None
    ) -> Tensor:
        return _quantise(function(op, dequantise(x, x_scale, x_zero)), y_scale, y_zero, x.dtype)

    return evaluate


Bounds = Callable[[Site, Tensor], tuple[Tensor, Tensor]]
"""Maps numbers, float64, to the least and the greatest result of a float32 kernel for each."""


def between_grids(bounds: Callable[[Site, Interval, Grid, Grid], Interval]) -> Callable[..., Interval]:
    """Return the rule of a function of one operand, from its bounds where both grids are known."""

    def rule(
        site: Site,
        x: Interval,
        x_scale: Interval,
        x_zero: Interval | None,
        y_scale: Interval,
        y_zero: Interval | None,
    ) -> Interval:
        source, grid = _grid(x_scale, x_zero, x.dtype), _grid(y_scale, y_zero, x.dtype)
        if source is None or grid is None:
            return anything(site.shape, x.dtype)
        return bounds(site, x, source, grid)

    return rule


def _looked_up(bounds: Bounds) -> Callable[..., Interval]:
    """Return the rule of a function whose results are looked up."""

    def look_up(site: Site, x: Interval, source: Grid, grid: Grid) -> Interval:
        return _look_up(lambda values: bounds(site, values), x, source, grid)

    return between_grids(look_up)


def _look_up(bounds: Callable[[Tensor], tuple[Tensor, Tensor]], x: Interval, source: Grid, grid: Grid) -> Interval:
    def entries(integers: Tensor) -> Interval:
        low, high = (end / grid.scale for end in bounds((integers - source.zero) * source.scale))
        return requantise(low, high, torch.maximum(low.abs(), high.abs()), grid, (256,))

    return Table.of(entries, x.dtype).bounds(x)


def _move(x: Interval, source: Grid | None, grid: Grid | None) -> Interval:
    """Return bounds of integers that represent the same numbers on another grid; on the same grid they stay."""
    if source is None or grid is None:
        return anything(x.shape, x.dtype)
    if bool(source.scale == grid.scale) and bool(source.zero == grid.zero):
        return x
    return _look_up(lambda values: (values, values), x, source, grid)


def _sigmoid_bounds(site: Site, x: Tensor) -> tuple[Tensor, Tensor]:
    error = 4 * unit(torch.float32) * x.abs()
    kernel = site.own_envelope(dtype=torch.float32)
    y = round_outward(sigmoid(x - error), sigmoid(x + error), torch.float32, tuple(x.shape), kernel)
    return y.doubles()


def _leaky(op: Operation, x: Tensor) -> Tensor:
    return torch.where(x >= 0, x, x * op.alpha)


def _leaky_bounds(site: Site, x: Tensor) -> tuple[Tensor, Tensor]:
    y = _leaky(site.op, x)
    return y, y


# choice ---------------------------------------------------------------------------------------------------------


def _where(op: Operation, condition: Tensor, *operands: Tensor) -> Tensor:
    if isinstance(op.x_zero_point, Operation) or isinstance(op.y_zero_point, Operation):
        raise UnsupportedAttributeError("zero points of X and Y that are computed are not supported; store them")
    *parts, scale, zero = operands
    x, y = (dequantise(*part) for part in _triples(parts))
    return _quantise(torch.where(condition, x, y), scale, zero, parts[0].dtype)


def _where_bounds(site: Site, condition: Interval, *operands: Interval) -> Interval:
    *parts, scale, zero = operands
    grid = _grid(scale, zero, parts[0].dtype)
    return choose(condition, *(_move(x, own, grid) for x, own in _read_parts(parts)))


def _concat(op: Operation, y_scale: Tensor, y_zero: Tensor, *parts: Tensor) -> Tensor:
    numbers = [dequantise(*part) for part in _triples(parts)]
    return _quantise(torch.cat(numbers, op.axis), y_scale, y_zero, y_zero.dtype)


def _concat_bounds(site: Site, y_scale: Interval, y_zero: Interval, *parts: Interval) -> Interval:
    grid = _grid(y_scale, y_zero, y_zero.dtype)
    moved = [_move(x, own, grid) for x, own in _read_parts(parts)]
    return join(moved, site.op.axis % len(moved[0].shape))


# rows -----------------------------------------------------------------------------------------------------------

_TWO = "A:T A_scale:F A_zero_point:T? B:T B_scale:F B_zero_point:T? C_scale:F C_zero_point:T?"
_ONE = "X:T X_scale:F X_zero_point:T? Y_scale:F Y_zero_point:T?"
_TYPES = {"T": BYTES, "F": FLOATS}
_LOOKED_AT = 5
_quantised = partial(exact, batch="vmap")


@_quantised(schema=schema("QLinearAdd", _TWO, "C:T", _TYPES), torch=_combining(torch.add), interval=_on_grids(_add))
class QLinearAdd(Operation):
    """Sum of two quantised tensors."""


@_quantised(
    schema=schema("QLinearMul", _TWO, "C:T", _TYPES), torch=_combining(torch.mul), interval=_on_grids(_multiply)
)
class QLinearMul(Operation):
    """Product of two quantised tensors."""


@lowering("QLinearLeakyRelu", DOMAIN, when=lambda node: len(node.input) < _LOOKED_AT)
@lowering("QLinearSigmoid", DOMAIN, when=lambda node: len(node.input) < _LOOKED_AT)
def check_inputs(around: Surroundings, node: onnx.NodeProto) -> None:
    """Tables of results, for which kernels look at all inputs."""
    raise refuse(node, f"it has fewer than {_LOOKED_AT} inputs, and ONNX Runtime looks beyond them; name Y_zero_point")


@_quantised(
    schema=schema("QLinearSigmoid", _ONE, "Y:T", _TYPES),
    torch=_mapping(lambda op, x: sigmoid(x)),
    interval=_looked_up(_sigmoid_bounds),
    kernel="Sigmoid",
)
class QLinearSigmoid(Operation):
    """Logistic function of a quantised tensor."""


@_quantised(
    schema=schema("QLinearLeakyRelu", _ONE, "Y:T", _TYPES, defaults={"alpha": 0.01}),
    torch=_mapping(_leaky),
    interval=_looked_up(_leaky_bounds),
)
class QLinearLeakyRelu(Operation):
    """x, or alpha * x below 0, of a quantised tensor."""


@_quantised(
    schema=schema(
        "QLinearWhere",
        "condition:B X:T x_scale:F x_zero_point:T Y:T y_scale:F y_zero_point:T z_scale:F z_zero_point:T",
        "Z:T",
        {**_TYPES, "B": ("bool",)},
    ),
    torch=_where,
    interval=_where_bounds,
)
class QLinearWhere(Operation):
    """Choice between two quantised tensors."""


@making(
    schema=schema(
        "QLinearConcat",
        "Y_scale:F Y_zero_point:T inputs:V*",
        "Y:T",
        {**_TYPES, "V": (*BYTES, *FLOATS)},
        kinds={"axis": "int"},
    ),
    torch=_concat,
    interval=_concat_bounds,
    operands=("y_scale", "y_zero_point", "parts"),
    renamed={"inputs": "parts"},
)
class QLinearConcat(Operation):
    """Quantised tensors, each with its scale and zero point, one after the other."""


_INTEGERS = ("int8", "uint8", "int16", "uint16")
_AXIS = {"axis": "int?"}


@doing_as(
    quantisation.QuantizeLinear,
    schema("QuantizeLinear", "x:F y_scale:F y_zero_point:T?", "y:T", {"F": FLOATS, "T": _INTEGERS}, kinds=_AXIS),
    overflow=False,
)
class MicrosoftQuantizeLinear(quantisation.QuantizeLinear):
    """Numbers as integers of 8 or 16 bits."""


@doing_as(
    quantisation.DequantizeLinear,
    schema(
        "DequantizeLinear",
        "x:T x_scale:F x_zero_point:T?",
        "y:F",
        {"F": FLOATS, "T": (*_INTEGERS, "int32")},
        kinds=_AXIS,
    ),
)
class MicrosoftDequantizeLinear(quantisation.DequantizeLinear):
    """Numbers that integers represent."""
