"""Networks that describe themselves: the natural boxes of their inputs and their hazards are in the file."""

import math
from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import helper

from ranum_falsify.model_builder import ModelBuilder, Tensor

__all__ = ["BOX", "HAZARD", "PRODUCER", "NetworkBuilder", "draw_weights", "make_generator"]

PRODUCER = "ranum-falsify scripts/make_networks.py"
BOX = "box:"
HAZARD = "hazard:"


class NetworkBuilder(ModelBuilder):
    """Collects the nodes of one network and serialises them in the order in which they were added.

    The natural box of every input and the operators that can fail are kept in the model's metadata
    (``box:<input>`` = ``"low high"``, ``hazard:<node>`` = the trigger in words), so that the file
    describes itself.

    Args:
        name: name of the graph and of the file, without suffix.
        summary: one sentence on what the network computes; becomes the model's ``doc_string``.
        opset: version of the default ONNX operator set.
    """

    suffix = "_out"

    def __init__(self, name: str, summary: str, opset: int = 17) -> None:
        super().__init__(name, summary, opset=opset, producer=PRODUCER)
        self._hazards: dict[str, str] = {}

    def weight(self, name: str, values: ArrayLike) -> Tensor:
        """Add a float32 initializer; its name is what ``free(N, name)`` refers to."""
        return self.constant(np.asarray(values, dtype=np.float32), name)

    def indices(self, name: str, values: Sequence[int]) -> Tensor:
        """Add an int64 initializer, such as axes, shapes and split sizes."""
        return self.constant(np.asarray(values, dtype=np.int64), name)

    def split(
        self, tensor: Tensor, *sizes: Tensor, name: str, parts: Sequence[str], **attributes: object
    ) -> tuple[Tensor, ...]:
        """Add a ``Split`` whose outputs are called ``<name>_<part>``, and return them.

        Args:
            tensor: the tensor to split.
            *sizes: the initializer with the sizes, for opsets that take it as an input.
            name: name of the node.
            parts: one label per output.
            **attributes: ``axis``, and ``split`` or ``num_outputs`` where the opset has them.
        """
        outputs = [f"{name}_{part}" for part in parts]
        return self.add_node("Split", tensor, *sizes, name=name, outputs=outputs, **attributes)

    def dense(self, tensor: Tensor, weights: NDArray[np.float64], bias: NDArray[np.float64], name: str) -> Tensor:
        """Add ``tensor @ weights + bias`` as a ``Gemm``, with initializers ``<name>_W``, ``<name>_b``.

        Args:
            tensor: the operand, of shape ``(1, n_in)``.
            weights: shape ``(n_in, n_out)``.
            bias: shape ``(n_out,)``.
            name: name of the node.
        """
        operands = self.weight(f"{name}_W", weights), self.weight(f"{name}_b", bias)
        return self.node("Gemm", tensor, *operands, name=name)

    def reduce_sum(self, tensor: Tensor, axis: int, name: str, out: str | None = None, keepdims: int = 0) -> Tensor:
        """Add a sum over one axis, whose number ``ReduceSum`` takes as an input since opset 13."""
        axes = self.indices(f"axis_{axis}".replace("-", "minus_"), [axis])
        return self.node("ReduceSum", tensor, axes, name=name, out=out, keepdims=keepdims)

    def hazard(self, node: str, trigger: str) -> None:
        """Record that ``node`` can receive an invalid input, and which input of the network causes it."""
        if node not in self._nodes:
            raise ValueError(f"{self.name}: hazard at unknown node {node!r}")
        self._hazards[HAZARD + node] = trigger

    def build(self) -> onnx.ModelProto:
        """Return the checked model, byte for byte the same however often and wherever it is built.

        Raises:
            onnx.checker.ValidationError: the model is not valid ONNX.
            onnx.shape_inference.InferenceError: shapes or types do not fit.
        """
        model = super().build()
        boxes = {BOX + v.name: f"{v.low:g} {v.high:g}" for v in self.inputs}
        helper.set_model_props(model, {**boxes, **self._hazards})
        onnx.checker.check_model(model, full_check=True)
        return model


def make_generator(seed: int) -> np.random.Generator:
    """Return the generator of a network's weights; PCG64 is named because the default may change."""
    return np.random.Generator(np.random.PCG64(seed))


def draw_weights(rng: np.random.Generator, shape: Sequence[int], fan_in: int, gain: float = 1.0) -> NDArray[np.float64]:
    """Draw uniform weights whose product with unit-variance inputs has standard deviation ``gain``.

    Only ``Generator.random`` and exactly rounded arithmetic are used: normal variates go through
    the platform's ``log`` and ``exp``, which may differ in the last bit from machine to machine.
    """
    bound = gain * math.sqrt(3.0 / fan_in)
    return bound * (2.0 * rng.random(tuple(shape)) - 1.0)
