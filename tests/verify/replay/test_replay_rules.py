"""Which nodes a replay names, on real ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ranum_falsify.verify.replay.replayer import Finding
from tests.verify.replay.replay_kit import one, replay

INF, NAN = np.inf, np.nan
F16, F32, F64 = np.float16, np.float32, np.float64


def f32(*values: float) -> np.ndarray:
    return np.array(values, F32)


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "kind", "index"),
    [
        ("Log", [f32(1, 0)], {}, "inf", (1,)),
        ("Log", [f32(0, -1)], {}, "nan", (1,)),
        ("Sqrt", [f32(4, -1)], {}, "nan", (1,)),
        ("Div", [f32(1, 0), f32(1, 0)], {}, "nan", (1,)),
        ("Div", [f32(1, 1), f32(1, 0)], {}, "inf", (1,)),
        ("Exp", [f32(88, 89)], {}, "inf", (1,)),
        ("Pow", [f32(-8), f32(1 / 3)], {}, "nan", (0,)),
        ("Acos", [f32(1.0000001)], {}, "nan", (0,)),
        ("Reciprocal", [f32(2, 0)], {}, "inf", (1,)),
        ("Mod", [f32(2), f32(0)], {"fmod": 1}, "nan", (0,)),
        ("Softmax", [np.array([[0, 1], [-INF, -INF]], F32)], {}, "nan", (1, 0)),
        ("MatMul", [np.full((1, 2), 3e38, F32), np.ones((2, 1), F32)], {}, "inf", (0, 0)),
        ("MatMul", [np.full((1, 2), 300, F16), np.full((2, 1), 300, F16)], {}, "inf", (0, 0)),
        ("Exp", [np.array([11, 12], F16)], {}, "inf", (1,)),
        ("Cast", [f32(65504, 70000)], {"to": TensorProto.FLOAT16}, "inf", (1,)),
        ("Cast", [np.array([1e300])], {"to": TensorProto.FLOAT}, "inf", (0,)),
        ("Cast", [np.array([3.4e38, 3.5e38])], {"to": TensorProto.BFLOAT16}, "inf", (0,)),
        ("Exp", [np.array([709.0, 710.0])], {}, "inf", (1,)),
        ("Sub", [f32(INF), f32(INF)], {}, "nan", (0,)),
        # An infinity, or NaN, elsewhere in an operand excuses nothing of an elementwise operator.
        ("Log", [f32(INF, 0)], {}, "inf", (1,)),
        ("Log", [f32(NAN, 0)], {}, "inf", (1,)),
        ("Add", [f32(-INF, 3e38), f32(1, 3e38)], {}, "inf", (1,)),
        ("Mul", [f32(-INF, -INF, 2), f32(2, 0, NAN)], {}, "nan", (1,)),
        ("Sub", [f32(1, -INF).reshape(2, 1), f32(NAN, 5, -INF)], {}, "nan", (1, 2)),
        ("LayerNormalization", [np.ones((1, 4), F32), np.ones(4, F32)], {"epsilon": 0.0}, "nan", (0, 0)),
    ],
)
def test_invalid(
    op_type: str, operands: list[Any], attributes: dict[str, Any], kind: str, index: tuple[int, ...]
) -> None:
    (finding,) = one(op_type, *operands, **attributes)
    assert (finding.op_type, finding.kind, finding.index) == (op_type, kind, index)
    assert (finding.output, finding.oracle, finding.reach) == ("o0", "onnxruntime", "output")


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes"),
    [
        ("Log", [f32(1, 2)], {}),
        ("Log", [f32(NAN, 1)], {}),
        ("Exp", [f32(INF, -INF)], {}),
        ("Div", [f32(NAN), f32(0)], {}),
        ("Div", [f32(INF), f32(0)], {}),
        ("Add", [f32(-INF, 1), f32(1, 3e38)], {}),
        ("Add", [f32(1, 2).reshape(2, 1), f32(-INF, 5, INF)], {}),
        ("Mul", [f32(-INF, 2, NAN), f32(2, 0, 0)], {}),
        ("MatMul", [f32(-INF, 3e38).reshape(2, 1), f32(3e38).reshape(1, 1)], {}),
        ("Softmax", [f32(NAN, 1)], {}),
        ("Cast", [f32(NAN, INF, 1e20)], {"to": TensorProto.INT32}),
        ("ArgMax", [f32(1, NAN)], {}),
        ("ArgMin", [f32(1, NAN)], {}),
        ("MaxPool", [f32(1, NAN, 2).reshape(1, 1, 3)], {"kernel_shape": [2]}),
        ("QuantizeLinear", [f32(NAN, 1), np.asarray(1, F32), np.asarray(0, np.uint8)], {}),
        ("Mod", [np.array([7]), np.array([2])], {}),
    ],
)
def test_valid_or_already_invalid(op_type: str, operands: list[Any], attributes: dict[str, Any]) -> None:
    assert one(op_type, *operands, **attributes) == ()


def test_operands_are_described() -> None:
    (finding,) = one("Div", f32(-3, 5, 0), f32(2, -1, 0))
    assert finding.operands == {"i0": (-3, 5), "i1": (-1, 2)}
    assert finding.values == {"i0": 0, "i1": 0}
    (finding,) = one("Add", np.array([[1], [3e38]], F32), f32(1, 3e38))
    assert finding.index == (1, 1)
    assert finding.values == {"i0": pytest.approx(3e38), "i1": pytest.approx(3e38)}
    (finding,) = one("Sum", f32(1, 3e38), f32(2, 3e38))
    assert finding.values == {"i0": pytest.approx(3e38), "i1": pytest.approx(3e38)}


@pytest.mark.parametrize("training", [True, False])
def test_what_dropout_draws_in_training_is_no_constant(training: bool) -> None:
    # What it keeps of 1e38, it multiplies by 10; what it is given of 0, it hands on as a mask.
    constants = {
        "c": np.append(np.full(500, 1e38, F32), F32(0)),
        "ratio": np.asarray(0.9, F32),
        "training": np.asarray(training),
    }
    nodes = [
        helper.make_node("Dropout", ["c", "ratio", "training"], ["d"]),
        helper.make_node("Log", ["d"], ["mask"]),
        helper.make_node("Add", ["x", "mask"], ["y"]),
    ]
    findings = replay(nodes, {"x": f32(0)}, ["y"], constants).findings
    assert [(finding.op_type, finding.kind) for finding in findings] == [("Dropout", "inf"), ("Log", "inf")] * training


def mask_model(mask: onnx.NodeProto | None, **constants: Any) -> list[onnx.NodeProto]:
    add = helper.make_node("Add", ["x", "mask"], ["y"])
    return [add] if mask is None else [mask, add]


@pytest.mark.parametrize(
    ("mask", "constants"),
    [
        (None, {"mask": f32(0, -INF)}),
        (helper.make_node("Constant", [], ["mask"], value_floats=[0.0, -INF]), {}),
        (
            helper.make_node("ConstantOfShape", ["n"], ["mask"], value=numpy_helper.from_array(f32(-INF), "v")),
            {"n": np.array([2])},
        ),
        (helper.make_node("Log", ["c"], ["mask"]), {"c": f32(1, 0)}),
        (helper.make_node("Cast", ["c"], ["mask"], to=TensorProto.FLOAT), {"c": np.array([0, -1e300])}),
        (
            helper.make_node("Pad", ["c", "p", "v"], ["mask"]),
            {"c": f32(0), "p": np.array([0, 1]), "v": F32(-INF)},
        ),
        (
            helper.make_node("Where", ["c", "z", "v"], ["mask"]),
            {"c": np.array([True, False]), "z": F32(0), "v": F32(-INF)},
        ),
    ],
)
def test_constant_infinite_mask_is_no_finding(mask: onnx.NodeProto | None, constants: dict[str, Any]) -> None:
    result = replay(mask_model(mask), {"x": f32(1, 2)}, ["y"], constants)
    assert result.findings == ()
    assert np.isneginf(result.outputs["y"]).any()


def test_mask_from_the_shape_alone_is_constant_but_from_values_is_not() -> None:
    shape = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["f", "two"], ["zero"]),
        helper.make_node("Log", ["zero"], ["m"], name="log"),
        helper.make_node("Add", ["x", "m"], ["y"]),
    ]
    assert replay(shape, {"x": f32(1, 2)}, ["y"], {"two": F32(2)}).findings == ()
    shape[0] = helper.make_node("Identity", ["x"], ["s"])
    (finding,) = replay(shape, {"x": f32(2, 2)}, ["y"], {"two": F32(2)}).findings
    assert (finding.node, finding.kind) == ("log", "inf")


def test_constant_nan_is_a_finding() -> None:
    nodes = [helper.make_node("Div", ["z", "z"], ["q"]), helper.make_node("Add", ["x", "q"], ["y"])]
    (finding,) = replay(nodes, {"x": f32(1)}, ["y"], {"z": f32(0)}).findings
    assert (finding.op_type, finding.kind) == ("Div", "nan")


def test_attributes_count_as_operands() -> None:
    pad = helper.make_node("Pad", ["x"], ["y"], pads=[0, 1], mode="constant", value=-INF)
    assert replay([pad], {"x": f32(1)}, ["y"], opset=10).findings == ()


def where_model(masked: bool) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Div", ["x", "x"], ["q"], name="div"),
        helper.make_node("Equal", ["x", "zero"], ["is_zero"]),
        helper.make_node("Where", ["is_zero", "zero" if masked else "q", "q"], ["y"], name="where"),
    ]


@pytest.mark.parametrize(("masked", "reach"), [(True, "masked"), (False, "output")])
def test_reach(masked: bool, reach: str) -> None:
    result = replay(where_model(masked), {"x": f32(1, 0)}, ["y"], {"zero": F32(0)})
    (finding,) = result.findings
    assert (finding.node, finding.kind, finding.reach) == ("div", "nan", reach)
    np.testing.assert_array_equal(result.outputs["y"], f32(1, 0 if masked else NAN))


def test_reach_needs_a_path_of_its_own() -> None:
    nodes = [
        helper.make_node("Log", ["x"], ["a"], name="swallowed"),
        helper.make_node("Relu", ["a"], ["u"]),
        helper.make_node("Reciprocal", ["x"], ["v"], name="seen"),
    ]
    findings = replay(nodes, {"x": f32(0)}, ["u", "v"]).findings
    assert [(f.node, f.reach) for f in findings] == [("swallowed", "masked"), ("seen", "output")]


def test_an_infinity_that_is_swallowed_and_then_divides_reaches_the_output() -> None:
    nodes = [
        helper.make_node("Log", ["x"], ["a"], name="log"),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Reciprocal", ["b"], ["y"], name="quotient"),
    ]
    findings = replay(nodes, {"x": f32(0)}, ["y"]).findings
    assert [(f.node, f.reach) for f in findings] == [("log", "output"), ("quotient", "output")]


def test_what_a_choice_leaves_out_does_not_reach_an_output_that_another_node_spoils() -> None:
    nodes = [
        helper.make_node("Div", ["x", "x"], ["q"], name="left_out"),
        helper.make_node("IsNaN", ["q"], ["n"]),
        helper.make_node("Where", ["n", "x", "q"], ["w"]),
        helper.make_node("Reciprocal", ["w"], ["y"], name="seen"),
    ]
    findings = replay(nodes, {"x": f32(0)}, ["y"]).findings
    assert [(f.node, f.reach) for f in findings] == [("left_out", "masked"), ("seen", "output")]


@pytest.mark.parametrize("swallow", ["MaxPool", "ArgMax", "ArgMin", "QuantizeLinear", "Cast"])
def test_operators_that_swallow_nan_mask_the_finding_before(swallow: str) -> None:
    attributes: dict[str, dict[str, Any]] = {
        "MaxPool": {"kernel_shape": [2]},
        "Cast": {"to": TensorProto.INT32},
    }
    operands = ["q", "scale", "zero"] if swallow == "QuantizeLinear" else ["q"]
    nodes = [
        helper.make_node("Div", ["x", "x"], ["q"], name="div"),
        helper.make_node(swallow, operands, ["y"], **attributes.get(swallow, {})),
    ]
    constants = {"scale": F32(1), "zero": np.uint8(0)}
    result = replay(nodes, {"x": f32(1, 0, 2, 3).reshape(1, 1, 4)}, ["y"], constants)
    assert [(f.node, f.kind, f.reach) for f in result.findings] == [("div", "nan", "masked")]
    assert np.isfinite(result.outputs["y"]).all()


RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(op_type: str, x: np.ndarray, bias: bool, **attributes: Any) -> tuple[Finding, ...]:
    gates, directions = RECURRENT[op_type], 2 if attributes.get("direction") == "bidirectional" else 1
    w = np.tile(f32(3, -3), (directions, gates, 1))
    operands = [x, w, np.ones((directions, gates, 1), F32)]
    if bias:
        operands.append(np.zeros((directions, 2 * gates), F32))
    return one(op_type, *operands, outputs=2, hidden_size=1, **attributes)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("op_type", RECURRENT)
def test_recurrent(op_type: str, bias: bool, direction: str) -> None:
    (finding,) = recurrent(op_type, np.full((3, 1, 2), INF, F32), bias, direction=direction)
    hidden = bias and op_type != "RNN"
    assert (finding.op_type, finding.kind, finding.output) == (op_type, "nan", "o0")
    assert (finding.oracle, finding.reach) == (("reference", "masked") if hidden else ("onnxruntime", "output"))
    assert (finding.returned is not None) == hidden
    assert finding.returned is None or np.isfinite(finding.returned).all()
    assert recurrent(op_type, np.full((3, 1, 2), 1e3, F32), bias, direction=direction) == ()
    assert recurrent(op_type, np.full((3, 1, 2), NAN, F32), bias, direction=direction) == ()


def test_reference_is_not_asked_where_it_ignores_an_attribute() -> None:
    x = np.full((1, 1, 2), 3e38, F32)
    assert recurrent("LSTM", x, True, clip=1.0) == ()
    assert recurrent("LSTM", x, True, activations=["Relu", "Tanh", "Tanh"]) == ()
    (finding,) = recurrent("LSTM", x, True, activations=["Sigmoid", "Tanh", "Tanh"])
    assert finding.oracle == "reference"


def test_findings_come_in_topological_order_whatever_the_file_says() -> None:
    nodes = [
        helper.make_node("Log", ["b"], ["y"], name="third"),
        helper.make_node("Sqrt", ["a"], ["b0"], name="second"),
        helper.make_node("Relu", ["b0"], ["b"]),
        helper.make_node("Exp", ["x"], ["e"], name="first"),
        helper.make_node("Sub", ["small", "x"], ["a"]),
    ]
    nodes[2] = helper.make_node("Where", ["yes", "zero", "b0"], ["b"])
    constants = {"small": f32(0), "yes": np.array([True]), "zero": F32(0)}
    findings = replay(nodes, {"x": f32(100)}, ["y", "e"], constants).findings
    names = [f.node for f in findings]
    assert sorted(names) == ["first", "second", "third"]
    assert names.index("second") < names.index("third")
    assert {f.node: f.node_index for f in findings} == {"third": 0, "second": 1, "first": 3}


def test_unnamed_and_equally_named_nodes_are_told_apart() -> None:
    for name in ("", "same"):
        nodes = [
            helper.make_node("Log", ["x"], ["a"], name=name),
            helper.make_node("Sqrt", ["x"], ["b"], name=name),
        ]
        findings = replay(nodes, {"x": f32(-1)}, ["a", "b"]).findings
        assert [(f.node_index, f.node, f.output) for f in findings] == [(0, name, "a"), (1, name, "b")]


def branch(name: str, node: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph([node], name, [], [onnx.ValueInfoProto(name=node.output[0])])


@pytest.mark.parametrize(
    ("node", "x", "kinds"),
    [
        (helper.make_node("Log", ["x"], ["t"]), 0.0, ["inf"]),
        (helper.make_node("Log", ["x"], ["t"]), NAN, []),
        (helper.make_node("Log", ["x"], ["t"]), INF, []),
        (helper.make_node("Constant", [], ["t"], value_floats=[-INF]), 0.0, []),
    ],
)
def test_subgraph_counts_as_one_node(node: onnx.NodeProto, x: float, kinds: list[str]) -> None:
    other = branch("else", helper.make_node("Identity", ["x"], ["e"]))
    nodes = [
        helper.make_node("Not", ["no"], ["yes"]),
        helper.make_node("If", ["yes"], ["y"], name="if", then_branch=branch("then", node), else_branch=other),
    ]
    findings = replay(nodes, {"x": f32(x), "no": np.array(False)}, ["y"]).findings
    assert [(f.node, f.kind) for f in findings] == [("if", kind) for kind in kinds]


def test_sequences_carry_reach_but_are_no_output() -> None:
    nodes = [
        helper.make_node("Log", ["x"], ["a"], name="log"),
        helper.make_node("SequenceConstruct", ["x", "a"], ["s"]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    result = replay(nodes, {"x": f32(-1)}, ["y", "s"])
    assert [(f.node, f.reach) for f in result.findings] == [("log", "output")]
    assert list(result.outputs) == ["y"]


def test_float16_chain_is_judged_in_float16() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"], name="first"),
        helper.make_node("Mul", ["a", "c"], ["y"]),
    ]
    result = replay(nodes, {"x": np.array([300], F16)}, ["y"], {"c": np.array([1 / 1024], F16)})
    assert [(f.node, f.kind) for f in result.findings] == [("first", "inf")]


def test_bfloat16_tensors_are_read() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["b"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Log", ["f"], ["y"], name="log"),
    ]
    result = replay(nodes, {"x": f32(0, 1)}, ["y", "b"])
    assert [(f.node, f.values) for f in result.findings] == [("log", {"f": 0})]
    np.testing.assert_array_equal(result.outputs["b"], f32(0, 1))
