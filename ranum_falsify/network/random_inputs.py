"""Random operators as inputs: their draws come from outside, so that a run can be repeated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from dnnv.nn import Operation
from onnx import helper

from ranum_falsify.network.graph import Graph
from ranum_falsify.network.registry import spec_of

DEVIATIONS = 4.0
"""Bound of a normal draw, in standard deviations from the mean; one draw in 16,000 lies further out."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """The draws of a random operator, as an input of the network.

    Attributes:
        name: Name of the input.
        node: The operator.
        low: Smallest value of an element.
        high: Largest value.
    """

    name: str
    node: str
    low: float
    high: float


def expose_draws(graph: Graph) -> tuple[Graph, tuple[Draw, ...]]:
    """Return the graph with the draws of its random operators as additional inputs, after the others.

    An operator that returns its draws is replaced by the input; one that compares its draws with an operand compares
    the input instead.  Random operators whose draws have no span stay.
    """
    random = [(op, how, how.span(op)) for op in graph.nodes if (how := spec_of(op).random) and how.span]
    if not random:
        return graph, ()
    from ranum_falsify.network.reader import read

    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    nodes = {name: node for node in model.graph.node for name in node.output}
    draws = []
    for op, how, (low, high) in random:
        details, node = graph.details_of(op), nodes[op.output_names[0]]
        name = node.output[0]
        if how.is_threshold:
            name = f"{name}_draw"
            _compare(model.graph, node, name)
        else:
            model.graph.node.remove(node)
        dtype = np.dtype(details.dtype)
        model.graph.input.append(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), details.shape)
        )
        draws.append(Draw(name=name, node=op.name, low=low, high=_step_below(high, dtype)))
    options = graph.options
    return read(model, dims=options.dims, assumed=options.assumed, sample=options.sample), tuple(draws)


def _compare(graph: onnx.GraphProto, node: onnx.NodeProto, draw: str) -> None:
    """Replace a random operator by `draw < probability`, as numbers."""
    smaller = f"{draw}_smaller"
    position = list(graph.node).index(node)
    less = helper.make_node("Less", [draw, node.input[0]], [smaller], name=smaller)
    cast = helper.make_node("CastLike", [smaller, draw], list(node.output), name=node.name)
    graph.node.remove(node)
    graph.node.insert(position, cast)
    graph.node.insert(position, less)


def is_cut(op: Operation) -> bool:
    """Tell whether a random operator may draw numbers outside its :class:`Draw`."""
    how = spec_of(op).random
    return how is not None and how.is_cut


def _step_below(high: float, dtype: np.dtype[np.generic]) -> float:
    """Return the greatest number below a bound; kernels draw from intervals that are open above."""
    return float(np.nextafter(dtype.type(high), dtype.type(-np.inf)))
