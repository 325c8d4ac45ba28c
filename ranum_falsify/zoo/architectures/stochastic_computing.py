"""Multilayer perceptrons on stochastic-computing arithmetic, whose values lie in [-1, 1] times a scale.

A product of a vector and a matrix is divided by the column sums of the matrix's magnitudes, which keeps it in
[-1, 1], and multiplied by a trained gain; the scale that undoes both is carried along.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from ranum_falsify.zoo.blocks import mean, total
from ranum_falsify.zoo.builder import ModelBuilder, Tensor
from ranum_falsify.zoo.initial import Initial, normal, uniform, zeros
from ranum_falsify.zoo.model import Defect, ZooModel

__all__ = ["MODELS", "stochastic_computing"]

_INPUTS, _HIDDEN, _CLASSES = 784, 128, 10
_PENALTY, _DECAY = 0.25, 0.0012
_LEAST_DIVISOR = 1e-6


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """A layer's weights, and what is added to each divisor.

    Attributes:
        weight: `(inputs, outputs)`.
        bias: `(outputs,)`.
        gain: `(outputs,)`, or `(1,)` where all outputs share it.
        epsilon: 0 adds nothing.
        least_gain: None leaves the gain as it is.
        suffix: Of the names of its divisions.
    """

    weight: Tensor
    bias: Tensor
    gain: Tensor
    epsilon: float
    least_gain: float | None
    suffix: str


def stochastic_computing(
    g: ModelBuilder,
    *,
    safe: bool,
    first: Initial | None = None,
    epsilon: float = 0.0,
    shared_gain: bool = False,
    regulariser: Literal["penalty", "decay"] = "penalty",
) -> None:
    """A perceptron with one hidden layer; `div_columns` and `div_gain` are the first layer's divisions.

    Args:
        g: The model.
        safe: Whether it is the repaired one.
        first: Distribution of the first layer's weight; standard normal where it is None.
        epsilon: What is added to the divisors of a product: the greatest scale, the column sums, the gain.
        shared_gain: Whether a layer's outputs share one gain.
        regulariser: `penalty` on magnitudes above 1, or weight `decay`.
    """
    x = g.input("features", (g.batch, _INPUTS), 0.0, 1.0)
    y = g.input("labels", (g.batch, _CLASSES), 0.0, 1.0)
    if safe:
        epsilon = epsilon or _LEAST_DIVISOR
    make = partial(_layer, g, epsilon=epsilon, least_gain=_LEAST_DIVISOR if safe else None, shared_gain=shared_gain)
    hidden = make("1", (_INPUTS, _HIDDEN), first or normal(1.0), suffix="")
    out = make("out", (_HIDDEN, _CLASSES), normal(1.0), gain="gain2", suffix="_out")

    scale = g.constant(np.ones((1, _INPUTS), np.float32), "s_inp")
    h, scale = _apply(g, x, scale, hidden)
    o, scale = _apply(g, h, scale, out)
    logits = o * _per_sample(g, scale, o)
    cross_entropy = mean(g, -total(g, y * g.LogSoftmax(logits, axis=-1), [1]))
    penalty = _penalty if regulariser == "penalty" else _decay
    g.output(cross_entropy + _regularised(g, [hidden.weight, out.weight, hidden.bias, out.bias], penalty))


def _layer(
    g: ModelBuilder,
    name: str,
    sizes: tuple[int, int],
    initial: Initial,
    *,
    suffix: str,
    epsilon: float,
    least_gain: float | None,
    shared_gain: bool,
    gain: str | None = None,
) -> _Layer:
    return _Layer(
        weight=g.weight(f"w{name}", sizes, initial),
        bias=g.weight(f"b{name}", sizes[1:], normal(1.0)),
        gain=g.weight(gain or f"gain{name}", (1,) if shared_gain else sizes[1:], uniform(0.0, 16.0)),
        epsilon=epsilon,
        least_gain=least_gain,
        suffix=suffix,
    )


def _apply(g: ModelBuilder, x: Tensor, scale: Tensor, layer: _Layer) -> tuple[Tensor, Tensor]:
    """Return a dense layer of values `(batch, inputs)` with scales `(1, inputs)`: its values and their scales."""
    product, scale = _multiply(g, x, scale, layer)
    return _add(g, product, scale, layer)


def _multiply(g: ModelBuilder, x: Tensor, scale: Tensor, layer: _Layer) -> tuple[Tensor, Tensor]:
    def shifted(divisor: Tensor) -> Tensor:
        return divisor + layer.epsilon if layer.epsilon else divisor

    greatest = g.ReduceMax(scale, keepdims=0)
    rescaled = x * g.Div(scale, shifted(greatest), name=f"div_scale{layer.suffix}")
    columns = _per_sample(g, shifted(total(g, g.Abs(layer.weight), [0])), x)
    z = g.Div(rescaled @ layer.weight, columns, name=f"div_columns{layer.suffix}")
    gain = layer.gain if layer.least_gain is None else g.Max(layer.gain, layer.least_gain)
    scales = g.Div(greatest * columns, shifted(gain), name=f"div_gain{layer.suffix}")
    return g.Clip(z * gain, -1.0, 1.0), g.Slice(scales, [0], [1], [0])


def _add(g: ModelBuilder, x: Tensor, scale: Tensor, layer: _Layer) -> tuple[Tensor, Tensor]:
    y = (x + g.Div(layer.bias, scale, name=f"div_bias{layer.suffix}")) / 2.0
    return g.Clip(y * 2.0, -1.0, 1.0), (scale * 2.0) / 2.0


def _per_sample(g: ModelBuilder, row: Tensor, like: Tensor) -> Tensor:
    """Return a row repeated for each sample of another tensor, `(batch, outputs)`."""
    batch = g.Shape(like, start=0, end=1)
    flat = g.Tile(g.Reshape(row, [-1]), batch)
    return g.Reshape(flat, g.Concat(batch, [-1], axis=0))


def _regularised(g: ModelBuilder, weights: list[Tensor], of_one: Callable[[ModelBuilder, Tensor], Tensor]) -> Tensor:
    first, *rest = (of_one(g, weight) for weight in weights)
    return sum(rest, first)


def _penalty(g: ModelBuilder, weight: Tensor) -> Tensor:
    """Return what magnitudes above 1 cost."""
    magnitude = g.Abs(weight)
    return _PENALTY * total(g, 2.0 * (magnitude - g.Clip(magnitude, -1.0, 1.0)))


def _decay(g: ModelBuilder, weight: Tensor) -> Tensor:
    """Return half the sum of squares, as TensorFlow's `l2_loss`, scaled."""
    return _DECAY * (total(g, weight * weight) / 2.0)


