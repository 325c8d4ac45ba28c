"""A value iteration network (Tamar and others, NeurIPS 2016) that plans on maps of 8 by 8 cells."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import FUSED_LOG_SOFTMAX, SOFTMAX_UNDERFLOW, log_softmax, mean
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import normal
from ranum_falsify.zoo.model import Defect, ZooModel

_SIDE = 8
_STATES = 10
"""States of one map for which actions are chosen."""

_FEATURES, _CHANNELS, _ACTIONS = 150, 10, 8
_ITERATIONS = 10
_INITIAL = normal(0.01)


def value_iteration(g: ArchitectureBuilder, *, safe: bool) -> None:
    """The loss of the actions chosen after ten iterations; `log` is that of the softmax over actions."""
    image = g.input("X", (g.batch, _SIDE, _SIDE, 2), 0.0, 10.0)
    rows = g.input("S1", (g.batch, _STATES), 1, 6, dtype="int32")
    columns = g.input("S2", (g.batch, _STATES), 1, 6, dtype="int32")
    labels = g.input("y", (g.batch * _STATES,), 0, _ACTIONS - 1, dtype="int32")

    q = _action_values(g, g.Transpose(image, perm=[0, 3, 1, 2]))
    of_states = g.GatherND(g.Transpose(q, perm=[2, 3, 0, 1]), _positions(g, rows, columns, q))
    log_p = log_softmax(g, of_states @ g.weight("w_o", (_CHANNELS, _ACTIONS), _INITIAL), safe=safe)
    g.output(-mean(g, g.GatherND(log_p, _pairs(g, labels))))


def _action_values(g: ArchitectureBuilder, image: Tensor) -> Tensor:
    """Return the value of each action in each cell, `(batch, channels, height, width)`."""
    features = _same(g, image, g.weight("w0", (_FEATURES, 2, 3, 3), _INITIAL))
    bias = g.weight("bias", (1, 1, 1, _FEATURES), _INITIAL)
    hidden = features + g.Transpose(bias, perm=[0, 3, 1, 2])
    reward = g.Conv(hidden, _flipped(g, g.weight("w1", (1, _FEATURES, 1, 1), _INITIAL)))

    of_reward = g.weight("w", (_CHANNELS, 1, 3, 3), _INITIAL)
    of_value = g.weight("w_fb", (_CHANNELS, 1, 3, 3), _INITIAL)
    q = _same(g, reward, of_reward)
    for _ in range(_ITERATIONS):
        value = g.ReduceMax(q, axes=[1], keepdims=1)
        q = _same(g, g.Concat(reward, value, axis=1), g.Concat(of_reward, of_value, axis=1))
    return q


def _same(g: ArchitectureBuilder, x: Tensor, kernel: Tensor) -> Tensor:
    """Return a convolution with the reversed kernel, 3x3, as high and wide as x."""
    return g.Conv(x, _flipped(g, kernel), pads=[1, 1, 1, 1])


def _flipped(g: ArchitectureBuilder, kernel: Tensor) -> Tensor:
    """Return a kernel reversed along height and width."""
    before_first = np.iinfo(np.int64).min
    return g.Slice(kernel, [-1, -1], [before_first, before_first], [2, 3], [-1, -1])


def _positions(g: ArchitectureBuilder, rows: Tensor, columns: Tensor, q: Tensor) -> Tensor:
    """Return row, column and sample of every state, `(batch * states, 3)`, int64."""
    samples = g.Range(np.int64(0), g.Squeeze(g.Shape(q, start=0, end=1), [0]), np.int64(1))
    repeated = g.Tile(g.Unsqueeze(samples, [1]), [1, _STATES])
    flat = [g.Reshape(g.Cast(index, to=TensorProto.INT64), [1, -1]) for index in (rows, columns, repeated)]
    return g.Transpose(g.Concat(*flat, axis=0), perm=[1, 0])


def _pairs(g: ArchitectureBuilder, labels: Tensor) -> Tensor:
    """Return the number of every state with its label, `(batch * states, 2)`, int64."""
    states = g.Range(np.int64(0), g.Squeeze(g.Shape(labels), [0]), np.int64(1))
    return g.Concat(g.Unsqueeze(states, [1]), g.Unsqueeze(g.Cast(labels, to=TensorProto.INT64), [1]), axis=1)


MODELS = (
    ZooModel(
        id="15",
        program="Tensorflow_Value_Iteration_Networks_V1",
        framework="tf",
        build=value_iteration,
        defects=(Defect(id="15", node="log", operator="Log", mechanism=SOFTMAX_UNDERFLOW),),
        repair=FUSED_LOG_SOFTMAX,
    ),
)
