"""Passes whose models look different from outside, or are no models."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tests.rewrite.broken.kinds import Broken, broken, broken_graph

__all__ = ["OUTSIDE"]

MODEL = "g (float[4] x) => (float[4] y, float[4] z) { [abs] y = Abs(x) [neg] z = Neg(x) }"
WEIGHTS = "g (float[1, 2] x) => (float[1, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul(x, w) }"

CONSTANT = "g (float[2] x) => (float[2] y) { [c] c = Constant<value = float[2] {1, 2}>() y = Mul(x, c) }"


def rename_output(model: ir.Model) -> None:
    model.graph.outputs[0].name = "other"


def drop_output(model: ir.Model) -> None:
    del model.graph.outputs[1]


def swap_outputs(model: ir.Model) -> None:
    first, second = model.graph.outputs
    del model.graph.outputs[:]
    model.graph.outputs.extend([second, first])


def add_input(model: ir.Model) -> None:
    model.graph.inputs.append(
        ir.Value(name="more", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([4])),
    )


def narrow_input(model: ir.Model) -> None:
    model.graph.inputs[0].shape = ir.Shape([3])


def declare_shape(model: ir.Model) -> None:
    model.graph.outputs[0].shape = ir.Shape([1, 4])


def declare_double(model: ir.Model) -> None:
    model.graph.outputs[0].dtype = ir.DataType.DOUBLE


def raise_opset(model: ir.Model) -> None:
    model.graph.opset_imports[""] = 18


def lose_opset(model: ir.Model) -> None:
    del model.graph.opset_imports[""]


def make_cycle(model: ir.Model) -> None:
    first, second = model.graph.node("abs"), model.graph.node("neg")
    first.replace_input_with(0, second.outputs[0])
    second.replace_input_with(0, first.outputs[0])


def read_nothing(model: ir.Model) -> None:
    model.graph.node("abs").replace_input_with(0, ir.Value(name="nowhere"))


def write_twice(model: ir.Model) -> None:
    node = ir.node("Neg", [model.graph.inputs[0]])
    node.outputs[0].name = "y"
    model.graph.append(node)


def change_weights(model: ir.Model) -> None:
    tensor = model.graph.initializers["w"].const_value
    assert tensor is not None
    array = np.array(tensor.numpy())
    array[0, 0] += 0.5
    model.graph.initializers["w"].const_value = ir.tensor(array, name="w")


def change_shared_weights(model: ir.Model) -> None:
    """Change what the old model has, too."""
    tensor = model.graph.initializers["w"].const_value
    assert tensor is not None
    tensor.numpy()[0, 0] += 0.5


def change_shared_constant(model: ir.Model) -> None:
    model.graph.node("c").attributes["value"].as_tensor().numpy()[0] += 0.5


OUTSIDE: tuple[Broken, ...] = (
    broken_graph("renamed output", MODEL, rename_output),
    broken_graph("dropped output", MODEL, drop_output),
    broken_graph("swapped outputs", MODEL, swap_outputs),
    broken_graph("another input", MODEL, add_input),
    broken_graph("another shape of an input", MODEL, narrow_input),
    broken_graph("another shape of an output", MODEL, declare_shape),
    broken_graph("another type of an output", MODEL, declare_double),
    broken_graph("raised opset", MODEL, raise_opset),
    broken_graph("lost opset", MODEL, lose_opset),
    broken_graph("cyclic graph", MODEL, make_cycle),
    broken_graph("dangling name", MODEL, read_nothing),
    broken_graph("name written twice", MODEL, write_twice),
    broken("operator of nobody", MODEL, lambda self, op, x: op.Abs(x), lambda self, op, x: op.Abs(x, _domain="nobody")),
    broken(
        "operand too many", MODEL, lambda self, op, x: op.Abs(x), lambda self, op, x: op.Abs(x, x), stage="structure"
    ),
    broken_graph("changed initializer", WEIGHTS, change_weights, stage="samples"),
    broken_graph("initializer changed in place", WEIGHTS, change_shared_weights, stage="read-only tensors"),
    broken_graph("constant changed in place", CONSTANT, change_shared_constant, stage="read-only tensors"),
)
