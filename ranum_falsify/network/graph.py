"""DNNV's operation graph, extended: evaluation by rows, sound slicing, composition, its model."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import torch
from dnnv.nn import Operation, OperationGraph
from dnnv.nn.operations import Input, OutputSelect
from torch import Tensor

from ranum_falsify.errors import ModelError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network.evaluate import Value, apply
from ranum_falsify.network.model_file import fix_model, free_model
from ranum_falsify.network.naming import UniqueNames
from ranum_falsify.network.order import operands_in, topological_order
from ranum_falsify.network.registry import spec_of
from ranum_falsify.network.shaped import ReadOptions, ShapedGraph
from ranum_falsify.network.slicing import find_positions, parse_slice, slice_text
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.network.writer import to_onnx

Watch = Callable[[Operation, Sequence[Value], tuple[Tensor, ...]], None]
"""Called with each node of an evaluation, its operands in the order of its row, and its outputs."""


class Graph(ShapedGraph):
    """DNNV's operation graph, evaluated by rows, sliced soundly, and written as ONNX."""

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The ONNX model that this graph was read from, read as its options say; else one that is written from it."""
        if self.source is None:
            return to_onnx(self)
        return fix_model(free_model(self.source, self.options.free), self.options.fixed)

    # evaluation -------------------------------------------------------------------------------------------------

    def evaluate(self, inputs: Sequence[Tensor], watch: Watch | None = None) -> tuple[Tensor, ...]:
        """Evaluate on tensors of the inputs' shapes; tensors that nothing reads any more are freed on the way.

        Args:
            inputs: One tensor per input.
            watch: Called with each node, its operands in the order of its row, and its outputs.
        """
        uses = Counter(id(operand) for op in self.order for operand in operands_in(op))
        uses.update(id(op) for op in self.output_operations)
        values: dict[int, Any] = {id(op): x for op, x in zip(self.inputs, inputs, strict=True)}
        device = inputs[0].device if inputs else torch.get_default_device()

        def value(operand: Operation | np.ndarray | None) -> Value:
            if isinstance(operand, np.ndarray):
                return to_torch(operand).to(device)
            result: Value = None if operand is None else values[id(operand)]
            return result

        for op in self.order:
            if isinstance(op, OutputSelect):
                values[id(op)] = values[id(op.operation)][op.index]
            elif not isinstance(op, Input):
                spec = spec_of(op)
                operands = [value(operand) for operand in spec.operands_of(op)]
                results = apply(spec, op, operands)
                if watch is not None:
                    watch(op, operands, results)
                values[id(op)] = results if len(op.output_names) > 1 else results[0]
            for operand in operands_in(op):
                uses[id(operand)] -= 1
                if not uses[id(operand)]:
                    del values[id(operand)]
        return tuple(values[id(op)] for op in self.output_operations)

    def __call__(self, *x: Any, squeeze: bool = True, **_: Any) -> Any:
        """Evaluate on arrays; one output is returned bare, several as a tuple.

        Raises:
            ModelError: The number of arrays or a shape does not fit.
        """
        if len(x) != len(self.inputs):
            raise ModelError(f"network takes {len(self.inputs)} inputs ({', '.join(self.input_names)}), got {len(x)}")
        tensors = []
        for op, details, array in zip(self.inputs, self.input_details, x, strict=True):
            array = np.asarray(array)
            if array.shape != details.shape:
                raise ModelError(f"network input {op.name!r} has shape {details.shape}, got {array.shape}")
            try:
                tensors.append(to_torch(array.astype(details.dtype)))
            except (TypeError, ValueError) as error:
                raise ModelError(f"network input {op.name!r} holds {details.dtype}, got {array.dtype}") from error
        with torch.no_grad():
            outputs = tuple(to_numpy(y) for y in self.evaluate(tensors))
        return outputs[0] if squeeze and len(outputs) == 1 else outputs

    def as_onnx(self, *, add_missing_optional_inputs: bool = False) -> onnx.ModelProto:
        """Return the graph as an ONNX model; `export_onnx` saves it.  Optional inputs always keep their places."""
        return to_onnx(self)

    # derived graphs ---------------------------------------------------------------------------------------------

    def _derive(self, outputs: Sequence[Operation], names: Sequence[str], **changes: Any) -> Graph:
        state: dict[str, Any] = {"inputs": self.inputs, "details": self.details, "opset": self.opset}
        state |= {"notices": self.notices, "assumed_dims": self.assumed_dims, "folded": self.folded}
        state |= {"is_tried": self.is_tried}
        return Graph(outputs, output_names=tuple(names), **(state | changes))

    def cut_after(self, operations: Sequence[Operation]) -> Graph:
        """Return the graph whose outputs are the given operations of this one."""
        return self._derive(operations, [op.name for op in operations])

    def cut_between(self, source: Operation, op: Operation) -> Graph:
        """Return the graph from one operation, whose result becomes an input, to another, the only output."""
        return self._cut([op], [op.name], lambda other: other is source)

    def copy(self) -> Graph:
        """Return a graph of the same nodes; nodes are never changed in place."""
        whole: dict[str, Any] = {"source": self.source, "options": self.options, "shapes": self.shapes}
        whole |= {"origins": self.origins, "conditioned": self.conditioned}
        return self._derive(self.output_operations, self.output_names, read_again=self.read_again, **whole)

    def __getitem__(self, index: Any) -> Graph:
        """Slice by position, as DNNP does: `N[2:-3]`, `N[2:-3, 1]`, `N[:, 0]`, `N[1]` (output 1).

        Positions count operations along the longest path, inputs at 0; output selections do not count.  As for
        sequences, bounds past the end mean the end.

        Raises:
            ModelError: The slice is not understood, or holds no operation.
        """
        start, stop, selected = parse_slice(index)
        front, back = find_positions(self.order, self.output_operations)
        length = max(front.values()) + 1
        whole = not start and (stop is None or stop >= length)
        if whole and (selected is None or (selected in (0, -1) and len(self.output_operations) == 1)):
            return self.copy()
        outputs = list(self.output_operations)
        names = list(self.output_names)
        if stop is not None and stop < length:
            # A stop of 0 means the front, though counted from the back 0 would be the position after the last one, -1.
            reached = [op for op in self._sources() if id(op) in front]
            outputs = [op for op in reached if stop and stop in (front[id(op)] + 1, back[id(op)] + 1)]
            names = [op.name for op in outputs]
        if outputs and selected is not None:
            if not -len(outputs) <= selected < len(outputs):
                raise ModelError(f"slice selects output {selected}, the network has {len(outputs)}")
            outputs, names = [outputs[selected]], [names[selected]]

        def is_cut(op: Operation) -> bool:
            return front[id(op)] < start if start > 0 else back[id(op)] < start

        if not outputs or (start and all(is_cut(op) for op in outputs)):
            raise ModelError(f"slice {slice_text(index)} holds no operation; the network has {length} positions")
        return self._cut(outputs, names, is_cut) if start else self._derive(outputs, names)

    def _sources(self) -> list[Operation]:
        """Operations that stand for a tensor, so that slices can end there."""
        selected = {id(op.operation) for op in self.order if isinstance(op, OutputSelect)}
        return [op for op in self.order if id(op) not in selected]

    def _cut(self, outputs: Sequence[Operation], names: Sequence[str], is_cut: Callable[[Operation], bool]) -> Graph:
        """Return the graph after the cut operations, which become inputs."""
        clones: dict[int, Operation] = {}
        details = dict(self.details)
        for op in topological_order(outputs):
            if is_cut(op):
                whole = self.details.get(op.name)
                if whole is None:
                    continue
                clones[id(op)] = Input(np.array(whole.shape, dtype=np.int64), whole.dtype, name=op.name)
            else:
                clones[id(op)] = _clone(op, clones)
        kept = {id(op) for op in topological_order([clones[id(op)] for op in outputs])}
        twins = (clones[id(op)] for op in self.order if id(op) in clones)
        inputs = tuple(op for op in twins if isinstance(op, Input) and id(op) in kept)
        return self._derive([clones[id(op)] for op in outputs], names, inputs=inputs, details=details)

    def compose(self, input_op_graph: OperationGraph) -> Graph:
        """Return this graph applied to the outputs of another.

        Raises:
            ModelError: Number, shape or dtype of the inputs and the other's outputs differ.
        """
        other = input_op_graph
        assert isinstance(other, Graph)
        given = [(d.shape, d.dtype) for d in other.output_details]
        wanted = [(d.shape, d.dtype) for d in self.input_details]
        if given != wanted:
            raise ModelError(f"compose: the inner network gives {given}, the outer takes {wanted}")
        clones: dict[int, Operation] = {}
        names = UniqueNames(op.name for op in other.order)
        details = dict(other.details)
        for op, inner in zip(self.inputs, other.output_operations, strict=True):
            clones[id(op)] = inner
        for op in self.order:
            if id(op) not in clones:
                name = names.take(op.name)
                clones[id(op)] = _clone(op, clones, name)
                if op.name in self.details:
                    details[name] = self.details[op.name]
        outputs = [clones[id(op)] for op in self.output_operations]
        changes: dict[str, Any] = {"inputs": other.inputs, "details": details, "opset": max(self.opset, other.opset)}
        changes |= {"notices": (*other.notices, *self.notices), "folded": (*other.folded, *self.folded)}
        changes |= {"assumed_dims": {**other.assumed_dims, **self.assumed_dims}}
        conditioned = (clones[id(op)] for op in self.conditioned if id(op) in clones)
        changes |= {"conditioned": (*other.conditioned, *conditioned)}
        return self._derive(outputs, self.output_names, **changes)

    def free(self, names: Sequence[str]) -> Graph:
        """Return the graph with these initializers as additional inputs, after the others."""
        return self._read_again(replace(self.options, free=(*self.options.free, *names)))

    def fix(self, values: Mapping[str, np.ndarray]) -> Graph:
        """Return the graph with these inputs as constants."""
        return self._read_again(replace(self.options, fixed={**self.options.fixed, **values}))

    def _read_again(self, options: ReadOptions) -> Graph:
        if self.read_again is None:
            raise ModelError("only a whole network can have freed weights or fixed inputs, not a slice or composition")
        graph: Graph = self.read_again(options)
        return graph


def _clone(op: Operation, clones: Mapping[int, Operation], name: str | None = None) -> Operation:
    twin = copy.copy(op)
    twin.name = op.name if name is None else name
    for key, value in op.__dict__.items():
        if isinstance(value, Operation):
            twin.__dict__[key] = clones[id(value)]
        elif isinstance(value, list | tuple):
            items = [clones[id(item)] if isinstance(item, Operation) else item for item in value]
            twin.__dict__[key] = type(value)(items)
    return twin