_PROGRAM = "SC_DNN"
_COLUMNS = "a column of the weight that is all 0 makes its sum of magnitudes, the divisor, 0"
_GAIN = "the trained gain is a divisor, and nothing keeps it from reaching {}"
_REPAIR = "1e-6 is added to the divisors, and gains are raised to it"

MODELS = (
    ZooModel(
        id="28a",
        program=_PROGRAM,
        framework="tf",
        build=stochastic_computing,
        defects=(Defect(id="28a", node="div_columns", operator="Div", mechanism=_COLUMNS),),
        repair=_REPAIR,
    ),
    ZooModel(
        id="28b",
        program=_PROGRAM,
        framework="tf",
        build=partial(stochastic_computing, first=zeros(), epsilon=1e-7),
        defects=(Defect(id="28b", node="div_gain", operator="Div", mechanism=_GAIN.format("-1e-7")),),
        repair="gains are raised to 1e-6",
    ),
    ZooModel(
        id="28cd",
        program=_PROGRAM,
        framework="tf",
        build=partial(stochastic_computing, shared_gain=True, regulariser="decay"),
        defects=(
            Defect(id="28c", node="div_gain", operator="Div", mechanism=_GAIN.format("0")),
            Defect(id="28d", node="div_columns", operator="Div", mechanism=_COLUMNS),
        ),
        repair=_REPAIR,
    ),
)
