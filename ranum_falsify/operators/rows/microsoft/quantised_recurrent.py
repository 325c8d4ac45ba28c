"""The LSTM of ONNX Runtime that quantises its input, and its hidden state at each step, by their ranges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rules.quantisation import excess
from ranum_falsify.domain.rules.recurrent import Flow, Layer, Overflow, layer_bounds
from ranum_falsify.domain.rules.support.building import corner_products, unknown
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.rows.quantised_layers import quantise_over_range
from ranum_falsify.operators.rows.recurrent import WITHIN_TIME, Direction, lstm, lstm_step_of
from ranum_falsify.operators.support.families import plain
from ranum_falsify.operators.support.microsoft import BYTES, FLOATS, schema

_STEP, _LEAST = 1.02 / 255, 2.0**-117
"""How far a number lies from what stands for it, as a share of the range: half a step for its own rounding, half for
that of the zero point, and room for the rounding of both; and where the range is denormal."""

_VANISHING = 2.0**-108
"""What a term of a sum loses where a scale, or the product of both, is denormal: 2^-126 times two integers of 8 bits,
or times one and the number itself."""

# values ---------------------------------------------------------------------------------------------------------


def _quantised(x: Tensor) -> Tensor:
    """Return what stands for numbers; its derivative is that of the numbers."""
    steps, scale, zero = (part.detach() for part in quantise_over_range(x))
    return x + ((steps.to(x.dtype) - zero.to(x.dtype)) * scale - x).detach()


class _QuantisedDirection(Direction):
    """A direction that quantises what it multiplies with weights."""

    def project(self, bias: Tensor | None) -> Tensor:
        """See :meth:`Direction.project`."""
        product = _quantised(self.x) @ self.w.mT
        return product if bias is None else product + bias

    def recur(self, h: Tensor) -> Tensor:
        """See :meth:`Direction.recur`."""
        return super().recur(_quantised(h))


def _of_columns(values: Tensor) -> Tensor:
    """Return scales or zero points, one or one per column for each direction, to be broadcast with weights."""
    return values.reshape(values.shape[0], 1, -1)


def _weights(x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Return the weights that integers stand for, `(directions, gates * hidden, inputs)`."""
    return ((x.to(torch.int32) - _of_columns(zero.to(torch.int32))) * _of_columns(scale)).mT


def _lstm(op: Operation, x: Tensor, w: Tensor, r: Tensor, *others: Any) -> tuple[Tensor, ...]:
    b, lengths, initial_h, initial_c, peepholes, w_scale, w_zero, r_scale, r_zero = others
    weights = _weights(w, w_scale, w_zero), _weights(r, r_scale, r_zero)
    return lstm(op, x, *weights, b, lengths, initial_h, initial_c, peepholes, _QuantisedDirection)


# bounds ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Steps:
    """What quantised weights do to products with them.

    Saturating kernels may stray by `less` downwards and `more` upwards, in steps of the other factor; `scale` is the
    largest magnitude of the weights' scales.
    """

    less: float
    more: float
    scale: float


@dataclass(frozen=True, kw_only=True)
class _QuantisedFlow(Flow):
    """Arithmetic that quantises what it multiplies with input weights and recurrence weights, which have steps each."""

    input_steps: _Steps
    weight_steps: _Steps

    def project(self, x: Enclosure) -> Enclosure:
        """See :meth:`Flow.project`."""
        return self._quantise(x, self.inputs, self.input_steps)

    def recur(self, h: Enclosure, rows: slice = slice(None)) -> Enclosure:
        """See :meth:`Flow.recur`."""
        weights = self.weights.map(lambda end: end[rows])
        return self._quantise(h.spread(h.low.shape[0], self.hidden), weights, self.weight_steps)

    def _quantise(self, x: Enclosure, weights: Enclosure, steps: _Steps) -> Enclosure:
        span = float(x.high.amax().clamp(min=0) - x.low.amin().clamp(max=0))
        step = span * _STEP + _LEAST
        if not max(span, step * steps.scale) < dtype_range(self.dtype)[1]:
            # The span is divided last, and scales are multiplied first: infinity times a sum of 0 is no number.
            raise Overflow
        y = self.product(x.widen(step), weights).widen(_VANISHING * x.low.shape[-1] * (1 + span))
        return Enclosure(y.low - steps.less * step, y.high + steps.more * step)


