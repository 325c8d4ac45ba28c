"""Points at which operators of the zoo fail that the search does not find, each replayed on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from lab.bench.session import plain_session
from ranum_falsify.zoo.model import ZooModel

__all__ = ["fails_by_hand"]

_POINTS: Mapping[tuple[str, str], Mapping[str, float | np.ndarray]] = {
    # A scale is 2.5e38, and the program doubles it before it halves it.
    ("28a", "Mul_4"): {"w1": 1.0, "gain1": np.where(np.arange(128) == 0, 784 / 2.5e38, 8.0)},
    ("28cd", "Mul_4"): {"w1": 1.0, "gain1": 784 / 2.5e38},
    # Both exponentials of a pixel are finite, and their sum is not.
    ("17", "ReduceSum"): {"keep_prob": 1.0, "u0_w1": 0.0, "u0_b1": 10.0, "u0_w2": 55.15 / 1440, "out_w": 0.1},
}
"""By model and node, values of inputs and weights; weights not named are as at first, inputs in the middle."""


def fails_by_hand(model: ZooModel, node: str) -> bool:
    """Tell whether a point is known at which a node's operands are finite and its output is not."""
    if (model.id, node) not in _POINTS:
        return False
    point = _POINTS[model.id, node]
    architecture = model.architecture()
    feeds = {
        v.name: np.full(v.shape, point.get(v.name, (v.low + v.high) / 2)).astype(v.dtype) for v in architecture.inputs
    }
    graph, weights = architecture.model.graph, {v.name: v for v in architecture.weights}
    for tensor in graph.initializer:
        if tensor.name in weights and tensor.name in point:
            values = np.broadcast_to(point[tensor.name], weights[tensor.name].shape)
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
    (made,) = [n for n in graph.node if n.name == node]
    read = [name for n in graph.node for name in n.output if name in made.input]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in (made.output[0], *read))
    session = plain_session(architecture.model)
    output, *operands = session.run([made.output[0], *read], feeds)
    return bool(all(np.isfinite(x).all() for x in operands) and not np.isfinite(output).all())
