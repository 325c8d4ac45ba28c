"""Reading: what ONNX files may hold, what is refused, and what the errors say."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from dnnv.nn.operations import Identity, OutputSelect, Relu
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from ranum_falsify.errors import ModelError
from ranum_falsify.network import Graph, read
from tests.network.building import Array, branching, chain, draw, parse, run, unchecked

FLOAT = onnx.TensorProto.FLOAT


def same_as_runtime(model: onnx.ModelProto, *, inputs: Sequence[Array] | None = None, **options: Any) -> Graph:
    """Assert that a model, once read, computes what ONNX Runtime computes; return the graph."""
    graph = read(model, **options)
    arrays = draw(graph) if inputs is None else list(inputs)
    ours, theirs = graph(*arrays, squeeze=False), run(model, arrays)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    return graph


def types(graph: Graph) -> list[str]:
    return [type(op).__name__ for op in graph.nodes]


# inputs, outputs and names --------------------------------------------------------------------------------------


def test_several_inputs_and_outputs_keep_their_order() -> None:
    model = parse(
        """g (float[2,3] b, float[3] a, int64[2] i) => (float[2,3] sum, float[2,3] picked, float[2,3] difference) {
            difference = Sub(b, a)
            sum = Add(b, a)
            picked = Gather(b, i)
        }"""
    )
    graph = same_as_runtime(model)
    assert graph.input_names == ("b", "a", "i")
    assert graph.output_names == ("sum", "picked", "difference")
    assert [d.dtype for d in graph.input_details] == [np.float32, np.float32, np.int64]


def test_one_tensor_may_be_several_outputs_and_an_input_an_output() -> None:
    same_as_runtime(parse("g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x)\n z = Identity(x) }"))
    graph = read(unchecked("g (float[2] x) => (float[2] x) { }"))
    np.testing.assert_array_equal(graph(np.array([1, 2], np.float32)), [1, 2])


def test_empty_names_stand_for_optional_inputs() -> None:
    model = parse(
        """g (float[2,3] x) => (float[2,3] y, float[2,3] z) <float top = {1.0}> {
            y = Clip(x, , top)
            z = Clip(x)
        }"""
    )
    graph = same_as_runtime(model)
    above, free = (op for op in graph.nodes if type(op).__name__ == "Clip")
    assert above.min is None and float(above.max) == 1
    assert free.min is None and free.max is None


def test_left_out_outputs_are_not_selected() -> None:
    nodes = [make_node("Split", ["x"], ["a", "", "c"], axis=1), make_node("Add", ["a", "c"], ["y"])]
    ends = [make_tensor_value_info("x", FLOAT, (2, 6)), make_tensor_value_info("y", FLOAT, (2, 2))]
    model = make_model(make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=[make_opsetid("", 13)], ir_version=8)
    graph = read(model)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(graph(x), x[:, :2] + x[:, 4:])
    assert [op.index for op in graph.order if isinstance(op, OutputSelect)] == [0, 2]


def test_operators_with_several_outputs() -> None:
    model = parse(
        """g (float[2,6] x) => (float[2,1] y, int64[2,1] i, float[2,4] rest)
           <int64[2] split = {2, 4}, int64[1] k = {1}> {
            first, rest = Split<axis = 1>(x, split)
            y, i = TopK(first, k)
        }"""
    )
    graph = same_as_runtime(model)
    assert [d.shape for d in graph.output_details] == [(2, 1), (2, 1), (2, 4)]


def test_unnamed_and_equally_named_nodes_are_told_apart() -> None:
    names = ["", "", "twin", "twin"]
    nodes = [make_node("Relu", [f"t{i}"], [f"t{i + 1}"], name=name) for i, name in enumerate(names)]
    ends = [make_tensor_value_info(name, FLOAT, (3,)) for name in ("t0", "t4")]
    # ONNX Runtime refuses equal names of nodes; other tools write them.
    graph = read(make_model(make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=[make_opsetid("", 17)]))
    np.testing.assert_array_equal(graph(np.array([-1, 0, 2], np.float32)), [0, 0, 2])
    assert len(graph.nodes) == 4
    assert len({op.name for op in graph.order}) == 5
    assert [op.name for op in graph.nodes][2] == "twin"


def test_nodes_may_stand_in_any_order() -> None:
    model = unchecked("g (float[2] x) => (float[2] y) { y = Relu(b)\n b = Neg(a)\n a = Neg(x) }")
    x = np.array([-1, 2], np.float32)
    np.testing.assert_array_equal(read(model)(x), [0, 2])


# constants --------------------------------------------------------------------------------------------------------


def test_an_initializer_that_is_an_input_too_is_a_constant() -> None:
    model = parse("g (float[2] x, float[2] w) => (float[2] y) { y = Mul(x, w) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 3], np.float32), "w"))
    graph = read(model)
    assert graph.input_names == ("x",)
    np.testing.assert_array_equal(graph(np.ones(2, np.float32)), [2, 3])


def test_shape_arithmetic_is_folded() -> None:
    model = parse(
        """g (float[2,3,4] x) => (float[2,12] y)
           <int64 zero = {0}, int64[1] axes = {0}, int64[1] rest = {-1}> {
            shape = Shape(x)
            n = Gather(shape, zero)
            head = Unsqueeze(n, axes)
            target = Concat<axis = 0>(head, rest)
            y = Reshape(x, target)
        }"""
    )
    graph = same_as_runtime(model)
    assert types(graph) == ["Reshape"]
    np.testing.assert_array_equal(graph.nodes[0].shape, [2, -1])


def test_what_no_input_reaches_is_folded() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y) <float[2] a = {1.0, 2.0}, float[2] b = {3.0, 4.0}> {
            c = Add(a, b)
            d = Mul(c, c)
            y = Add(x, d)
        }"""
    )
    graph = same_as_runtime(model)
    assert types(graph) == ["Add"]
    np.testing.assert_array_equal(graph.nodes[0].b, [16, 36])


