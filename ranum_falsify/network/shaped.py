"""Named inputs and outputs of an operation graph, and tensors of known shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from dnnv.nn import Operation, OperationGraph
from dnnv.nn.operations import Input, OutputSelect
from dnnv.nn.utils import TensorDetails

from ranum_falsify.lazy import cached_property
from ranum_falsify.network.order import maker_of, operands_in, topological_order


@dataclass(frozen=True)
class NodeOrigin:
    """Where a node lies in a model.

    Attributes:
        path: The subgraphs that lead to it: the first output of each node that holds one, and the attribute it is.
        output: The first tensor that the node writes.
        name: Its name after those of the nodes that hold it; all iterations of a loop have one.
    """

    path: tuple[tuple[str, str], ...]
    output: str
    name: str


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a model was read.

    Attributes:
        dims: Sizes of symbolic dimensions.
        assumed: Those of which nothing is said; 1 where left out.
        free: Freed initializers.
        fixed: Inputs that became constants.
        strict: Whether operators without a row are refused.
        sample: Values of inputs, by name, on which reading finds out shapes; zeros of what is left out.
        example: Values of all inputs that decide branches and loops; None where only constants do.
        unrolled: How many nodes loops may unroll to, None for the usual number.
        sizes: Sizes that values choose (:class:`ChosenSize`), by name of the tensor; the example's where left out.
    """

    dims: Mapping[str, int] = field(default_factory=dict)
    assumed: Mapping[str, int] = field(default_factory=dict)
    free: tuple[str, ...] = ()
    fixed: Mapping[str, np.ndarray] = field(default_factory=dict)
    strict: bool = False
    sample: Mapping[str, np.ndarray] = field(default_factory=dict)
    example: Mapping[str, np.ndarray] | None = None
    unrolled: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)


ReadAgain = Callable[[ReadOptions], Any]
"""Reads the model of a graph once more, with other options."""


class ShapedGraph(OperationGraph):
    """An operation graph whose tensors have known shapes.

    Attributes:
        inputs: Input operations, in the model's order, freed initializers last.
        output_names: Tensor names of the outputs.
        details: Shape and dtype of each operation's output on the example input, by operation name; operations with
            several outputs are listed by their output selections.
        source: The ONNX model it was read from, None for slices and compositions.
        opset: Opset of the model.
        options: How it was read.
        notices: What a user should know: defaulted dimensions, random operators.
        assumed_dims: Sizes of symbolic dimensions for which none was given, by name or as `input:axis`.
        is_too_small: Whether an operator is left open because its operand is too small.
        folded: Operations that depend on no input, in topological order, with their values as PyTorch computes them:
            the constants of the graph that runtimes compute by themselves.
        shapes: Shape and dtype, by name, of the tensors of the model for which both are the same for every input; none
            for slices and compositions.
        origins: Where the operations lie that are in subgraphs of the model, by name: those of branches, and of loops,
            which are unrolled.
        read_again: Reads the model of a whole network with other options; None for slices, compositions and branches.
        conditioned: Operations that have conditions, or an output of theirs, although no output of the graph depends on
            some: ONNX Runtime runs them, too.  None for slices, which keep what their outputs depend on.
        is_tried: Whether all operators ran on an example when it was read, and none was told its shape.
    """

    def __init__(
        self,
        output_operations: Sequence[Operation],
        *,
        inputs: tuple[Input, ...],
        output_names: tuple[str, ...],
        details: Mapping[str, TensorDetails],
        opset: int,
        source: onnx.ModelProto | None = None,
        options: ReadOptions | None = None,
        notices: tuple[str, ...] = (),
        assumed_dims: Mapping[str, int] | None = None,
        is_too_small: bool = False,
        folded: tuple[tuple[Operation, tuple[np.ndarray, ...]], ...] = (),
        shapes: Mapping[str, TensorDetails] | None = None,
        origins: Mapping[str, NodeOrigin] | None = None,
        read_again: ReadAgain | None = None,
        conditioned: Sequence[Operation] = (),
        is_tried: bool = True,
    ) -> None:
        super().__init__(list(output_operations))
        self.inputs = inputs
        self.output_names = output_names
        self.details = details
        self.source = source
        self.opset = opset
        self.options = options or ReadOptions()
        self.notices = notices
        self.assumed_dims = dict(assumed_dims or {})
        self.is_too_small = is_too_small
        self.folded = folded
        self.shapes = shapes or {}
        self.origins = origins or {}
        self.read_again = read_again
        self.conditioned = tuple(conditioned)
        self.is_tried = is_tried

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in the model's order."""
        return tuple(op.name for op in self.inputs)

    @property
    def input_details(self) -> tuple[TensorDetails, ...]:
        """Shape and dtype of each input."""
        return tuple(TensorDetails(tuple(int(d) for d in op.shape), op.dtype) for op in self.inputs)

    @property
    def output_details(self) -> tuple[TensorDetails, ...]:
        """Shape and dtype of each output."""
        return tuple(self.details_of(op) for op in self.output_operations)

    def details_of(self, op: Operation) -> TensorDetails:
        """Return shape and dtype of an operation's (first) output."""
        if op.name in self.details:
            return self.details[op.name]
        return self.details[self._first_selections[id(op)].name]

    @cached_property
    def _first_selections(self) -> dict[int, OutputSelect]:
        selections = sorted((op for op in self.order if isinstance(op, OutputSelect)), key=lambda op: -op.index)
        return {id(op.operation): op for op in selections}

    @cached_property
    def order(self) -> tuple[Operation, ...]:
        """All operations in topological order."""
        ends = (*self.inputs, *self.output_operations)
        reached = {id(op) for op in topological_order(ends)}
        # Of an operation with several outputs one is enough, and none where others are read.
        ran = ((end, maker_of(end)) for end in self.conditioned)
        idle = [end for end, op in ran if id(op) not in reached]
        return tuple(topological_order((*ends, *idle)))

    @cached_property
    def nodes(self) -> tuple[Operation, ...]:
        """The operations that have a row, in topological order: no inputs, no output selections."""
        return tuple(op for op in self.order if not isinstance(op, (Input, OutputSelect)))

    @cached_property
    def reads(self) -> Mapping[int, Sequence[int]]:
        """For each operation, by `id`, the `id`s of the operations that it reads, one for each read."""
        return {id(op): [id(operand) for operand in operands_in(op)] for op in self.order}