@dataclass(frozen=True, kw_only=True)
class _QuantisedLayer(Layer):
    """Operands of a layer that quantises; for its attributes see :class:`_QuantisedFlow`."""

    input_steps: _Steps
    weight_steps: _Steps

    def flow(self, number: int) -> Flow:
        """See :meth:`Layer.flow`."""
        plain_flow = vars(super().flow(number))
        return _QuantisedFlow(**plain_flow, input_steps=self.input_steps, weight_steps=self.weight_steps)


def _weight_bounds(x: Interval, scale: Interval, zero: Interval) -> Interval:
    """Return bounds of the weights that integers stand for, float64."""
    x = x.split(*range(3))
    least, greatest = (_of_columns(end.expand(zero.shape).double()) for end in (zero.lower, zero.upper))
    scales = tuple(_of_columns(end.expand(scale.shape).double()) for end in (scale.lower, scale.upper))
    low, high = corner_products((x.lower.double() - greatest, x.upper.double() - least), (scales[0], scales[1]))
    return Interval.of(low.mT, high.mT)


def _steps_of(x: Interval, scale: Interval) -> _Steps:
    """Return what weights do whose pairs of products may saturate."""
    less, more = excess(torch.uint8, 255, x, x.shape[1])
    largest = max(map(abs, scale.extremes))
    # A negative scale turns the excess around.
    if scale.extremes[0] < 0:
        less = more = max(less, more)
    return _Steps(less * largest, more * largest, largest)


def _lstm_bounds(site: Site, *operands: Interval | None) -> tuple[Interval, ...]:
    x, w, r, b, lengths, *initial, peepholes, w_scale, w_zero, r_scale, r_zero = operands
    assert x is not None and w is not None and r is not None
    assert w_scale is not None and w_zero is not None and r_scale is not None and r_zero is not None
    if not x.size or not r.size:
        return unknown(site)
    directions = w.shape[0]
    layer = _QuantisedLayer(
        x=x,
        w=_weight_bounds(w, w_scale, w_zero),
        r=_weight_bounds(r, r_scale, r_zero),
        bias=b,
        lengths=lengths,
        initial=initial,
        peepholes=peepholes,
        gates=4,
        reversed=[site.op.direction == "reverse" or number == 1 for number in range(directions)],
        input_steps=_steps_of(w, w_scale),
        weight_steps=_steps_of(r, r_scale),
    )
    if max(map(abs, (*layer.w.extremes, *layer.r.extremes))) > dtype_range(x.dtype)[1]:
        return tuple(replace(output, nan=True) for output in unknown(site))
    try:
        found = layer_bounds(layer, lstm_step_of(site.op, directions, x.dtype))
    except Overflow:
        return tuple(replace(output, nan=True) for output in unknown(site))
    return found[: len(site.details)]


@plain(
    schema=schema(
        "DynamicQuantizeLSTM",
        "X:T W:B R:B B:T? sequence_lens:L? initial_h:T? initial_c:T? P:T?"
        " W_scale:T W_zero_point:B R_scale:T R_zero_point:B",
        "Y:T? Y_h:T? Y_c:T?",
        {"T": FLOATS, "B": BYTES, "L": ("int32",)},
        defaults={"direction": "forward", "input_forget": 0},
        kinds={
            "activations": "strings?",
            "activation_alpha": "floats?",
            "activation_beta": "floats?",
            "clip": "float?",
            "hidden_size": "int?",
        },
    ),
    torch=_lstm,
    interval=_lstm_bounds,
    valid=[WITHIN_TIME],
    hides_nan=True,
    operands=(
        *("x", "w", "r", "b", "sequence_lens", "initial_h", "initial_c", "p"),
        *("w_scale", "w_zero", "r_scale", "r_zero"),
    ),
    renamed={"W_zero_point": "w_zero", "R_zero_point": "r_zero"},
)
class DynamicQuantizeLSTM(Operation):
    """An LSTM with weights of 8 bits, `(directions, inputs, gates * hidden)`."""
