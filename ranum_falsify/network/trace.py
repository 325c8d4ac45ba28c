"""What the reader knows of each tensor while it builds a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.utils import TensorDetails

from ranum_falsify.errors import ModelError
from ranum_falsify.network.evaluate import Value
from ranum_falsify.network.registry import OperatorSpec
from ranum_falsify.network.tensors import numpy_dtype, to_torch

__all__ = ["Scope", "Traced", "UnfitBranch", "constant"]


@dataclass
class Traced:
    """A tensor of the model: where it comes from, and its value on the example input.

    Attributes:
        source: The operation that writes it, or its value if no input reaches it.
        example: Its value on the example input; dropped when nothing reads it any more.
        fixed_shape: Whether its shape is the same for every input.
    """

    source: Operation | np.ndarray
    example: torch.Tensor | None
    fixed_shape: bool

    @property
    def is_constant(self) -> bool:
        """Whether no input of the model reaches it."""
        return isinstance(self.source, np.ndarray)

    def tensor(self) -> torch.Tensor:
        """Return its value on the example input."""
        if self.example is None:
            assert isinstance(self.source, np.ndarray), "examples live until their last reader"
            self.example = to_torch(self.source)
        return self.example

    def value_for(self, spec: OperatorSpec, position: int) -> Value:
        """Return what the row reads at an operand position: an array where static, else a tensor."""
        name = spec.operands[position] if position < len(spec.operands) else ""
        if name in spec.static and isinstance(self.source, np.ndarray):
            return self.source
        return self.tensor()


def constant(array: np.ndarray) -> Traced:
    """Return a tensor that no input reaches."""
    return Traced(source=np.asarray(array), example=None, fixed_shape=True)


@dataclass(frozen=True)
class UnfitBranch:
    """A branch of an `If` that cannot run at the given dimensions, as where each branch is for inputs of one length.

    Attributes:
        error: Why, and what to do.
    """

    error: str

    def evaluate(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Refuse.

        Raises:
            ModelError: Always.
        """
        raise ModelError(self.error)


class Scope:
    """Tensors by name; a child scope sees its parent's."""

    def __init__(self, tensors: Mapping[str, Traced], parent: Scope | None = None) -> None:
        self.tensors = dict(tensors)
        self.parent = parent
        self.details: dict[str, TensorDetails] = {} if parent is None else parent.details

    def child(self, tensors: Mapping[str, Traced]) -> Scope:
        """Return the scope of a subgraph."""
        return Scope(tensors, parent=self)

    def __getitem__(self, name: str) -> Traced:
        """Return a visible tensor."""
        if name in self.tensors or self.parent is None:
            return self.tensors[name]
        return self.parent[name]

    def __setitem__(self, name: str, traced: Traced) -> None:
        """Add a tensor to this scope."""
        self.tensors[name] = traced

    def define(self, name: str, op: Operation, example: torch.Tensor, *, fixed_shape: bool) -> None:
        """Add a tensor that an operation writes, and note its shape and dtype."""
        self.tensors[name] = Traced(source=op, example=example, fixed_shape=fixed_shape)
        self.details[op.name] = TensorDetails(tuple(example.shape), numpy_dtype(example.dtype))

    def constant_value(self, name: str) -> np.ndarray | None:
        """Return the value of a tensor that no input reaches, else None."""
        source = self[name].source
        return source if isinstance(source, np.ndarray) else None

    def forget_example(self, name: str) -> None:
        """Drop the example of a tensor of this scope that nothing reads any more."""
        if name in self.tensors and not self.tensors[name].is_constant:
            self.tensors[name].example = None

    def names(self) -> Iterator[str]:
        """Yield all visible names."""
        yield from self.tensors
        if self.parent is not None:
            yield from self.parent.names()
