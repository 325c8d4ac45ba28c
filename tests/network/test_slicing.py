"""Slices of graphs: positions, what is refused, several outputs, branches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from dnnv.nn import Operation, OperationGraph
from dnnv.nn import operations as dnnv_operations
from dnnv.nn.operations import Input, OutputSelect

from ranum_falsify.errors import ModelError
from ranum_falsify.network import Graph, read
from ranum_falsify.network.order import operands_in
from tests.network.building import HEADS, chain, draw, floats, parse, types

CHAIN = ["Neg", "Exp", "Abs", "Sqrt", "Tanh"]

# a long and a short way to the Add
SKIP = "g (float[2] x) => (float[2] y) { a = Neg (x) b = Exp (a) c = Abs (b) d = Sqrt (x) y = Add (c, d) }"


def outputs(graph: Graph) -> list[str]:
    """Types of the output operations, a selection as `Split[1]`."""
    return [
        f"{type(op.operation).__name__}[{op.index}]" if isinstance(op, OutputSelect) else type(op).__name__
        for op in graph.output_operations
    ]


def test_slices_of_a_chain() -> None:
    graph = read(chain(CHAIN))
    assert types(graph[2:-1]) == ["Exp", "Abs", "Sqrt"]
    assert types(graph[1:]) == CHAIN
    assert types(graph[:3]) == ["Neg", "Exp"]
    assert types(graph[-2:]) == ["Sqrt", "Tanh"]
    assert types(graph[2:-1, 0]) == ["Exp", "Abs", "Sqrt"]
    assert types(graph[:, 0]) == types(graph[0]) == types(graph[-1]) == types(graph[:]) == CHAIN
    assert types(graph[2:100]) == ["Exp", "Abs", "Sqrt", "Tanh"]
    assert types(graph[-100:3]) == ["Neg", "Exp"]
    assert types(graph[np.int64(2) : np.int64(3)]) == ["Exp"]


def test_a_slice_computes_its_part() -> None:
    graph = read(chain(CHAIN))
    (x,) = draw(graph)
    np.testing.assert_allclose(graph[2:4](x), np.abs(np.exp(x)), rtol=1e-6)
    np.testing.assert_allclose(graph[3:](graph[:3](x)), graph(x))


def test_a_slice_of_a_slice() -> None:
    graph = read(chain(CHAIN))
    assert types(graph[1:][1:-1]) == types(graph[1:-1])
    assert types(graph[2:][2:]) == ["Abs", "Sqrt", "Tanh"]


def test_a_slice_has_the_shapes_and_names_of_its_ends() -> None:
    part = read(chain(CHAIN))[2:-1]
    assert part.input_names == ("n1",)
    assert part.output_names == ("n4",)
    assert part.input_details == part.output_details == (((2, 3), np.dtype(np.float32)),)


def test_the_whole_slice_keeps_its_model() -> None:
    graph = read(chain(CHAIN))
    for whole in (graph[:], graph[0], graph[:, -1], graph[0:6], graph.copy()):
        assert whole.source is graph.source
        assert whole.model is graph.model
    assert graph[1:].source is None


@pytest.mark.parametrize("index", [np.s_[:0], np.s_[6:], np.s_[3:3], np.s_[4:2], np.s_[:-6], np.s_[2:-4], np.s_[:0, 1]])
def test_an_empty_slice_is_refused(index: Any) -> None:
    with pytest.raises(ModelError, match=r"slice \[.*\] holds no operation; the network has 6 positions$"):
        read(chain(CHAIN))[index]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (1, r"slice selects output 1, the network has 1"),
        (np.s_[1:, -2], r"slice selects output -2, the network has 1"),
        (np.s_[::2], "is not understood"),
        (np.s_[1, 2, 3], "is not understood"),
        (np.s_[1, 2], "is not understood"),
        ("p", "selects output 'p'; an integer is needed"),
        (np.s_["a":], r"slice \[a:\] has a bound that is not an integer"),
        (np.s_[1.5:], r"slice \[1.5:\] has a bound that is not an integer"),
    ],
)
def test_a_slice_that_means_nothing_is_refused(index: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message) as info:
        read(chain(CHAIN))[index]
    assert "\n" not in str(info.value)


def dnnv_chain(op_types: Sequence[str]) -> OperationGraph:
    op: Operation = Input(np.array([2, 3]), np.dtype(np.float32), name="x")
    for i, op_type in enumerate(op_types):
        op = getattr(dnnv_operations, op_type)(op, name=f"n{i + 1}")
    return OperationGraph([op])


def dnnv_types(graph: OperationGraph) -> list[str]:
    found = []
    pending = list(graph.output_operations)
    while pending:
        op = pending.pop()
        found.append(type(op).__name__)
        pending += operands_in(op)
    return [name for name in reversed(found) if name != "Input"]


@pytest.mark.slow
def test_positions_on_chains_are_those_of_dnnv() -> None:
    op_types = ["Relu", "Sigmoid", "Tanh", "Relu", "Sigmoid"]
    ours, theirs = read(chain(op_types)), dnnv_chain(op_types)
    bounds = [None, *range(-8, 9)]
    for start in bounds:
        for stop in bounds:
            expected = dnnv_types(theirs[start:stop])
            try:
                found = types(ours[start:stop])
            except ModelError:
                found = []
            assert found == expected, (start, stop)


def test_output_selections_are_no_positions_and_no_node_is_repeated() -> None:
    graph = read(parse(HEADS, 13))
    assert outputs(graph[:-1]) == ["Split[0]", "Abs"]  # one before each of the two ends
    assert outputs(graph[:3]) == ["Split[0]", "Split[1]"]
    assert outputs(graph[:2]) == ["Neg"]
    assert types(graph[1:]) == ["Neg", "Split", "Exp", "Abs", "Sqrt"]
    assert outputs(graph[:, 1]) == ["Sqrt"]
    assert types(graph[:, 0]) == ["Neg", "Split", "Exp"]
    after = graph[3:]
    assert types(after) == ["Exp", "Abs", "Sqrt"]
    assert len(after.inputs) == 2
    whole = graph(*draw(graph))
    parts = after(*graph[:3](*draw(graph)))
    for ours, theirs in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_selected_output_of_a_slice() -> None:
    graph = read(parse(HEADS, 13))
    (x,) = draw(graph)
    np.testing.assert_array_equal(graph[:3, 1](x), -x[2:])
    np.testing.assert_array_equal(graph[1:3, -2](x), -x[:2])
    with pytest.raises(ModelError, match="slice selects output 2, the network has 2"):
        graph[:3, 2]


def test_a_branching_graph_counts_along_the_longest_way() -> None:
    graph = read(parse(SKIP))
    assert types(graph[:4]) == ["Neg", "Exp", "Abs", "Sqrt"]
    assert outputs(graph[:4]) == ["Abs", "Sqrt"]  # both are three steps from the end
    cut = graph[3:]
    assert types(cut) == ["Abs", "Sqrt", "Add"]
    assert cut.input_names[0] == "x", "the model's own inputs come first"
    exp, x = np.array([0.5, -2], np.float32), np.array([4, 9], np.float32)
    np.testing.assert_array_equal(cut(x, exp), [2.5, 5])


def test_inputs_of_a_slice_keep_the_order_of_the_model() -> None:
    graph = read(parse("g (float[2] a, float[2] b) => (float[2] y) { t = Sub (b, a) y = Neg (t) }"))
    assert graph[1:].input_names == ("a", "b")
    np.testing.assert_array_equal(graph[1:](floats([1, 1]), floats([3, 4])), [-2, -3])


def test_an_input_that_nothing_reads_has_no_position() -> None:
    graph = read(parse("g (float[2] a, float[3] x) => (float[3] y) { t = Neg (x) y = Exp (t) }"))
    assert [op.name for op in graph[:1].output_operations] == ["x"]
    assert types(graph[1:]) == ["Neg", "Exp"]
    with pytest.raises(ModelError, match="3 positions"):
        graph[3:]


def test_what_no_output_depends_on_has_no_position() -> None:
    dead = "t, u = Split <axis = 0> (a) v = Neg (t) d = Div (u, v)"
    graph = read(parse(f"g (float[2] x) => (float[2] y) {{ a = Abs (x) {dead} b = Exp (a) y = Sqrt (b) }}", 13))
    assert types(graph[2:3]) == ["Exp"]
    assert types(graph[:-1]) == ["Abs", "Exp"]


def test_an_output_in_the_middle_of_the_network() -> None:
    graph = read(parse("g (float[2] x) => (float[2] t, float[2] y) { t = Neg (x) y = Abs (t) }"))
    assert outputs(graph[2:]) == ["Input", "Abs"]
    t, y = graph[2:](floats([-1, 2]))
    np.testing.assert_array_equal(t, [-1, 2])
    np.testing.assert_array_equal(y, [1, 2])
