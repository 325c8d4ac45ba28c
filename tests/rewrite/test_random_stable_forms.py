"""Stable forms on random expressions: what they make gives what was there before, in all opsets and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from ranum_falsify.rewrite.apply import apply_stable, equal_passes, infer_shapes
from tests.rewrite.sweeping import session

OPSETS = (9, 11, 13, 17, 18, 21)
SEEDS = 60
SHARDS = 4


class Writer:
    """Nodes of a random model; operands of what commutes are in either order, and constants in several shapes."""

    def __init__(self, rng: np.random.Generator, opset: int) -> None:
        self.rng = rng
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def either(self, op_type: str, one: str, other: str) -> str:
        return self.add(op_type, *((one, other) if self.rng.random() < 0.5 else (other, one)))

    def number(self, value: float) -> str:
        shape = [(), (1,), (1, 1)][self.rng.integers(3)]
        return self.constant(np.full(shape, value, np.float32))

    def constant(self, array: np.ndarray) -> str:
        return self.add("Constant", value=numpy_helper.from_array(array))

    def reduce(self, op_type: str, x: str, axis: int, keepdims: int) -> str:
        if self.opset >= (13 if op_type == "ReduceSum" else 18):
            return self.add(op_type, x, self.constant(np.array([axis])), keepdims=keepdims)
        return self.add(op_type, x, axes=[axis], keepdims=keepdims)

    def square(self, x: str) -> str:
        return self.add("Mul", x, x) if self.rng.random() < 0.5 else self.add("Pow", x, self.number(2.0))


def write_probability(w: Writer) -> str:
    choice, axis = w.rng.integers(9), int(w.rng.integers(2)) if w.opset >= 13 else 1
    if choice == 0:
        return w.add("Softmax", "x", axis=axis)
    if choice == 1:
        return w.add("Sigmoid", "x")
    if choice == 2:
        return w.add("Sub", w.number(1.0), w.add("Sigmoid", "x"))
    if choice == 3:
        return w.add("Sub", w.number(1.0), w.add("Softmax", "x", axis=axis))
    exponential = w.add("Exp", "x")
    if choice == 4:
        return exponential
    if choice == 5:
        return w.either("Add", w.number(1.0), exponential)
    if choice == 6:
        return w.add("Div", exponential, w.reduce("ReduceSum", exponential, axis, 1))
    if choice == 7:
        return w.add("Reciprocal", w.either("Add", w.number(1.0), exponential))
    return w.either("Add", exponential, w.add("Exp", "t"))


def write_around(w: Writer, p: str) -> str:
    choice = w.rng.integers(9)
    if choice == 0:
        return w.either("Max", p, w.number(0.03))
    if choice == 1:
        return w.either("Min", p, w.number(0.8))
    if choice == 2:
        return w.either("Add", p, w.number(0.01))
    if choice == 3:
        return w.add(["Abs", "Relu"][w.rng.integers(2)], p)
    if choice == 4:
        flat = w.add("Reshape", p, w.constant(np.array([-1])))
        return w.add("Reshape", flat, w.constant(np.array([2, 3])))
    if choice == 5:
        return w.add("Transpose", w.add("Transpose", p, perm=[1, 0]), perm=[1, 0])
    if choice == 6:
        return w.add("Cast", w.add("Cast", p, to=onnx.TensorProto.DOUBLE), to=onnx.TensorProto.FLOAT)
    if choice == 7:
        return w.either("Mul", p, w.number(0.5))
    return w.add("Gather", p, w.constant(np.array([1, 0])), axis=0)


def write_statistic(w: Writer) -> str:
    choice, axis, keepdims = w.rng.integers(9), int(w.rng.integers(2)), int(w.rng.integers(2))
    squares = w.reduce("ReduceSum", w.square("x"), axis, 1 if choice == 1 else keepdims)
    others = w.reduce("ReduceSum", w.square("t"), axis, keepdims)
    if choice == 0:
        return w.add("Sqrt", w.either("Add", squares, w.number(0.01)) if keepdims else squares)
    if choice == 1:
        return w.either("Mul", "x", w.add("Reciprocal", w.add("Sqrt", squares)))
    if choice == 2:
        return w.add("Sqrt", w.either("Add", w.square("x"), w.square("t")))
    if choice == 3:
        mean = w.reduce("ReduceMean", "x", axis, keepdims)
        return w.add("Sub", w.reduce("ReduceMean", w.square("x"), axis, keepdims), w.square(mean))
    if choice == 4:
        two = w.constant(np.array(2, np.float32))
        twice = w.either("Mul", two, w.reduce("ReduceSum", w.either("Mul", "x", "t"), axis, keepdims))
        return w.add("Sub", w.either("Add", squares, others), twice)
    if choice == 5:
        return w.add("Sqrt", w.either("Mul", squares, others))
    if choice == 6:
        scaled = w.either("Mul", w.number(0.5), w.square(w.add("Div", "x", "t")))
        return w.add("Log", w.either("Add", scaled, w.number(0.01)))
    if choice == 7:
        ends = [w.reduce(name, "x", axis, 1) for name in ("ReduceMax", "ReduceMin")]
        return w.add("Div", w.add("Sub", "x", ends[1]), w.add("Sub", *ends))
    return w.add("Div", w.add("Exp", "x"), w.either("Add", w.number(1.0), w.add("Exp", "t")))


def random_model(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A random model with the shape of its output, and inputs of it."""
    rng = np.random.default_rng(seed)
    writer = Writer(rng, int(rng.choice(OPSETS)))
    if rng.random() < 0.6:
        p = write_probability(writer)
        for _ in range(rng.integers(4)):
            p = write_around(writer, p)
        output = writer.add("Log", p)
    else:
        output = write_statistic(writer)
    feeds = {"x": rng.normal(size=(2, 3)).astype(np.float32), "t": rng.uniform(0.1, 0.9, (2, 3)).astype(np.float32)}
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in feeds]
    graph = helper.make_graph(writer.nodes, "g", inputs, [onnx.ValueInfoProto(name=output)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", writer.opset)], ir_version=8)
    loaded = session(model)
    assert loaded is not None
    shape = loaded.run(None, feeds)[0].shape
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, shape))
    return model, feeds


@pytest.mark.few(1)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_they_make_gives_what_was_there_before(shard: int) -> None:
    replaced = 0
    for seed in range(shard, SEEDS, SHARDS):
        model, feeds = random_model(seed)
        loaded = session(model)
        assert loaded is not None
        old, base = loaded.run(None, feeds)[0], infer_shapes(ir.from_proto(model))
        for name in (*equal_passes(), "stable_normalize"):
            made = apply_stable(name, base)
            if made is None:
                continue
            replaced += 1
            proto = ir.to_proto(made)
            onnx.checker.check_model(proto, full_check=True)
            finite = np.isfinite(old)
            for optimise in (False, True):
                new = session(proto, optimise=optimise)
                assert new is not None
                found = new.run(None, feeds)[0]
                assert found.shape == old.shape, (seed, name)
                np.testing.assert_allclose(found[finite], old[finite], rtol=2e-3, atol=2e-5, err_msg=f"{seed} {name}")
    assert replaced >= SEEDS // SHARDS // 2
