"""Networks that read like their equations: tensors with arithmetic, and a method for every ONNX operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ranum_falsify.zoo.initial import Initial

__all__ = ["OPSET", "Architecture", "BoxedVariable", "ModelBuilder", "Tensor"]

OPSET = 17
_IR_VERSION = 8
_PRODUCER = "ranum-falsify zoo"


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


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A model whose weights may take any values within their ranges.

    Attributes:
        model: The model, weights as initialised.
        inputs: Its inputs, in order.
        weights: The initializers that training changes.
    """

    model: onnx.ModelProto
    inputs: tuple[BoxedVariable, ...]
    weights: tuple[BoxedVariable, ...]


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
    given, or that of its operator with a number, as in TensorFlow: `Log`, `Log_1`, ...; its output has the same name.

    Args:
        name: Name of the graph.
        summary: One sentence, the model's `doc_string`.
        batch: Batch size, for architectures that leave it open.
        seed: Seed of the initial weights.
    """

    def __init__(self, name: str, summary: str = "", *, batch: int = 1, seed: int = 0) -> None:
        self.batch = batch
        self._name = name
        self._summary = summary
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._inputs: list[BoxedVariable] = []
        self._weights: list[BoxedVariable] = []
        self._outputs: list[str] = []
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Tensor] = {}
        self._counts: Counter[str] = Counter()
        self._taken: set[str] = set()

    def input(self, name: str, shape: Sequence[int], low: float, high: float, dtype: str = "float32") -> Tensor:
        """Declare an input whose elements lie in [low, high]."""
        self._inputs.append(BoxedVariable(name=name, shape=tuple(shape), dtype=dtype, low=low, high=high))
        return self._make(name)

    def weight(self, name: str, shape: Sequence[int], initial: Initial) -> Tensor:
        """Add an initializer that training changes, within the range of its initial distribution."""
        array = initial.draw(self._rng, tuple(shape)).astype(np.float32)
        self._initializers[name] = numpy_helper.from_array(array, name)
        self._weights.append(
            BoxedVariable(name=name, shape=tuple(shape), dtype="float32", low=initial.low, high=initial.high)
        )
        return self._make(name)

    def constant(self, value: float | np.ndarray | np.generic | Sequence[int], name: str | None = None) -> Tensor:
        """Return a constant; equal constants without a name of their own are one tensor."""
        array = np.asarray(value)
        if not isinstance(value, np.ndarray | np.generic):
            array = array.astype(np.int64 if array.dtype.kind in "iu" and array.ndim else np.float32)
        key = (array.dtype.str, array.shape, array.tobytes())
        if name is None and key in self._constants:
            return self._constants[key]
        label = name or self._find_unused("constant")
        self._initializers[label] = numpy_helper.from_array(array, label)
        tensor = self._make(label)
        if name is None:
            self._constants[key] = tensor
        return tensor

    def node(
        self, op_type: str, *operands: Operand, name: str | None = None, outputs: int = 1, **attributes: Any
    ) -> tuple[Tensor, ...]:
        """Add a node of any operator and return its outputs."""
        name = name or self._find_unused(op_type)
        read = ["" if x is None else (x if isinstance(x, Tensor) else self.constant(x)).name for x in operands]
        written = [self._make(name if not i else f"{name}_{i}_output") for i in range(outputs)]
        self._nodes.append(helper.make_node(op_type, read, [y.name for y in written], name=name, **attributes))
        return tuple(written)

    def __getattr__(self, op_type: str) -> Callable[..., Tensor]:
        if not op_type[:1].isupper() or not onnx.defs.has(op_type):
            raise AttributeError(f"{type(self).__name__} has no {op_type!r}, and no ONNX operator is called so")

        def add(*operands: Operand, name: str | None = None, **attributes: Any) -> Tensor:
            return self.node(op_type, *operands, name=name, **attributes)[0]

        return add

    def output(self, tensor: Tensor) -> None:
        """Declare a tensor as an output of the model; its type and shape are inferred."""
        self._outputs.append(tensor.name)

    def build(self) -> Architecture:
        """Return the checked model with the ranges of its inputs and weights.

        Raises:
            onnx.checker.ValidationError: The model is not valid ONNX.
            onnx.shape_inference.InferenceError: Shapes or types do not fit.
        """
        inputs = [
            helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(np.dtype(v.dtype)), v.shape)
            for v in self._inputs
        ]
        graph = helper.make_graph(
            self._nodes,
            self._name,
            inputs,
            [onnx.ValueInfoProto(name=name) for name in self._outputs],
            initializer=list(self._initializers.values()),
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=_IR_VERSION,
            producer_name=_PRODUCER,
            doc_string=self._summary,
        )
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        del inferred.graph.value_info[:]
        onnx.checker.check_model(inferred, full_check=True)
        return Architecture(model=inferred, inputs=tuple(self._inputs), weights=tuple(self._weights))

    def _find_unused(self, op_type: str) -> str:
        while True:
            number = self._counts[op_type]
            self._counts[op_type] += 1
            name = f"{op_type}_{number}" if number else op_type
            if name not in self._taken:
                return name

    def _make(self, name: str) -> Tensor:
        if name in self._taken:
            raise ValueError(f"{self._name}: two tensors are called {name!r}")
        self._taken.add(name)
        return Tensor(self, name)
