"""What bounds say around nodes."""

import onnx.parser

import ranum_falsify as rf
from ranum_falsify.config import ProveConfig
from ranum_falsify.process.deadline import NEVER, Deadline
from ranum_falsify.verify.prove.explaining import NodeSurroundings, surroundings

CHAIN = """<ir_version: 10, opset_import: ["" : 17]>
g (float[1, 4] x) => (float[1, 2] y, float[1, 2] z) <float two = {2}> {
    [first] a, b = Split<axis = 1>(x)
    [scaled] s = Mul(a, two)
    [logarithm] l = Log(s)
    [kept] y = Relu(l)
    [sum] z = Add(l, b)
}"""


def around(*nodes: str, deadline: Deadline = NEVER) -> list[NodeSurroundings]:
    result = rf.check(onnx.parser.parse_model(CHAIN), box=(-1, 1), n_starts=0, self_check=False)
    return surroundings(result.loaded.problem, [("N", node) for node in nodes], ProveConfig(), deadline=deadline)


def test_the_nodes_before_and_after_with_bounds() -> None:
    (found,) = around("logarithm")
    picture = found.neighbours
    names = [node.name for node in picture.nodes]
    assert set(names) == {"x", "first", "scaled", "logarithm", "kept", "sum"}
    assert names[picture.focus] == "logarithm"
    edges = {(names[source], names[target]) for source, target in picture.edges}
    assert {("x", "first"), ("first", "scaled"), ("scaled", "logarithm"), ("logarithm", "kept")} <= edges
    assert ("first", "sum") in edges
    by_name = {node.name: node for node in picture.nodes}
    assert [result.shape for result in by_name["first"].results] == [(1, 2), (1, 2)]
    assert by_name["scaled"].results[0].bounds == (-2.0, 2.0)
    assert dict(by_name["scaled"].constants) == {"b": (2.0, 2.0)}
    assert [history.name for history in found.histories] == ["x"]


def test_they_come_in_the_order_asked_for_and_unknown_ones_are_left_out() -> None:
    assert [one.node for one in around("sum", "nothing", "scaled")] == ["sum", "scaled"]


def test_a_deadline_ends_it() -> None:
    assert around("sum", deadline=Deadline.after(-1)) == []
