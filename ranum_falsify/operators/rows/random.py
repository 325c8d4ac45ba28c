"""Random operators, Dropout too.  A `seed` attribute makes draws repeat; else torch's default generator gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Dropout
from torch import Tensor

from ranum_falsify.domain.error_bounds import unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.domain.linear.declarations import Affine
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.support.building import infinity_aware, within
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network.random_inputs import DEVIATIONS
from ranum_falsify.network.registry import Draws
from ranum_falsify.operators.rows.creation import dtype_numbered
from ranum_falsify.operators.support.families import making, plain, total

_FLOAT, _INT32 = 1, 6
"""Element type numbers of ONNX that are defaults of `dtype`."""


def _check_spread(op: Operation) -> None:
    """Check that ends do not cross, and that there is a spread: else generators may end the process."""
    if hasattr(op, "low") and not op.low <= op.high:
        raise UnsupportedAttributeError(f"low {op.low} above high {op.high} is not supported; turn them around")
    if hasattr(op, "scale") and not op.scale > 0:
        raise UnsupportedAttributeError(f"scale {op.scale} is not supported; use a positive number")


def _draw(
    op: Operation, function: Callable[..., Tensor], shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    _check_spread(op)
    generator = None if op.seed is None else torch.Generator(device).manual_seed(int(op.seed))
    return function(shape, dtype=dtype, device=device, generator=generator)


def _choose_dtype(op: Operation, x: Tensor) -> torch.dtype:
    return x.dtype if op.dtype is None else dtype_numbered(op.dtype)


def _affine(draws: Tensor, offset: float, scale: float) -> Tensor:
    return draws if (offset, scale) == (0, 1) else draws * scale + offset


def _normal(op: Operation, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return _affine(_draw(op, torch.randn, shape, dtype, device), op.mean, op.scale)


def _uniform(op: Operation, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return _affine(_draw(op, torch.rand, shape, dtype, device), op.low, op.high - op.low)


_Distribution = Callable[[Operation, tuple[int, ...], torch.dtype, torch.device], Tensor]


def _of_shape(distribution: _Distribution) -> Callable[[Operation], Tensor]:
    """Return the row function of draws in the shape that an attribute says."""
    return lambda op: distribution(op, op.shape, dtype_numbered(op.dtype or _FLOAT), torch.get_default_device())


def _like(distribution: _Distribution) -> Callable[[Operation, Tensor], Tensor]:
    """Return the row function of draws in the shape of an operand."""
    return lambda op, x: distribution(op, tuple(x.shape), _choose_dtype(op, x), x.device)


def _one_like(distribution: _Distribution) -> Callable[[Operation, Tensor], Tensor]:
    """Return the function of one draw, repeated in the shape of an operand."""
    return lambda op, x: distribution(op, (), _choose_dtype(op, x), x.device).expand(x.shape)


def _bernoulli(op: Operation, x: Tensor) -> Tensor:
    return (_draw(op, torch.rand, tuple(x.shape), x.dtype, x.device) < x).to(_choose_dtype(op, x))


def _multinomial(op: Operation, x: Tensor) -> Tensor:
    # The largest of log-probabilities plus Gumbel noise is a draw (https://arxiv.org/abs/1611.01144, section 2).
    batch, classes = x.shape
    uniform = _draw(op, torch.rand, (batch, op.sample_size, classes), torch.float32, x.device)
    gumbel = -torch.log(-torch.log(uniform.clamp(min=torch.finfo(torch.float32).tiny)))
    return torch.argmax(x.unsqueeze(1) + gumbel, dim=-1).to(dtype_numbered(op.dtype or _INT32))


_MOST_DEVIATIONS = 40.0
"""How far a normal draw may lie from its mean, in standard deviations.

Kernels compute it from uniform numbers by Box and Muller's or Marsaglia's formula, which reach sqrt(-2 ln u).  The
least positive number u of float64, 2^-1074, gives 38.6.
"""


def _normal_span(op: Operation) -> tuple[float, float]:
    reach = DEVIATIONS * abs(float(op.scale))
    return float(op.mean) - reach, float(op.mean) + reach


def _uniform_span(op: Operation) -> tuple[float, float]:
    return float(op.low), float(op.high)


_NORMAL, _UNIFORM = Draws(span=_normal_span, is_cut=True), Draws(span=_uniform_span)


def _normal_bounds(site: Site, *operands: Interval) -> Interval:
    mean, reach = float(site.op.mean), _MOST_DEVIATIONS * abs(float(site.op.scale))
    return _bound_range(site, mean - reach, mean + reach, abs(mean))


def _uniform_bounds(site: Site, *operands: Interval) -> Interval:
    low, high = float(site.op.low), float(site.op.high)
    if low <= high:
        # What is added to the lower end is not negative, whatever the rounding.
        y = _bound_range(site, low, high, abs(low) + abs(high))
        return Interval.of(torch.full_like(y.lower, low), y.upper, y.shape)
    return _bound_range(site, high, low, abs(low) + abs(high))


def _bound_range(site: Site, low: float, high: float, size: float) -> Interval:
    """Return bounds that enclose a range, widened by the rounding error of numbers of the given size."""
    error = 8 * unit(site.dtype) * (size + high - low)
    least, greatest = (torch.full((1,) * len(site.shape), x, dtype=torch.float64) for x in (low - error, high + error))
    return round_outward(least, greatest, site.dtype, site.shape)


def _multinomial_bounds(site: Site, x: Interval) -> Interval:
    # ONNX Runtime draws the number of classes itself where sums of infinite operands are NaN.
    most = x.shape[-1] if x.may_be_infinite else max(x.shape[-1] - 1, 0)
    return Interval.fill(0, most, site.shape, site.dtype)


@plain(torch=_of_shape(_normal), interval=infinity_aware(_normal_bounds), random=_NORMAL)
class RandomNormal(Operation):
    """https://onnx.ai/onnx/operators/onnx__RandomNormal.html."""


