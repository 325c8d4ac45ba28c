"""The checker's bounds hold on ONNX Runtime, and its conditions are right."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from ranum_falsify.checker.rules import Bounds, is_valid, results_of

OPSETS = [onnx.helper.make_opsetid("", 17)]
SCALES = (1e-38, 1e-3, 1.0, 1e3, 1e18)
X = (2, 3, 5, 5)
FLOATS: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("Add", [X, (3, 1, 5)], {}),
    ("Sub", [X, X], {}),
    ("Mul", [X, (5,)], {}),
    ("Div", [X, X], {}),
    ("Neg", [X], {}),
    ("Abs", [X], {}),
    ("Sqrt", [X], {}),
    ("Relu", [X], {}),
    ("Max", [X, X, (1,)], {}),
    ("Min", [X, X], {}),
    ("Clip", [X, (), ()], {}),
    ("MatMul", [(2, 4, 7), (7, 3)], {}),
    ("MatMul", [(7,), (7, 3)], {}),
    ("MatMul", [(4, 7), (7,)], {}),
    ("MatMul", [(40, 300), (300, 3)], {}),
    ("Gemm", [(4, 7), (3, 7), (3,)], {"transB": 1}),
    ("Gemm", [(7, 4), (7, 3), (4, 1)], {"transA": 1}),
    ("Gemm", [(4, 7), (7, 3)], {}),
    ("Conv", [X, (4, 3, 3, 3), (4,)], {"pads": [1, 1, 1, 1]}),
    ("Conv", [X, (3, 1, 2, 2)], {"group": 3, "strides": [2, 2]}),
    ("Conv", [(1, 2, 9), (4, 2, 3)], {"dilations": [2]}),
    ("Conv", [X, (4, 3, 3, 2)], {"pads": [1, 0, 2, 1]}),
    ("Conv", [X, (4, 3, 3, 2)], {"auto_pad": "SAME_UPPER", "strides": [2, 1]}),
    ("Conv", [X, (4, 3, 3, 2)], {"auto_pad": "SAME_LOWER"}),
    ("Conv", [X, (4, 3, 3, 2)], {"auto_pad": "VALID"}),
    ("Conv", [(1, 4, 5), (6, 2, 1), (6,)], {"group": 2}),
    ("Conv", [(1, 2, 4, 4, 4), (3, 2, 2, 2, 2)], {}),
    ("ReduceMean", [X], {"axes": [2, 3]}),
    ("ReduceMean", [(3, 500)], {"axes": [1], "keepdims": 0}),
    ("GlobalAveragePool", [X], {}),
    ("Transpose", [X], {"perm": [3, 0, 2, 1]}),
    ("Flatten", [X], {}),
    ("Concat", [X, X], {"axis": 1}),
    ("Split", [(2, 4)], {"axis": 1}),
    ("DepthToSpace", [(1, 4, 2, 3)], {"blocksize": 2}),
    ("Greater", [X, X], {}),
    ("Less", [X, (5,)], {}),
    ("Identity", [X], {}),
]


def node_of(op_type: str, count: int, **attributes: Any) -> onnx.NodeProto:
    outputs = ["y", "z"] if op_type == "Split" else ["y"]
    return onnx.helper.make_node(op_type, [f"x{i}" for i in range(count)], outputs, **attributes)


def session_of(node: onnx.NodeProto, shapes: list[tuple[int, ...]]) -> onnxruntime.InferenceSession:
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in zip(node.input, shapes, strict=True)
    ]
    kind = onnx.TensorProto.BOOL if node.op_type in ("Greater", "Less") else onnx.TensorProto.FLOAT
    outputs = [onnx.helper.make_tensor_value_info(name, kind, None) for name in node.output]
    graph = onnx.helper.make_graph([node], "g", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=OPSETS, ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString())


def draw_bounds(rng: np.random.Generator, shape: tuple[int, ...], positive: bool) -> Bounds:
    scale = rng.choice(SCALES)
    ends = rng.normal(0, scale, (2, *shape)).astype(np.float32)
    if rng.random() < 0.3:
        ends[1] = ends[0]
    if positive:
        ends = np.abs(ends) + np.float32(np.finfo(np.float32).tiny)
    return Bounds(np.asarray(ends.min(axis=0)), np.asarray(ends.max(axis=0)))


def draw_point(rng: np.random.Generator, x: Bounds) -> np.ndarray:
    share = rng.choice([0.0, 1.0, rng.random()], x.lower.shape) if rng.random() < 0.7 else rng.integers(0, 2)
    low, high = x.lower.astype(np.float64), x.upper.astype(np.float64)
    point: np.ndarray = np.clip((low + share * (high - low)).astype(np.float32), x.lower, x.upper)
    return np.asarray(point)


@pytest.mark.parametrize(("op_type", "shapes", "attributes"), FLOATS)
def test_what_onnx_runtime_computes_lies_within(
    op_type: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    node = node_of(op_type, len(shapes), **attributes)
    session = session_of(node, shapes)
    bounded = 0
    for _ in range(40):
        operands = [draw_bounds(rng, shape, op_type in ("Sqrt", "Div")) for shape in shapes]
        if op_type == "Clip":
            operands[1:] = [Bounds(end, end) for end in (np.asarray(-0.5, np.float32), np.asarray(0.5, np.float32))]
        found = results_of(node, operands, OPSETS)
        if found is None:
            continue
        bounded += 1
        for _ in range(5):
            points = {f"x{i}": draw_point(rng, one) for i, one in enumerate(operands)}
            for got, bounds in zip(session.run(None, points), found, strict=True):
                assert got.shape == bounds.lower.shape and got.dtype == bounds.lower.dtype
                assert (bounds.lower <= got).all() and (got <= bounds.upper).all()
    assert bounded > 10


def interval(low: float, high: float, dtype: type = np.float32) -> Bounds:
    return Bounds(np.full(2, low, dtype), np.full(2, high, dtype))


@pytest.mark.parametrize(
    ("op_type", "operands"),
    [
        ("Div", [(1, 1), (-1, 1)]),
        ("Div", [(1, 1), (0, 1)]),
        ("Div", [(1, 1), (1e-45, 1)]),
        ("Div", [(1e30, 1e30), (1e-30, 1)]),
        ("Sqrt", [(-1e-30, 1)]),
        ("Mul", [(1e20, 1e20), (1, 1e20)]),
        ("Add", [(1, 3e38), (1, 3e38)]),
        ("Relu", [(0, np.inf)]),
        ("Relu", [(np.nan, np.nan)]),
        ("MatMul", [(1e20, 1e20), (-1e20, 1e20)]),
        ("Exp", [(0, 1)]),
    ],
)
def test_what_may_fail_has_no_bounds(op_type: str, operands: list[tuple[float, float]]) -> None:
    assert results_of(node_of(op_type, len(operands)), [interval(*one) for one in operands], OPSETS) is None


def test_other_types_and_domains_have_none() -> None:
    assert results_of(node_of("Add", 2), [interval(0, 1, np.float16)] * 2, OPSETS) is None
    assert results_of(node_of("Mul", 2), [interval(0, 1, np.int64)] * 2, OPSETS) is None
    assert results_of(node_of("Relu", 1, domain="other"), [interval(0, 1)], OPSETS) is None


def test_known_integers_are_computed() -> None:
    (found,) = results_of(node_of("Mul", 2), [interval(3, 3, np.int64), interval(4, 4, np.int64)], OPSETS) or []
    assert found.lower.tolist() == found.upper.tolist() == [12, 12]


def test_a_square_is_not_negative() -> None:
    node = onnx.helper.make_node("Mul", ["x", "x"], ["y"])
    (found,) = results_of(node, [interval(-2, 1)] * 2, OPSETS) or []
    assert (found.lower.min(), found.upper.max()) == (0, 4)


@pytest.mark.parametrize(
    ("op_type", "low", "high", "valid"),
    [
        *(("Log", 1e-30, 2, True), ("Log", 0, 2, False), ("Log", 1e-40, 2, False), ("Exp", 0, 88, True)),
        *(("Exp", 0, 89, False), ("Softmax", -5, 5, True), ("Softmax", -np.inf, 5, False), ("Erfc", 0, 1, False)),
    ],
)
def test_conditions(op_type: str, low: float, high: float, valid: bool) -> None:
    assert is_valid(node_of(op_type, 1), [interval(low, high)]) is valid
