"""Networks that read like their equations: tensors with arithmetic, and a method for every ONNX operator."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass(frozen=True, kw_only=True)
class BoxedVariable:
    """An input or a weight, and the box that it ranges over.

    Attributes:
        name: Name of the ONNX input or initializer.
        shape: Shape.
        dtype: NumPy's name of the element type.
        low: Smallest value of each element.
        high: Largest value of each element.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float

    @property
    def info(self) -> onnx.ValueInfoProto:
        """What a graph says of it as an input."""
        return _value_info(self.name, self.shape, self.dtype)


@dataclass(frozen=True)
class Tensor:
    """A tensor of the model that is being built; arithmetic adds nodes."""

    builder: ModelBuilder
    name: str

    def __add__(self, other: Operand) -> Tensor:
        return self.builder.Add(self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return self.builder.Add(other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return self.builder.Sub(self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return self.builder.Sub(other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return self.builder.Mul(self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return self.builder.Mul(other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return self.builder.Div(self, other)

    def __matmul__(self, other: Operand) -> Tensor:
        return self.builder.MatMul(self, other)

    def __neg__(self) -> Tensor:
        return self.builder.Neg(self)


Operand = Tensor | float | np.ndarray | np.generic | Sequence[int] | None
"""A tensor, or a constant: a float as float32, integers as int64, an array as it is; None is an absent operand."""


class ModelBuilder:
    """Collects the nodes of one model.

    `g.Relu(x)`, `g.Conv(x, w, pads=[1, 1, 1, 1], name="first")` and so on add nodes.  A node has the name that it is
    given, or that of its operator with a number, as in TensorFlow: `Log`, `Log_1`, ...; its output has the same name,
    unless it is given one of its own.

    Attributes:
        suffix: Suffix that is added to the name of a node for the name of its output.
        name: Name of the graph.
        summary: The model's `doc_string`.
        inputs: The inputs so far.

    Args:
        name: Name of the graph.
        summary: One sentence, the model's `doc_string`.
        opset: Version of the default operator set.
        domains: Versions of other operator sets.
        ir_version: Version of the format.
        producer: Name of the model's producer.
    """

    suffix = ""

    def __init__(
        self,
        name: str = "g",
        summary: str = "",
        *,
        opset: int = 17,
        domains: Mapping[str, int] | None = None,
        ir_version: int = 8,
        producer: str = "",
    ) -> None:
        self.name = name
        self.summary = summary
        self.inputs: list[BoxedVariable] = []
        self._opsets = {"": opset, **(domains or {})}
        self._ir_version = ir_version
        self._producer = producer
        self._outputs: list[onnx.ValueInfoProto] = []
        self._nodes: dict[str, onnx.NodeProto] = {}
        self._initializers: list[dict[str, Any]] = []
        self._constants: dict[tuple[str | None, str, tuple[int, ...], bytes], Tensor] = {}
        self._counts: Counter[str] = Counter()
        self._taken: set[str] = set()

    def input(
        self,
        name: str,
        shape: Sequence[int],
        low: float = -math.inf,
        high: float = math.inf,
        dtype: str = "float32",
    ) -> Tensor:
        """Declare an input whose elements lie in [low, high]."""
        self.inputs.append(BoxedVariable(name=name, shape=tuple(shape), dtype=dtype, low=low, high=high))
        return self._new(name)

    def constant(self, value: float | np.ndarray | np.generic | Sequence[int], name: str | None = None) -> Tensor:
        """Return a constant: equal constants without a name, and those of the same name, are one tensor.

        Raises:
            ValueError: Another constant, or another tensor, has the name.
        """
        array = np.asarray(value)
        if not isinstance(value, np.ndarray | np.generic):
            array = array.astype(np.int64 if array.dtype.kind in "iu" and array.ndim else np.float32)
        assert array.dtype.kind not in "OUS", "a tensor of text"
        native = array.dtype.isbuiltin == 1  # others, such as int4, are packed
        content = array.tobytes() if native else numpy_helper.from_array(array).raw_data
        key = (name, array.dtype.name, array.shape, content)
        if key not in self._constants:
            label = name or self._unused("constant")
            self._constants[key] = self._new(label)
            data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
            self._initializers.append({"name": label, "data_type": data_type, "dims": array.shape, "raw_data": content})
        return self._constants[key]

    def node(
        self, op_type: str, *operands: Operand, name: str | None = None, out: str | None = None, **attributes: Any
    ) -> Tensor:
        """Add a node with one output and return that; `out` is the output's name."""
        name = name or self._unused(op_type)
        return self.add_node(op_type, *operands, name=name, outputs=[out or name + self.suffix], **attributes)[0]

    def add_node(
        self, op_type: str, *operands: Operand, name: str, outputs: Sequence[str], **attributes: Any
    ) -> tuple[Tensor, ...]:
        """Add a node with outputs of these names and return them."""
        if name in self._nodes:
            raise ValueError(f"{self.name}: two nodes are called {name!r}")
        read = ["" if x is None else (x if isinstance(x, Tensor) else self.constant(x)).name for x in operands]
        self._nodes[name] = helper.make_node(op_type, read, outputs, name=name, **attributes)
        return tuple(map(self._new, outputs))

    def __getattr__(self, op_type: str) -> Callable[..., Tensor]:
        if not op_type[:1].isupper() or not onnx.defs.has(op_type):
            raise AttributeError(f"{type(self).__name__} has no {op_type!r}, and no ONNX operator is called so")

        def add(*operands: Operand, **attributes: Any) -> Tensor:
            return self.node(op_type, *operands, **attributes)

        return add

    def output(self, tensor: Tensor, shape: Sequence[int] | None = None, dtype: str = "float32") -> None:
        """Declare a tensor as an output of the model; without a shape, its type is left to inference."""
        if shape is None:
            self._outputs.append(onnx.ValueInfoProto(name=tensor.name))
        else:
            self._outputs.append(_value_info(tensor.name, shape, dtype))

    def build(self) -> onnx.ModelProto:
        """Return the model, unchecked."""
        graph = helper.make_graph(list(self._nodes.values()), self.name, [v.info for v in self.inputs], self._outputs)
        texts = {"producer_name": self._producer, "doc_string": self.summary}
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(domain, version) for domain, version in self._opsets.items()],
            ir_version=self._ir_version,
            **{name: text for name, text in texts.items() if text},
        )
        for fields in self._initializers:  # bytes of large weights are copied once, here
            model.graph.initializer.add(**fields)
        return model

    def _unused(self, op_type: str) -> str:
        while True:
            number = self._counts[op_type]
            self._counts[op_type] += 1
            name = f"{op_type}_{number}" if number else op_type
            if name not in self._taken:
                return name

    def _new(self, name: str) -> Tensor:
        if name in self._taken:
            raise ValueError(f"{self.name}: two tensors are called {name!r}")
        self._taken.add(name)
        return Tensor(self, name)


def _value_info(name: str, shape: Sequence[int | str], dtype: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def copy_without(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """Return a copy of a model without some initializers, the bytes of which are never copied."""
    copy = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _set_field(copy, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _set_field(copy.graph, field.name, value)
    copy.graph.initializer.extend(i for i in model.graph.initializer if i.name not in names)
    return copy


def _set_field(message: Any, name: str, value: Any) -> None:
    if hasattr(value, "CopyFrom"):
        getattr(message, name).CopyFrom(value)
    elif hasattr(value, "extend"):
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)
