"""A thin layer over ``onnx.helper`` in which a network reads like its equations."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["BOX", "HAZARD", "PRODUCER", "ModelBuilder", "draw_weights", "make_generator"]

PRODUCER = "ranum-falsify scripts/make_networks.py"
BOX = "box:"
HAZARD = "hazard:"
IR_VERSION = 8


class ModelBuilder:
    """Collects the nodes of one network and serialises them in the order in which they were added.

    The natural box of every input and the operators that can fail are kept in the model's metadata
    (``box:<input>`` = ``"low high"``, ``hazard:<node>`` = the trigger in words), so that the file
    describes itself.

    Args:
        name: name of the graph and of the file, without suffix.
        summary: one sentence on what the network computes; becomes the model's ``doc_string``.
        opset: version of the default ONNX operator set.
    """

    def __init__(self, name: str, summary: str, opset: int = 17) -> None:
        self.name = name
        self.summary = summary
        self.opset = opset
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._nodes: dict[str, onnx.NodeProto] = {}
        self._metadata: dict[str, str] = {}

    def input(self, name: str, shape: Sequence[int], low: float, high: float) -> str:
        """Declare a float32 input of the given shape whose elements naturally lie in [low, high]."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        self._metadata[BOX + name] = f"{low:g} {high:g}"
        return name

    def output(self, tensor: str, shape: Sequence[int]) -> None:
        """Declare a float32 tensor of the given shape as an output of the network."""
        self._outputs.append(helper.make_tensor_value_info(tensor, TensorProto.FLOAT, shape))

    def weight(self, name: str, values: NDArray[np.float64] | Sequence[float] | float) -> str:
        """Add a float32 initializer; its name is what ``free(N, name)`` refers to."""
        return self._initializer(name, np.asarray(values, dtype=np.float32))

    def indices(self, name: str, values: Sequence[int]) -> str:
        """Add an int64 initializer, such as axes, shapes and split sizes; equal ones are shared."""
        return self._initializer(name, np.asarray(values, dtype=np.int64))

    def _initializer(self, name: str, array: NDArray[Any]) -> str:
        tensor = numpy_helper.from_array(array, name)
        if self._initializers.setdefault(name, tensor) != tensor:
            raise ValueError(f"{self.name}: initializer {name!r} is defined twice with other values")
        return name

    def node(self, op: str, *inputs: str, name: str, out: str = "", **attributes: Any) -> str:
        """Add a node with one output and return the output's name (``<name>_out`` by default)."""
        out = out or f"{name}_out"
        self._add(helper.make_node(op, inputs, [out], name=name, **attributes))
        return out

    def split(self, tensor: str, *sizes: str, name: str, parts: Sequence[str], **attributes: Any) -> list[str]:
        """Add a ``Split`` whose outputs are called ``<name>_<part>``, and return these names.

        Args:
            tensor: the tensor to split.
            *sizes: the initializer with the sizes, for opsets that take it as an input.
            name: name of the node.
            parts: one label per output.
            **attributes: ``axis``, and ``split`` or ``num_outputs`` where the opset has them.
        """
        outputs = [f"{name}_{part}" for part in parts]
        self._add(helper.make_node("Split", [tensor, *sizes], outputs, name=name, **attributes))
        return outputs

    def _add(self, node: onnx.NodeProto) -> None:
        if node.name in self._nodes:
            raise ValueError(f"{self.name}: two nodes are called {node.name!r}")
        self._nodes[node.name] = node

    def dense(self, tensor: str, weights: NDArray[np.float64], bias: NDArray[np.float64], name: str) -> str:
        """Add ``tensor @ weights + bias`` as a ``Gemm``, with initializers ``<name>_W``, ``<name>_b``.

        Args:
            tensor: the operand, of shape ``(1, n_in)``.
            weights: shape ``(n_in, n_out)``.
            bias: shape ``(n_out,)``.
            name: name of the node.
        """
        operands = self.weight(f"{name}_W", weights), self.weight(f"{name}_b", bias)
        return self.node("Gemm", tensor, *operands, name=name)

    def reduce_sum(self, tensor: str, axis: int, name: str, out: str = "", keepdims: int = 0) -> str:
        """Add a sum over one axis, whose number ``ReduceSum`` takes as an input since opset 13."""
        axes = self.indices(f"axis_{axis}".replace("-", "minus_"), [axis])
        return self.node("ReduceSum", tensor, axes, name=name, out=out, keepdims=keepdims)

    def hazard(self, node: str, trigger: str) -> None:
        """Record that ``node`` can receive an invalid input, and which input of the network does it."""
        if node not in self._nodes:
            raise ValueError(f"{self.name}: hazard at unknown node {node!r}")
        self._metadata[HAZARD + node] = trigger

    def build(self) -> onnx.ModelProto:
        """Return the checked model, equal in every byte however often and wherever it is built.

        Raises:
            onnx.checker.ValidationError: the model is not valid ONNX.
            onnx.shape_inference.InferenceError: shapes or types do not fit.
        """
        graph = helper.make_graph(
            list(self._nodes.values()),
            self.name,
            self._inputs,
            self._outputs,
            initializer=list(self._initializers.values()),
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=IR_VERSION,
            producer_name=PRODUCER,
            doc_string=self.summary,
        )
        helper.set_model_props(model, self._metadata)
        onnx.checker.check_model(model, full_check=True)
        return model


def make_generator(seed: int) -> np.random.Generator:
    """Return the generator of a network's weights; PCG64 is named since the default may change."""
    return np.random.Generator(np.random.PCG64(seed))


def draw_weights(rng: np.random.Generator, shape: Sequence[int], fan_in: int, gain: float = 1.0) -> NDArray[np.float64]:
    """Draw uniform weights whose product with unit-variance inputs has standard deviation ``gain``.

    Only ``Generator.random`` and exactly rounded arithmetic are used: normal variates go through
    the platform's ``log`` and ``exp``, which may differ in the last bit from machine to machine.
    """
    bound = gain * math.sqrt(3.0 / fan_in)
    return bound * (2.0 * rng.random(tuple(shape)) - 1.0)
