"""Builds ONNX models node by node, and always knows the type of every tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
from onnx import TypeProto, helper, numpy_helper

from tests.domain.boxes import Array

__all__ = ["OPSET", "Maker", "Unfit"]

OPSET = 21
_MOST_ELEMENTS = 600


class Unfit(Exception):
    """A fragment finds no operand that fits, or its result would be too large."""


class Maker:
    """A model that grows.

    Attributes:
        rng: Source of chance.
        dtype: Element type of the floating tensors.
        free: Share of the weights that become inputs.
        freed: Values of the inputs, by name.
        nodes: Nodes so far, in topological order.
        live: Floating tensors that later nodes may read, oldest first.
        opset: Version of the operators.
    """

    def __init__(
        self, rng: np.random.Generator, dtype: Any = np.float32, free: float = 0.0, *, opset: int = OPSET
    ) -> None:
        self.rng = rng
        self.opset = opset
        self.free = free
        self.freed: dict[str, Array] = {}
        self.dtype = np.dtype(dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.live: list[str] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._types: dict[str, TypeProto] = {}

    @property
    def element(self) -> int:
        """ONNX number of the floating type."""
        return int(helper.np_dtype_to_tensor_dtype(self.dtype))

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Add an input."""
        info = helper.make_tensor_value_info(name, self.element, shape)
        self._inputs.append(info)
        self._types[name] = info.type
        self.live.append(name)
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Return the name of a new constant of the floating type, or of another."""
        array = np.asarray(value, dtype=self.dtype if dtype is None else dtype)
        name = f"c{len(self._constants)}"
        self._constants[name] = numpy_helper.from_array(array, name)
        self._types[name] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        return name

    def ints(self, *values: int) -> str:
        """Return the name of a constant vector of int64."""
        return self.constant(values, np.int64)

    def weight(self, *shape: int, low: float = -1.0, high: float = 1.0) -> str:
        """Return the name of a random constant; some weights are exactly zero, some tensors have one sign."""
        values = self.rng.uniform(low, high, shape)
        if self.rng.random() < 0.3:
            values = np.where(self.rng.random(shape) < 0.5, values, 0.0)
        if self.rng.random() < 0.2:
            values = np.abs(values)
        if self.rng.random() >= self.free:
            return self.constant(values)
        name = f"w_{len(self.freed)}"
        self.freed[name] = values.astype(self.dtype)
        info = helper.make_tensor_value_info(name, self.element, shape)
        self._inputs.append(info)
        self._types[name] = info.type
        return name

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one output; return its name."""
        return self.ops(op_type, *inputs, outputs=1, **attributes)[0]

    def ops(self, op_type: str, *inputs: str, outputs: int, **attributes: Any) -> tuple[str, ...]:
        """Add a node of several outputs; return their names.

        Raises:
            Unfit: ONNX infers no shapes for it, or too large ones.
        """
        names = tuple(f"t{len(self.nodes)}_{i}" for i in range(outputs))
        node = helper.make_node(op_type, inputs, names, name=f"n{len(self.nodes)}", **attributes)
        try:
            schema = onnx.defs.get_schema(op_type, self.opset)
        except onnx.defs.SchemaError as error:
            raise Unfit(str(error)) from error
        given = {name: self._types[name] for name in inputs if name}
        known = {name: self._constants[name] for name in inputs if name in self._constants}
        infer, opsets = onnx.shape_inference.infer_node_outputs, [helper.make_opsetid("", self.opset)]
        try:
            found = infer(schema, node, given, known, opset_imports=opsets, ir_version=10)
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
            raise Unfit(str(error)) from error
        for name in names:
            if name not in found:
                raise Unfit(f"{op_type}: no type of {name}")
            self._types[name] = found[name]
            if not 0 < np.prod(self.shape(name), dtype=np.int64) <= _MOST_ELEMENTS:
                raise Unfit(f"{op_type}: shape {self.shape(name)}")
        self.nodes.append(node)
        return names

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        tensor = self._types[name].tensor_type
        if not tensor.HasField("shape") or any(not d.HasField("dim_value") for d in tensor.shape.dim):
            raise Unfit(f"{name}: shape unknown")
        return tuple(d.dim_value for d in tensor.shape.dim)

    def info(self, name: str) -> onnx.ValueInfoProto:
        """Return name and type of a tensor, as in a list of outputs."""
        return onnx.ValueInfoProto(name=name, type=self._types[name])

    def keep(self, *names: str) -> None:
        """Let later nodes read tensors; those of another type are cast first."""
        for name in names:
            if self._types[name].tensor_type.elem_type != self.element:
                name = self.op("Cast", name, to=self.element)
            self.live.append(name)

    def pick(self, *ranks: int) -> str:
        """Return a live tensor, more likely a late one, of one of the ranks if any are given.

        Raises:
            Unfit: There is none.
        """
        fitting = [name for name in self.live if not ranks or len(self.shape(name)) in ranks]
        if not fitting:
            raise Unfit(f"no tensor of rank {ranks}")
        late = int(self.rng.geometric(0.3))
        return fitting[max(0, len(fitting) - late)]

    def partner(self, x: str) -> str:
        """Return a tensor that broadcasts with another: a live one of its shape, a part of it, or a constant."""
        shape = self.shape(x)
        alike = [name for name in self.live if self.shape(name) == shape]
        kind = self.rng.random()
        if kind < 0.5 and len(alike) > 1:
            return str(self.rng.choice(alike))
        if kind < 0.7:
            axis = int(self.rng.integers(len(shape))) if shape else 0
            return self.op("ReduceMax", x, self.ints(axis), keepdims=1) if shape else x
        few = tuple(n if self.rng.random() < 0.5 else 1 for n in shape)
        return self.weight(*few, low=-2.0, high=2.0)

    def one_of(self, *items: Any) -> Any:
        """Return one of the arguments."""
        return items[int(self.rng.integers(len(items)))]

    def attempt(self, fragment: Callable[[Maker], None]) -> bool:
        """Add a fragment; if it does not fit, leave the model as it was."""
        nodes, live = len(self.nodes), len(self.live)
        try:
            fragment(self)
        except Unfit:
            del self.nodes[nodes:], self.live[live:]
            return False
        return True

    def model(self) -> onnx.ModelProto:
        """Return the model; its outputs are the tensors that nothing reads."""
        read = {name for node in self.nodes for name in node.input}
        outputs = [name for node in self.nodes for name in node.output if name and name not in read]
        infos = [self.info(name) for name in outputs]
        constants = [tensor for name, tensor in self._constants.items() if name in read]
        inputs = [info for info in self._inputs if info.name in read]
        graph = helper.make_graph(self.nodes, "random", inputs or self._inputs[:1], infos, initializer=constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
