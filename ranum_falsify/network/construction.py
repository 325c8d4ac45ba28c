"""Interface by which branches and loops build parts of an operation graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from dnnv.nn import Operation
from dnnv.nn.utils import TensorDetails

from ranum_falsify.network.model_file import opset_of
from ranum_falsify.network.naming import UniqueNames
from ranum_falsify.network.nesting import SubgraphPath
from ranum_falsify.network.shaped import NodeOrigin, ReadOptions
from ranum_falsify.network.trace import Scope, Traced

MOST_NODES = 20_000
"""How many nodes all loops of a model may unroll to."""


class NotUnrolledError(Exception):
    """A loop cannot be unrolled; the text says why, as the end of a sentence."""


class TooLargeError(NotUnrolledError):
    """The loops of the model unroll to too many nodes."""


class Construction(ABC):
    """The state in which the nodes of one model are built, subgraphs and iterations among them.

    Args:
        model: The model.
        options: How to read it.
        known: Shape and dtype of the tensors of the model for which both are the same for every input and all weights.

    Attributes:
        notices: What a user should know.
        folded: Operations that depend on no input, with their values.
        names: The names that are taken.
        origins: Where the operations lie that are in subgraphs of the model, by name.
        path: The subgraphs that lead to the nodes that are built now.
        spent: How many nodes loops were unrolled to.
    """

    def __init__(self, model: onnx.ModelProto, options: ReadOptions, known: Mapping[str, TensorDetails]) -> None:
        self.model = model
        self.options = options
        self.known = known
        self.opset = opset_of(model)
        self.opsets = {entry.domain: entry.version for entry in model.opset_import}
        self.notices = list[str]()
        self.folded: list[tuple[Operation, tuple[np.ndarray, ...]]] = []
        self.is_too_small = False
        self.names = UniqueNames()
        self.origins = dict[str, NodeOrigin]()
        self.spent = 0
        self.path = SubgraphPath()

    @abstractmethod
    def build(self, order: Sequence[onnx.NodeProto], scope: Scope, keep: Sequence[str]) -> None:
        """Add the nodes of a graph, in topological order; the tensors to keep have their values afterwards."""

    @abstractmethod
    def add(self, node: onnx.NodeProto, scope: Scope) -> None:
        """Add one node, and what it writes to the scope."""

    @abstractmethod
    def as_operation(self, scope: Scope, name: str) -> Operation:
        """Return the operation that writes a tensor, an Identity for a constant."""

    def decide(self, traced: Traced) -> int | None:
        """Return the value of a tensor that steers the flow of control; None if an input decides it.

        Raises:
            ModelError: It has not one element.
        """
        if traced.is_constant or self.options.example is not None:
            return traced.number()
        return None

    def has_known_shape(self, traced: Traced) -> bool:
        """Tell whether a tensor has the same shape for every input that the graph is built for."""
        return traced.fixed_shape or self.options.example is not None

    def spend_on_loops(self, nodes: int) -> None:
        """Count nodes of an iteration.

        Raises:
            TooLargeError: The loops of the model have too many.
        """
        self.check_loops(nodes)
        self.spent += nodes

    def check_loops(self, nodes: int) -> None:
        """Check that loops may unroll to some more nodes.

        Raises:
            TooLargeError: They may not.
        """
        most = MOST_NODES if self.options.unrolled is None else self.options.unrolled
        if self.spent + nodes > most:
            raise TooLargeError(f"its iterations are more than {most:,} nodes")
