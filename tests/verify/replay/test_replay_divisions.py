"""What a replay says of divisions of integers that have no result, on real ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from ranum_falsify.errors import ReplayRefusalError
from ranum_falsify.verify.replay.replayer import Finding, Replayer
from tests.network.building import parse
from tests.verify.replay.replay_kit import model, one, replay


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("op_type", ["Div", "Mod"])
def test_integer_division_by_zero(op_type: str, dtype: Any) -> None:
    (finding,) = one(op_type, np.array([6, 7, 8], dtype), np.array([2, 0, 3], dtype))
    assert (finding.op_type, finding.kind, finding.index) == (op_type, "error", (1,))
    assert (finding.oracle, finding.reach) == ("onnxruntime", "output")
    assert finding.values == {"i0": 7, "i1": 0}


def least_by_minus_one(op_type: str, dtype: Any, **attributes: int) -> tuple[Finding, ...]:
    least = np.iinfo(dtype).min
    return one(op_type, np.array([6, least, least], dtype), np.array([-1, 2, -1], dtype), **attributes)


NARROW: list[Any] = [(op_type, {}, dtype) for op_type in ("Div", "Mod") for dtype in (np.int8, np.int16)]
FMOD: list[Any] = [("Mod", {"fmod": 1}, dtype) for dtype in (np.int8, np.int16, np.int32, np.int64)]


@pytest.mark.parametrize(("op_type", "attributes", "dtype"), [*NARROW, *FMOD])
def test_narrow_integers_and_fmod_divide_by_minus_one(op_type: str, attributes: dict[str, int], dtype: Any) -> None:
    assert least_by_minus_one(op_type, dtype, **attributes) == ()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("op_type", ["Div", "Mod"])
def test_the_least_integer_divided_by_minus_one(op_type: str, dtype: Any) -> None:
    (finding,) = least_by_minus_one(op_type, dtype)
    assert (finding.op_type, finding.kind, finding.index) == (op_type, "crash", (2,))
    assert (finding.oracle, finding.reach) == ("onnxruntime", "output")


@pytest.mark.parametrize("op_type", ["Div", "Mod"])
def test_of_both_divisions_without_a_result_onnx_runtime_refuses_that_by_zero(op_type: str) -> None:
    least = np.iinfo(np.int32).min
    dividend, divisor = np.array([least, 5], np.int32), np.array([-1, 0], np.int32)
    (finding,) = one(op_type, dividend, divisor)
    assert (finding.kind, finding.index) == ("error", (1,))
    net = helper.make_node(op_type, ["a", "b"], ["y"])
    with (
        Replayer(model([net], {"a": dividend, "b": divisor}, ["y"])) as replayer,
        pytest.raises(ReplayRefusalError, match="by zero"),
    ):
        replayer.outputs({"a": dividend, "b": divisor})


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integer_operands_are_exact(dtype: Any) -> None:
    greatest = int(np.iinfo(dtype).max)
    (finding,) = one("Div", np.array([greatest], dtype), np.array([0], dtype))
    assert finding.operands == {"i0": (greatest, greatest), "i1": (0, 0)}
    assert finding.values == {"i0": greatest, "i1": 0}


def test_divisions_that_end_the_process_are_found_before_they_run() -> None:
    nodes = [
        helper.make_node("Log", ["x"], ["log"], name="log"),
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT32),
        helper.make_node("Div", ["i", "two"], ["a"]),
        helper.make_node("Sub", ["a", "two"], ["b"]),
        helper.make_node("Div", ["least", "b"], ["c"], name="trap"),
        helper.make_node("Mod", ["c", "two"], ["y"]),
    ]
    constants = {"two": np.array([2], np.int32), "least": np.array([np.iinfo(np.int32).min], np.int32)}
    with Replayer(model(nodes, {"x": np.array([1], np.float32)}, ["y", "log"], constants)) as replayer:
        runs = [replayer.run({"x": np.array([value], np.float32)}) for value in (8, 2, 4, 8)]
    assert [[f.node for f in run.findings] for run in runs] == [[], ["trap"], ["trap"], []]
    assert runs[3].outputs["y"] == [0] and runs[1].outputs == {}


def test_integer_division_by_zero_behind_others() -> None:
    nodes = [
        helper.make_node("Log", ["x"], ["log"], name="log"),
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Div", ["i", "two"], ["a"]),
        helper.make_node("Div", ["two", "a"], ["b"], name="zero"),
        helper.make_node("Mod", ["b", "two"], ["y"]),
    ]
    net = model(nodes, {"x": np.array([1], np.float32)}, ["y", "log"], {"two": np.array([2])})
    with Replayer(net) as replayer:
        good = replayer.run({"x": np.array([5], np.float32)})
        bad = [replayer.run({"x": np.array([value], np.float32)}) for value in (1, 0)]
    assert good.findings == () and good.outputs["y"] == [1]
    assert [[f.node for f in replay.findings] for replay in bad] == [["zero"], ["log", "zero"]]
    assert bad[0].outputs == {}


BRANCH = """If(k) <then_branch = then () => (int32[2] q) { %s },
    else_branch = otherwise () => (int32[2] p) { p = Neg(i) }>"""
INSIDE = {
    "If": f"o = {BRANCH}",
    "Loop": "o = Loop(one, , i) <body = b (int64 n, bool c, int32[2] s) => (bool d, int32[2] q) { d = Not(c) %s }>",
    "nested": f"""o = If(k) <then_branch = outer () => (int32[2] r) {{ r = {BRANCH} }},
        else_branch = other () => (int32[2] t) {{ t = Neg(i) }}>""",
}


def inside(name: str, node: str, x: list[int]) -> list[tuple[str, str, bool]]:
    """What fails where a node in a subgraph reads `x`, beside a division outside."""
    feeds = {"i": np.array([6, 7], np.int32), "x": np.array(x, np.int32), "k": np.array(True)}
    head = "g (int32[2] i, int32[2] x, bool k) => (int32[2] o, int32[2] z) <int64 one = {1}>"
    graph = parse(f"{head} {{ {INSIDE[name].replace('%s', node)} h = Add(i, i) z = Div(h, i) }}").graph
    found = replay(graph.node, feeds, ["o", "z"], {"one": np.array(1)}).findings
    assert all((finding.optimisations, finding.reach) == ("any", "output") for finding in found)
    return [(finding.op_type, finding.kind, bool(finding.index)) for finding in found]


@pytest.mark.parametrize("node", ["q = Div(i, x)", "q = Mod(i, x)", "q = Mod<fmod = 1>(i, x)"])
@pytest.mark.parametrize("name", INSIDE)
def test_integer_division_by_zero_inside_of_a_subgraph(name: str, node: str) -> None:
    op_type = "Loop" if name == "Loop" else "If"
    assert inside(name, node, [2, 0]) == [(op_type, "error", False)]
    assert inside(name, node, [2, -1]) == []


def test_what_else_is_refused_beside_a_division_inside_is_no_division_by_zero() -> None:
    numbers = "j = Concat<axis = 0>(i, i) n = NonZero(j) c = Cast<to = 6>(n) e = Size(j) d = Cast<to = 6>(e)"
    node = f"{numbers} m = Add(c, d) w = Div(x, m) r = ReduceMax<keepdims = 0>(w) q = Add(x, r)"  # 2 elements by 4
    with pytest.raises(Exception, match="2 by 4"):
        inside("If", node, [3, 5])


def test_an_index_outside_beside_divisions() -> None:
    nodes = [
        helper.make_node("Gather", ["t", "i"], ["y"], name="emb"),
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("Div", ["x", "a"], ["b"]),
        helper.make_node("Div", ["i", "i"], ["c"], name="zero"),
        helper.make_node("Log", ["x"], ["z"], name="log"),
    ]
    for i, x, expected in [
        ([1, 2], 1, []),
        ([1, 5], 1, ["emb"]),
        ([0, 2], 0, ["zero", "log"]),
        ([0, 5], 1, ["emb", "zero"]),
    ]:
        feeds = {"i": np.array(i), "x": np.array([x], np.float32)}
        found = replay(nodes, feeds, ["y", "b", "c", "z"], {"t": np.array([1, 2, 3], np.float32)}).findings
        assert {(f.node, f.kind) for f in found if f.node} >= {(n, "inf" if n == "log" else "error") for n in expected}
        assert {f.node for f in found if f.kind == "error"} == set(expected) - {"log"}
