"""Multilayer perceptrons on stochastic-computing arithmetic, whose values lie in [-1, 1] times a scale.

A product of a vector and a matrix is divided by the column sums of the matrix's magnitudes, which keeps it in
[-1, 1], and multiplied by a trained gain; the scale that undoes both is carried along.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial, reduce
from typing import Literal

import numpy as np

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import cross_entropy, one_defect, total
from ranum_falsify.zoo.builder import ArchitectureBuilder, Initial, normal, uniform, zeros
from ranum_falsify.zoo.model import Defect, ZooModel

_INPUTS, _HIDDEN, _CLASSES = 784, 128, 10
_PENALTY, _DECAY = 0.25, 0.0012
_LEAST_DIVISOR = 1e-6


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """Weights of a layer.

    Attributes:
        weight: `(inputs, outputs)`.
        bias: `(outputs,)`.
        gain: `(outputs,)`, or `(1,)` where all outputs share it.
        suffix: Suffix of the names of its divisions.
    """

    weight: Tensor
    bias: Tensor
    gain: Tensor
    suffix: str = ""


def stochastic_computing(
    g: ArchitectureBuilder,
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
        epsilon: Number added to the divisors of a product: the greatest scale, the column sums, the gain.
        shared_gain: Whether a layer's outputs share one gain.
        regulariser: `penalty` on magnitudes above 1, or weight `decay`.
    """
    x = g.input("features", (g.batch, _INPUTS), 0.0, 1.0)
    y = g.input("labels", (g.batch, _CLASSES), 0.0, 1.0)
    gains = uniform(0.0, 16.0)
    hidden = _Layer(
        weight=g.weight("w1", (_INPUTS, _HIDDEN), first or normal(1.0)),
        bias=g.weight("b1", (_HIDDEN,), normal(1.0)),
        gain=g.weight("gain1", (1 if shared_gain else _HIDDEN,), gains),
    )
    out = _Layer(
        weight=g.weight("wout", (_HIDDEN, _CLASSES), normal(1.0)),
        bias=g.weight("bout", (_CLASSES,), normal(1.0)),
        gain=g.weight("gain2", (1 if shared_gain else _CLASSES,), gains),
        suffix="_out",
    )
    scale = g.constant(np.ones((1, _INPUTS), np.float32), "s_inp")
    h, scale = _add(g, *_multiply(g, x, scale, hidden, epsilon, safe=safe), hidden)
    o, scale = _add(g, *_multiply(g, h, scale, out, epsilon, safe=safe), out)

    log_p = g.LogSoftmax(o * _per_sample(g, scale, o), axis=-1)
    of_one = _penalty if regulariser == "penalty" else _decay
    costs = [of_one(g, weight) for weight in (hidden.weight, out.weight, hidden.bias, out.bias)]
    g.output(reduce(operator.add, costs, cross_entropy(g, y, log_p, loss="mean")))


def _multiply(
    g: ArchitectureBuilder, x: Tensor, scale: Tensor, layer: _Layer, epsilon: float, *, safe: bool
) -> tuple[Tensor, Tensor]:
    """Return `x @ weight` of values `(batch, inputs)` and scales `(1, inputs)`: its values and their scales."""

    def shifted(divisor: Tensor) -> Tensor:
        divisor = divisor + epsilon if epsilon else divisor
        return g.Where(g.Less(g.Abs(divisor), _LEAST_DIVISOR), _LEAST_DIVISOR, divisor) if safe else divisor

    greatest = g.ReduceMax(scale, keepdims=0)
    rescaled = x * g.Div(scale, shifted(greatest), name=f"div_scale{layer.suffix}")
    columns = _per_sample(g, shifted(total(g, g.Abs(layer.weight), [0])), x)
    z = g.Div(rescaled @ layer.weight, columns, name=f"div_columns{layer.suffix}")
    scales = g.Div(greatest * columns, shifted(layer.gain), name=f"div_gain{layer.suffix}")
    return g.Clip(z * layer.gain, -1.0, 1.0), g.Slice(scales, [0], [1], [0])


def _add(g: ArchitectureBuilder, x: Tensor, scale: Tensor, layer: _Layer) -> tuple[Tensor, Tensor]:
    """Return the sum with the bias, of values `(batch, outputs)` with scales `(1, outputs)`, and its scales."""
    y = (x + g.Div(layer.bias, scale, name=f"div_bias{layer.suffix}")) / 2.0
    return g.Clip(y * 2.0, -1.0, 1.0), (scale * 2.0) / 2.0


def _per_sample(g: ArchitectureBuilder, row: Tensor, like: Tensor) -> Tensor:
    """Return a row repeated for each sample of another tensor, `(batch, outputs)`."""
    batch = g.Shape(like, start=0, end=1)
    flat = g.Tile(g.Reshape(row, [-1]), batch)
    return g.Reshape(flat, g.Concat(batch, [-1], axis=0))


def _penalty(g: ArchitectureBuilder, weight: Tensor) -> Tensor:
    """Return the penalty on magnitudes above 1."""
    magnitude = g.Abs(weight)
    return _PENALTY * total(g, 2.0 * (magnitude - g.Clip(magnitude, -1.0, 1.0)))


def _decay(g: ArchitectureBuilder, weight: Tensor) -> Tensor:
    """Return half the sum of squares, like TensorFlow's `l2_loss`, scaled."""
    return _DECAY * (total(g, weight * weight) / 2.0)


_PROGRAM = "SC_DNN"
_COLUMNS = "a column of the weight that is all 0 makes its sum of magnitudes, the divisor, 0"
_GAIN = "the trained gain is a divisor, and nothing keeps it from reaching {}"
_REPAIR = "divisors nearer to 0 than 1e-6 are replaced by it"

MODELS = (
    one_defect(
        "28a",
        _PROGRAM,
        stochastic_computing,
        framework="tf",
        node="div_columns",
        operator="Div",
        mechanism=_COLUMNS,
        repair=_REPAIR,
    ),
    one_defect(
        "28b",
        _PROGRAM,
        partial(stochastic_computing, first=zeros(), epsilon=1e-7),
        framework="tf",
        node="div_gain",
        operator="Div",
        mechanism=_GAIN.format("-1e-7"),
        repair=_REPAIR,
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