def test_outputs_may_be_constants() -> None:
    model = parse(
        """g (float[2,3] x) => (int64[2] shape, float[2] w, float[2,3] y) <float[2] w = {1.0, 2.0}> {
            shape = Shape(x)
            y = Relu(x)
        }"""
    )
    graph = same_as_runtime(model)
    assert [type(op) for op in graph.output_operations] == [Identity, Identity, Relu]


def test_sparse_constants_and_initializers() -> None:
    values = onnx.numpy_helper.from_array(np.array([1.5, 2.5], np.float32), "w")
    flat = onnx.helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(np.array([1, 5])), [2, 3])
    pairs = onnx.helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(np.array([[0, 1], [1, 2]])), [2, 3])
    dense = np.array([[0, 1.5, 0], [0, 0, 2.5]], np.float32)
    x = np.ones((2, 3), np.float32)
    ends = [make_tensor_value_info(name, FLOAT, (2, 3)) for name in ("x", "y")]
    for sparse in (flat, pairs):
        nodes = [make_node("Constant", [], ["c"], sparse_value=sparse), make_node("Add", ["x", "c"], ["y"])]
        model = make_model(make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=[make_opsetid("", 17)])
        np.testing.assert_array_equal(read(model)(x), x + dense)
        graph = make_graph([make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], sparse_initializer=[sparse])
        np.testing.assert_array_equal(read(make_model(graph, opset_imports=[make_opsetid("", 17)]))(x), x + dense)


