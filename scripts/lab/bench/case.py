"""A model, the same model written by hand in PyTorch, and a property that cannot be violated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from lab.networks.builder import NetworkBuilder, draw_weights, make_generator
from ranum_falsify.model_builder import Tensor

__all__ = ["Build", "Case"]

_FAR = 1e4
"""How far the first of several scores is kept below the others."""

_SLACK = 50.0
"""More than the difference of the scores of the cases, less than interval analysis leaves open."""

_MOST = 2.0
"""More than a single score, which is a probability, can be."""


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        name: Its name in the table.
        model: The ONNX model; one input, one output `(1, scores)`.
        bare: The same function in PyTorch, on a batch `(batch, *input_shape[1:])`.
        shape: Shape of the model's input.
        low: Smallest value of every input element.
        high: Largest value.
        scores: Number of outputs.
    """

    name: str
    model: onnx.ModelProto
    bare: Callable[[torch.Tensor], torch.Tensor]
    shape: tuple[int, ...]
    low: float
    high: float
    scores: int

    @property
    def property_text(self) -> str:
        """A DNNP property that no input violates and whose gradient vanishes nowhere.

        Its negation, that score 0 leads all others, is one conjunction: one sub-problem for DNNF.
        """
        rivals = [f"N(x)[0, 0] <= N(x)[0, {j}]" for j in range(1, self.scores)]
        holds = f"Or({', '.join(rivals)})" if rivals else f"N(x)[0, 0] <= {_MOST}"
        return self._text(holds)

    @property
    def open_property_text(self) -> str:
        """A property of several scores that no input violates either, and that one interval analysis does not prove.

        So a search starts even though proofs come first.
        """
        holds = f"N(x)[0, 0] <= N(x)[0, 1] - {_FAR - _SLACK}"
        return self._text(holds)

    def _text(self, holds: str) -> str:
        return (
            "from dnnv.properties import *\n"
            'N = Network("N")\n'
            f"Forall(x, Implies({self.low} <= x <= {self.high}, {holds}))\n"
        )

    def inputs(self, count: int) -> torch.Tensor:
        """Return a batch `(count, *shape[1:])` of the box for the bare loop."""
        generator = torch.Generator().manual_seed(0)
        return torch.rand((count, *self.shape[1:]), generator=generator) * (self.high - self.low) + self.low


class Build:
    """Builds the ONNX side of a case and hands out the same weights as tensors.

    Args:
        name: Name of the graph.
        shape: Shape of the input, batch dimension 1 included.
        low: Smallest value of every input element.
        high: Largest value.
        opset: Version of the default operator set.
    """

    def __init__(self, name: str, shape: tuple[int, ...], low: float, high: float, opset: int = 13) -> None:
        self.graph = NetworkBuilder(name, f"Benchmark model {name}.", opset)
        self.name, self.shape, self.low, self.high = name, shape, low, high
        self.x = self.graph.input("x", shape, low, high)
        self._rng = make_generator(0)
        self._count = 0

    def weight(self, *shape: int, fan_in: int = 1, gain: float = 1.4) -> tuple[Tensor, torch.Tensor]:
        """Return a random weight as an initializer and as PyTorch's tensor."""
        return self.constant(draw_weights(self._rng, shape, fan_in, gain))

    def bias(self, n_out: int, n_in: int, last: bool) -> tuple[Tensor, torch.Tensor]:
        """Return a random bias; that of the last layer keeps the first score below the others."""
        values = draw_weights(self._rng, (n_out,), n_in)
        if last:
            values[0] -= _FAR
        return self.constant(values)

    def constant(self, values: NDArray[np.float64]) -> tuple[Tensor, torch.Tensor]:
        """Return a constant as an initializer and as PyTorch's tensor, on the default device."""
        self._count += 1
        name = self.graph.weight(f"w{self._count}", values)
        return name, torch.from_numpy(values.astype(np.float32)).to(torch.get_default_device())

    def node(self, op: str, *operands: Tensor, **attributes: Any) -> Tensor:
        """Add a node; return its output."""
        self._count += 1
        return self.graph.node(op, *operands, name=f"{op}_{self._count}", **attributes)

    def reshape(self, operand: Tensor, *shape: int) -> Tensor:
        """Add a Reshape."""
        name = self.graph.indices("shape_" + "_".join(map(str, shape)).replace("-", "m"), shape)
        return self.node("Reshape", operand, name)

    def case(self, output: Tensor, scores: int, bare: Callable[[torch.Tensor], torch.Tensor], title: str) -> Case:
        """Finish: the output is `(1, scores)`."""
        self.graph.output(output, (1, scores))
        return Case(title, self.graph.build(), bare, self.shape, self.low, self.high, scores)
