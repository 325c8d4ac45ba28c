"""Random operators as inputs: what they draw comes from outside, so that a run repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from dnnv.nn import Operation
from onnx import helper

from ranum_falsify.network.graph import Graph
from ranum_falsify.network.registry import spec_of

__all__ = ["DEVIATIONS", "Draw", "drawn", "is_cut"]

DEVIATIONS = 4.0
"""How far from the mean a normal draw is taken, in standard deviations; one in 16,000 lies further out."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What a random operator draws, as an input of the network.

    Attributes:
        name: Name of the input.
        node: The operator.
        low: Least value of an element.
        high: Greatest value.
    """

    name: str
    node: str
    low: float
    high: float


def drawn(graph: Graph) -> tuple[Graph, tuple[Draw, ...]]:
    """Return the graph with what its random operators draw as further inputs, after the others.

    `RandomUniform` and `RandomNormal` (and `...Like`) become inputs themselves, `Bernoulli` compares one with its
    probabilities.  Other random operators stay.
    """
    random = [op for op in graph.nodes if spec_of(op).op_type in _DRAWN]
    if not random:
        return graph, ()
    from ranum_falsify.network.reader import read

    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    nodes = {name: node for node in model.graph.node for name in node.output}
    draws = []
    for op in random:
        details, node = graph.details_of(op), nodes[op.output_names[0]]
        low, high = _DRAWN[spec_of(op).op_type](op)
        name = node.output[0]
        if spec_of(op).op_type == "Bernoulli":
            name = f"{name}_draw"
            _compare(model.graph, node, name)
        else:
            model.graph.node.remove(node)
        dtype = np.dtype(details.dtype)
        model.graph.input.append(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), details.shape)
        )
        draws.append(Draw(name=name, node=op.name, low=low, high=_below(high, dtype)))
    return read(model, dims=graph.options.dims), tuple(draws)


def _compare(graph: onnx.GraphProto, node: onnx.NodeProto, draw: str) -> None:
    """Put `draw < probability`, as numbers, in the place of a `Bernoulli`."""
    smaller = f"{draw}_smaller"
    position = list(graph.node).index(node)
    less = helper.make_node("Less", [draw, node.input[0]], [smaller], name=smaller)
    cast = helper.make_node("CastLike", [smaller, draw], list(node.output), name=node.name)
    graph.node.remove(node)
    graph.node.insert(position, cast)
    graph.node.insert(position, less)


def is_cut(op: Operation) -> bool:
    """Tell whether a random operator may draw what lies outside its :class:`Draw`."""
    return _DRAWN.get(spec_of(op).op_type) is _normal


def _uniform(op: Operation) -> tuple[float, float]:
    return float(op.low), float(op.high)


def _normal(op: Operation) -> tuple[float, float]:
    reach = DEVIATIONS * abs(float(op.scale))
    return float(op.mean) - reach, float(op.mean) + reach


_DRAWN: dict[str, Callable[[Operation], tuple[float, float]]] = {
    "RandomUniform": _uniform,
    "RandomUniformLike": _uniform,
    "RandomNormal": _normal,
    "RandomNormalLike": _normal,
    "Bernoulli": lambda op: (0.0, 1.0),
}
"""The least draw of each operator and the bound above its draws."""


def _below(high: float, dtype: np.dtype[np.generic]) -> float:
    """Return the greatest number below a bound; kernels draw from intervals that are open above."""
    return float(np.nextafter(dtype.type(high), dtype.type(-np.inf)))