def test_external_data(tmp_path: Path) -> None:
    weights = np.arange(2048, dtype=np.float32)
    model = parse("g (float[2048] x, float[2048] w) => (float[2048] y) { y = Add(x, w) }")
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size >= weights.nbytes
    np.testing.assert_array_equal(read(path)(np.zeros(2048, np.float32)), weights)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"weights\.bin"):
        read(path)


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] x) => (float[2] y) { a = own.twice(x)\n y = own.twice(a) }
        <domain: "own", opset_import: ["" : 17]> twice (v) => (w) { w = Add(v, v) }"""
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path))
    x = np.array([1, -2], np.float32)
    for source in (model, path):
        np.testing.assert_array_equal(read(source)(x), 4 * x)
    assert types(read(path)) == ["Add", "Add"]


def test_a_function_of_another_opset_is_inlined() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
        g (float[2] x) => (float[2] y) { y = own.twice(x) }
        <domain: "own", opset_import: ["" : 16]> twice (v) => (w) {
            z = ReduceSum(v) c = Greater(z, z)
            w = If(c) <then_branch = a () => (p) { p = Neg(v) }, else_branch = b () => (q) { q = Add(v, v) }>
        }"""
    )
    before = model.SerializeToString()
    x = np.array([1, -2], np.float32)
    np.testing.assert_array_equal(read(model)(x), 2 * x)
    assert model.SerializeToString() == before