@plain(torch=_of_shape(_uniform), interval=infinity_aware(_uniform_bounds), random=_UNIFORM)
class RandomUniform(Operation):
    """https://onnx.ai/onnx/operators/onnx__RandomUniform.html."""


@plain(
    torch=_like(_normal), interval=infinity_aware(_normal_bounds), random=replace(_NORMAL, example=_one_like(_normal))
)
class RandomNormalLike(Operation):
    """https://onnx.ai/onnx/operators/onnx__RandomNormalLike.html."""


@plain(
    torch=_like(_uniform),
    interval=infinity_aware(_uniform_bounds),
    random=replace(_UNIFORM, example=_one_like(_uniform)),
)
class RandomUniformLike(Operation):
    """https://onnx.ai/onnx/operators/onnx__RandomUniformLike.html."""


@making(
    torch=_bernoulli,
    interval=within(0, 1),
    random=Draws(span=lambda op: (0.0, 1.0), is_threshold=True),
)
class Bernoulli(Operation):
    """https://onnx.ai/onnx/operators/onnx__Bernoulli.html."""


@making(torch=_multinomial, interval=infinity_aware(_multinomial_bounds), random=Draws())
class Multinomial(Operation):
    """https://onnx.ai/onnx/operators/onnx__Multinomial.html."""


def _number(value: Any, fallback: float) -> float:
    """Return a static operand as a number, the fallback if it has none, which ONNX Runtime refuses."""
    numbers = [] if value is None else np.asarray(value).reshape(-1).tolist()
    return float(numbers[0]) if numbers else fallback


def _draws(op: Operation) -> bool:
    training, ratio = op.training_mode, op.ratio
    if isinstance(training, Operation) or isinstance(ratio, Operation):
        return True
    return bool(_number(training, 0)) and _number(ratio, 0.5) > 0


def _dropout(
    op: Operation, x: Tensor, ratio: np.ndarray | None, training_mode: np.ndarray | None
) -> tuple[Tensor, ...]:
    rate = _number(ratio, 0.5)
    if _number(training_mode, 0) and rate > 0:
        kept = torch.rand(x.shape, device=x.device) >= rate
        return (x * kept / (1 - rate), kept)[: len(op.output_names)]
    # Before opset 10 the mask has the operand's type, and before opset 12 ONNX Runtime fills it with zeros.
    mask = torch.full_like(x, op.version >= 12, dtype=torch.bool if op.version >= 10 else x.dtype)
    return (x, mask)[: len(op.output_names)]


def _dropout_bounds(
    site: Site, x: Interval, ratio: np.ndarray | None, training_mode: np.ndarray | None
) -> tuple[Interval, ...]:
    op, rate = site.op, _number(ratio, 0.5)
    if _number(training_mode, 0) and rate > 0:
        scale = 1 / (1 - rate) if rate < 1 else 0.0
        low, high = (bound * scale for bound in x.keep_finite().doubles())
        # The share that is kept, its reciprocal and the product are rounded.
        y = round_outward(low.clamp(max=0), high.clamp(min=0), x.dtype, x.shape, Envelope(8 * unit(x.dtype)))
        y = y.hull(x) if x.may_be_infinite else y
        mask = Interval.fill(0, 1, x.shape, torch.bool)
        return (replace(y, gap=0.0, nan=x.may_be_infinite), mask)[: len(op.output_names)]
    kind = torch.bool if op.version >= 10 else x.dtype
    return (x, Interval.point(torch.full((), op.version >= 12, dtype=kind).expand(x.shape)))[: len(op.output_names)]


total(
    torch=_dropout,
    interval=infinity_aware(_dropout_bounds),
    linear=lambda op: None if _draws(op) else Affine(operands=("x",)),
    kernel=None,
    operands=("x", "ratio", "training_mode"),
    renamed={"data": "x"},
    static=("ratio", "training_mode"),
    random=Draws(operand="training_mode", where=_draws),
)(Dropout)