def test_a_function_that_calls_itself_is_refused() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] x) => (float[2] y) { y = own.again(x) }
        <domain: "own", opset_import: ["" : 17, "own" : 1]> again (v) => (w) { w = own.again(v) }"""
    )
    with pytest.raises(ModelError, match="local function 'again' calls itself") as caught:
        read(model)
    assert "\n" not in str(caught.value)


# symbolic dimensions ----------------------------------------------------------------------------------------------

SYMBOLIC = """g (float[N, 3, M] x, float[N] b) => (float[N, R] y) <int64[2] shape = {0, -1}, int64[1] axes = {1}> {
    flat = Reshape(x, shape)
    c = Unsqueeze(b, axes)
    y = Add(flat, c)
}"""


def test_symbolic_dimensions_are_1_and_said() -> None:
    graph = same_as_runtime(parse(SYMBOLIC))
    assert [d.shape for d in graph.input_details] == [(1, 3, 1), (1,)]
    assert graph.notices == (
        "symbolic dimension N of inputs 'x', 'b' is taken as 1; set it with --dim N=VALUE",
        "symbolic dimension M of input 'x' is taken as 1; set it with --dim M=VALUE",
    )
    assert "dimension N of input 'b' is" in read(parse(SYMBOLIC), dims={"x:0": 1}).notices[-1]


def test_symbolic_dimensions_are_set_by_name_or_place() -> None:
    graph = same_as_runtime(parse(SYMBOLIC), dims={"N": 4, "x:2": 2})
    assert [d.shape for d in graph.input_details] == [(4, 3, 2), (4,)]
    assert graph.output_details[0].shape == (4, 6)
    assert graph.notices == ()


def test_a_nameless_dimension_is_set_by_its_place() -> None:
    model = unchecked("g (float[?, 3] x) => (float[?, 3] y) { y = Relu(x) }")
    assert "--dim x:0=VALUE" in read(model).notices[0]
    assert read(model, dims={"x:0": 5}).input_details[0].shape == (5, 3)


@pytest.mark.parametrize(
    ("dims", "message"),
    [({"K": 2}, r"--dim K: no such symbolic dimension; the model has M, N"), ({"N": 0}, r"--dim N=0: .* at least 1")],
)
def test_dimensions_that_do_not_fit_are_refused(dims: dict[str, int], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(parse(SYMBOLIC), dims=dims)


def test_a_size_that_breaks_the_network_says_how_to_set_it() -> None:
    model = unchecked(
        "g (float[N] x) => (float[2,3] y) <int64[2] shape = {2, 3}> { y = Reshape(x, shape) }",
    )
    with pytest.raises(ModelError, match=r"\(Reshape\).*--dim NAME=VALUE"):
        read(model)
    assert read(model, dims={"N": 6}).output_details[0].shape == (2, 3)


# control flow -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "inside"), [(1, ["Neg", "Mul", "Relu", "Neg"]), (0, ["Add", "Neg"])])
def test_an_if_on_a_constant_is_inlined(value: int, inside: list[str]) -> None:
    model = branching(f"c = Constant<value = bool[1] {{{value}}}>()")
    assert types(same_as_runtime(model)) == inside


def test_an_if_on_the_input_takes_the_branch_that_its_values_choose() -> None:
    model = branching("s = ReduceSum<keepdims = 0>(x)\n c = Greater(s, zero)")
    positive, negative = np.full((2, 3), 0.5, np.float32), np.full((2, 3), -0.5, np.float32)
    for x in (positive, negative):
        graph = same_as_runtime(model, inputs=[x])
    assert "If" in types(graph)
    assert not np.array_equal(graph(positive), -graph(negative))


def test_a_branch_that_cannot_run_at_the_dimensions_is_refused_only_where_it_is_taken() -> None:
    model = parse(
        """g (float[2,3] x, bool[1] c) => (float[2,3] y)
            <float[3] w = {1.0, 2.0, 3.0}, float[4] v = {1.0, 2.0, 3.0, 4.0}> {
            y = If(c) <
                then_branch = yes () => (float[2,3] a) { a = Mul(x, w) },
                else_branch = no () => (float[2,3] b) { b = Mul(x, v) }
            >
        }"""
    )
    graph = read(model)
    x = draw(graph)[0]
    np.testing.assert_array_equal(graph(x, np.array([True])), x * np.array([1, 2, 3], np.float32))
    with pytest.raises(ModelError, match="bound the input that chooses the branch"):
        graph(x, np.array([False]))
    with pytest.raises(ModelError, match="bound the input that chooses the branch"):
        graph.as_onnx()
    assert [type(op).__name__ for op in graph.fix({"c": np.array([True])}).nodes] == ["Mul"]


def test_an_if_may_capture_nothing_and_branches_may_nest() -> None:
    model = parse(
        """g (float[2] x, bool p, bool q) => (float[2] y) {
            y = If(p) <
                then_branch = yes () => (float[2] a) {
                    a = If(q) <
                        then_branch = both () => (float[2] d) { d = Relu(x) },
                        else_branch = one () => (float[2] e) { e = Neg(x) }
                    >
                },
                else_branch = no () => (float[2] b) { b = Constant<value = float[2] {5.0, 6.0}>() }
            >
        }"""
    )
    x = np.array([-1, 2], np.float32)
    for p in (True, False):
        for q in (True, False):
            same_as_runtime(model, inputs=[x, np.array(p), np.array(q)])


def test_a_branch_may_hold_initializers_of_its_own() -> None:
    values = onnx.numpy_helper.from_array(np.array([4.0], np.float32), "w")
    sparse = onnx.helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(np.array([1])), [2])
    dense = onnx.numpy_helper.from_array(np.array([1, 2], np.float32), "v")
    end = [make_tensor_value_info("a", FLOAT, (2,))]
    inside = [make_node("Add", ["w", "v"], ["s"]), make_node("Add", ["x", "s"], ["a"])]
    branch = make_graph(inside, "branch", [], end, initializer=[dense], sparse_initializer=[sparse])
    ends = [make_tensor_value_info(name, FLOAT, (2,)) for name in ("x", "y")]
    flag = make_tensor_value_info("c", onnx.TensorProto.BOOL, ())
    node = make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model = make_model(make_graph([node], "g", [ends[0], flag], ends[1:]), opset_imports=[make_opsetid("", 17)])
    x = np.array([1, 1], np.float32)
    np.testing.assert_array_equal(read(model)(x, np.array(True)), [2, 7])
    np.testing.assert_array_equal(read(model, fixed={"c": np.array(True)})(x), [2, 7])


# size -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_chain_of_5000_nodes_is_read_without_recursion() -> None:
    model = chain(["Neg"] * 5000)
    graph = read(model)
    assert len(graph.nodes) == 5000
    x = draw(graph)[0]
    np.testing.assert_array_equal(graph(x), x)


def test_random_operators_are_said() -> None:
    model = parse("g (float[2] x) => (float[2] y) { r = RandomNormalLike(x)\n y = Add(x, r) }")
    graph = read(model)
    assert any("RandomNormalLike" in notice and "nondeterministic" in notice for notice in graph.notices)
