"""Graphs written as ONNX models: what ONNX Runtime computes from them, and what the reader reads back."""

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test.case.node as node_tests
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from ranum_falsify.errors import ModelError
from ranum_falsify.network import Graph, read
from ranum_falsify.network.shaped import ReadOptions
from ranum_falsify.network.writer import to_onnx
from tests.network.building import assert_same_structure, chain, draw, parse, run

NETWORKS = sorted((Path(__file__).resolve().parent.parent.parent / "networks").glob("*.onnx"))


def written(graph: Graph, *, full_check: bool = True) -> onnx.ModelProto:
    model = to_onnx(graph)
    onnx.checker.check_model(model, full_check=full_check)
    return model


def assert_runs_alike(graph: Graph, model: onnx.ModelProto, *, seeds: int = 2) -> None:
    """Compare a model on ONNX Runtime with the graph it was written from."""
    for seed in range(seeds):
        inputs = draw(graph, seed)
        for ours, theirs in zip(graph(*inputs, squeeze=False), run(model, inputs), strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-5)


def assert_round_trip(source: onnx.ModelProto) -> onnx.ModelProto:
    graph = read(source)
    model = written(graph)
    assert_same_structure(graph, read(model))
    assert_runs_alike(graph, model)
    return model


@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.stem)
def test_own_networks_come_back(path: Path) -> None:
    graph = read(path)
    model = written(graph)
    assert_same_structure(graph, read(model))
    for ours, theirs in zip(run(model, draw(graph)), run(onnx.load(path), draw(graph)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# operators whose inputs and attributes changed places, and other irregular forms
FORMS: dict[str, tuple[int, str]] = {
    "clip-attributes": (7, "g (float[4] x) => (float[4] y) { y = Clip <min = -0.5, max = 0.5> (x) }"),
    "clip-one-attribute": (10, "g (float[4] x) => (float[4] y) { y = Clip <max = 0.5> (x) }"),
    "clip-inputs": (13, "g (float[4] x) => (float[4] y) <float m = {0.5}> { y = Clip (x, , m) }"),
    "clip-computed": (13, "g (float[4] x, float m) => (float[4] y) { y = Clip (x, m) }"),
    "split-attribute": (11, "g (float[5] x) => (float[2] a, float[3] b) { a, b = Split <axis=0, split=[2, 3]> (x) }"),
    "split-input": (13, "g (float[5] x) => (float[2] a, float[3] b) <int64[2] s = {2, 3}> { a, b = Split (x, s) }"),
    "split-number": (18, "g (float[5] x) => (float[3] a, float[2] b) { a, b = Split <num_outputs = 2> (x) }"),
    "two-splits": (
        13,
        "g (float[4] x) => (float[1] y) { a, b = Split (x) c, d = Split (b) e = Add (c, d) f, z = Split (a)"
        " y = Sub (e, z) }",
    ),
    "squeeze-attribute": (11, "g (float[1,3] x) => (float[3] y) { y = Squeeze <axes = [0]> (x) }"),
    "squeeze-input": (13, "g (float[1,3] x) => (float[3] y) <int64[1] s = {0}> { y = Squeeze (x, s) }"),
    "unsqueeze-attribute": (11, "g (float[3] x) => (float[1,3] y) { y = Unsqueeze <axes = [0]> (x) }"),
    "slice-attributes": (9, "g (float[2,4] x) => (float[2,2] y) { y = Slice <starts=[1], ends=[3], axes=[1]> (x) }"),
    "slice-inputs": (
        13,
        "g (float[2,4] x) => (float[2,2] y) <int64[1] s = {3}, int64[1] e = {-5}, int64[1] a = {1}, int64[1] p = {-2}>"
        " { y = Slice (x, s, e, a, p) }",
    ),
    "pad-attributes": (10, "g (float[3] x) => (float[6] y) { y = Pad <pads = [1, 2], value = 0.5> (x) }"),
    "pad-inputs": (13, 'g (float[3] x) => (float[6] y) <int64[2] p = {1, 2}> { y = Pad <mode = "edge"> (x, p) }'),
    "reduce-attribute": (13, "g (float[2,3] x) => (float[2] y) { y = ReduceMean <axes = [1], keepdims = 0> (x) }"),
    "reduce-input": (18, "g (float[2,3] x) => (float[2] y) <int64[1] a = {1}> { y = ReduceMean <keepdims=0> (x, a) }"),
    "topk-attribute": (9, "g (float[5] x) => (float[2] y, int64[2] i) { y, i = TopK <k = 2> (x) }"),
    "topk-input": (
        11,
        "g (float[5] x) => (float[2] y, int64[2] i) <int64[1] k = {2}> { y, i = TopK <largest = 0> (x, k) }",
    ),
    "topk-indices-only": (11, "g (float[5] x) => (int64[2] i) <int64[1] k = {2}> { v, i = TopK (x, k) }"),
    "softmax-old": (11, "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax (x) }"),
    "softmax-new": (13, "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax (x) }"),
    "concat": (13, "g (float[2] x, float[3] z) => (float[7] y) { y = Concat <axis = 0> (x, z, x) }"),
    "sum-of-one": (13, "g (float[2] x) => (float[2] y) { y = Sum (x) }"),
    "max-of-constant": (13, "g (float[2] x) => (float[2] y) <float[2] c = {0.5, -9}> { y = Max (x, c, x) }"),
    "maxpool-indices": (
        12,
        "g (float[1,1,4,4] x) => (float[1,1,3,3] y, int64[1,1,3,3] i) { y, i = MaxPool <kernel_shape = [2, 2]> (x) }",
    ),
    "dropout-attribute": (10, "g (float[3] x) => (float[3] y) { y = Dropout <ratio = 0.3> (x) }"),
    "dropout-mask": (13, "g (float[3] x) => (float[3] y, bool[3] m) { y, m = Dropout (x) }"),
    "cast": (13, "g (float[3] x) => (double[3] y) { y = Cast <to = 11> (x) }"),
    "lstm-last-output": (
        14,
        "g (float[2,1,1] x) => (float[1,1,1] c) <float[1,4,1] w = {1,2,3,4}, float[1,4,1] r = {5,6,7,8}>"
        ' { , , c = LSTM <hidden_size = 1, activations = ["Sigmoid", "Tanh", "Tanh"]> (x, w, r) }',
    ),
    "gru-skipped-input": (
        14,
        "g (float[2,1,1] x, float[1,1,1] h) => (float[2,1,1,1] y)"
        " <float[1,3,1] w = {0.1,0.2,0.3}, float[1,3,1] r = {0.5,0.6,0.7}>"
        " { y = GRU <hidden_size = 1> (x, w, r, , , h) }",
    ),
    "einsum": (13, 'g (float[2,3] x, float[3,2] z) => (float[2,2] y) { y = Einsum <equation = "ij,jk->ik"> (x, z) }'),
    "einsum-constant": (
        13,
        'g (float[2] x) => (float[2] y) <float[2,2] w = {1, 2, 3, 4}> { y = Einsum <equation = "ij,j->i"> (w, x) }',
    ),
    "input-is-output": (13, "g (float[2] x) => (float[2] x, float[2] y) { y = Neg (x) }"),
    "constant-output": (17, "g (float[2] x) => (float[2] y, float[2] c) <float[2] c = {1, 2}> { y = Add (x, c) }"),
    "intermediate-output": (13, "g (float[2] x) => (float[2] t, float[2] y) { t = Neg (x) y = Abs (t) }"),
    "unused-input": (13, "g (float[2] a, float[3] x) => (float[3] y) { y = Neg (x) }"),
    "float16": (13, "g (float16[3] x) => (float16[3] y) <float[1] c = {1.5}> { d = Cast <to=10> (c) y = Mul(x, d) }"),
}


@pytest.mark.few(14)
@pytest.mark.parametrize(("opset", "text"), FORMS.values(), ids=FORMS.keys())
def test_form_comes_back(opset: int, text: str) -> None:
    source = parse(text, opset)
    model = assert_round_trip(source)
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": opset}


IF = (
    "g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> {"
    " t = Neg (x)"
    " y = If (c) <"
    "  then_branch = th () => (float[2] p) { p = Add (t, w) },"
    "  else_branch = el () => (float[2] q) { m, n = Split <axis=0> (t) k = Concat <axis=0> (n, m) q = Mul(k, x) }> }"
)


def test_branches_come_back_over_what_they_capture() -> None:
    model = assert_round_trip(parse(IF, 13))
    (node,) = [node for node in model.graph.node if node.op_type == "If"]
    assert {a.name: len(a.g.node) for a in node.attribute} == {"then_branch": 1, "else_branch": 3}
    assert [a.g.input for a in node.attribute] == [[], []]
    graph = read(model)
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(graph(x, np.array(True)), [0, 0])
    np.testing.assert_array_equal(graph(x, np.array(False)), [-2, -2])


def test_a_branch_may_capture_its_condition_and_return_what_it_captures() -> None:
    text = (
        "g (float[2] x, bool c) => (float[2] y) {"
        " y = If (c) <"
        "  then_branch = th () => (float[2] p) { p = Identity (x) },"
        "  else_branch = el () => (float[2] q) { f = Cast <to = 1> (c) q = Add (f, x) }> }"
    )
    assert_round_trip(parse(text, 16))


def test_a_nested_branch_comes_back() -> None:
    text = (
        "g (float[2] x, bool c, bool d) => (float[2] y) {"
        " y = If (c) <"
        "  then_branch = th () => (float[2] p) { p = If (d) <"
        "    then_branch = tt () => (float[2] r) { r = Neg (x) },"
        "    else_branch = te () => (float[2] s) { s = Abs (x) }> },"
        "  else_branch = el () => (float[2] q) { q = Exp (x) }> }"
    )
    assert_round_trip(parse(text, 16))


def test_a_shared_array_is_written_once() -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { t = Add (x, w) y = Mul (t, w) }"
    assert len(to_onnx(read(parse(text))).graph.initializer) == 1


def test_the_model_names_its_producer_and_needs_no_initializer_as_input() -> None:
    model = to_onnx(read(parse(FORMS["clip-inputs"][1], 7 + 6)))
    assert model.producer_name == "ranum-falsify"
    assert model.ir_version >= 4
    assert [item.name for item in model.graph.input] == ["x"]


def test_sizes_that_depend_on_values_stay_open() -> None:
    text = "g (float[4] x, int64[1] n) => (float[m] y, float[4] z) <int64[1] s = {0}> { y = Slice(x, s, n) z = Neg(x) }"
    model = to_onnx(read(parse(text)))
    y, z = model.graph.output
    assert not y.type.tensor_type.shape.dim[0].HasField("dim_value")
    assert z.type.tensor_type.shape.dim[0].dim_value == 4
    (first, _) = run(model, [np.arange(4, dtype=np.float32), np.array([3])])
    np.testing.assert_array_equal(first, [0, 1, 2])


def test_export_through_dnnv_writes_the_same(tmp_path: Path) -> None:
    graph = read(chain(["Neg", "Exp"]))
    graph.export_onnx(str(tmp_path / "chain.onnx"))
    assert onnx.load(tmp_path / "chain.onnx") == to_onnx(graph)


# slices and compositions ----------------------------------------------------------------------------------------------


@pytest.mark.few(22)
@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("bounds", [(1, None), (2, -1), (None, -1), (-2, None)])
def test_slices_run_as_models(path: Path, bounds: tuple[int | None, int | None]) -> None:
    whole = read(path)
    try:
        part = whole[slice(*bounds)]
    except ModelError:
        pytest.skip("the network is too short")
    model = written(part)
    with np.errstate(all="ignore"):
        inputs = draw(part)
        for ours, theirs in zip(part(*inputs, squeeze=False), run(model, inputs), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_slice_whose_output_name_is_taken_gets_another() -> None:
    # The node is called like the tensor between the two.
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["t"], name="y"), helper.make_node("Exp", ["t"], ["y"], name="t")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    whole = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    for part in (whole, whole[1:], whole[:-1], whole[:2]):
        assert_runs_alike(part, written(part))


def test_a_composition_with_itself_has_unique_names() -> None:
    text = "g (float[4] x) => (float[4] y) { a, b = Split (x) t = Sub (b, a) y = Concat <axis = 0> (t, a) }"
    once = read(parse(text, 13))
    model = written(once.compose(once).compose(once))
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names) == 9
    (x,) = draw(once)
    np.testing.assert_array_equal(run(model, [x])[0], once(once(once(x))))


def test_a_composition_takes_an_opset_that_fits_both() -> None:
    inner, outer = read(chain(["Neg", "Log"], 9)), read(chain(["Atan"], 11))
    model = written(outer.compose(inner))
    assert model.opset_import[0].version == 11
    inner, outer = read(chain(["Softmax"], 11)), read(chain(["Atan"], 17))
    model = written(outer.compose(inner))
    assert model.opset_import[0].version == 12
    assert_runs_alike(outer.compose(inner), model)


def test_a_composition_that_no_opset_fits_is_refused() -> None:
    old, new = read(chain(["Softmax"], 11)), read(chain(["LogSoftmax"], 13))
    message = r"no opset offers both LogSoftmax-13 .* and Softmax-11 .*version_converter"
    with pytest.raises(ModelError, match=message) as info:
        to_onnx(new.compose(old))
    assert "\n" not in str(info.value)


def test_a_computed_operand_that_is_an_attribute_at_its_version_is_refused() -> None:
    graph = read(parse("g (float[4] x) => (float[4] y) { t = Neg (x) y = Clip <max = 0.5> (t) }", 10))
    clip = graph.output_operations[0]
    clip.max = graph.nodes[0]
    with pytest.raises(ModelError, match="'max' is computed, but an attribute at opset 10"):
        to_onnx(graph)


def test_a_graph_of_no_node_is_written() -> None:
    whole = read(chain(["Neg"]))
    empty = Graph(
        whole.inputs, inputs=whole.inputs, output_names=("z",), details=whole.details, opset=17, options=ReadOptions()
    )
    model = written(empty)
    (x,) = draw(empty)
    np.testing.assert_array_equal(run(model, [x])[0], x)


# random graphs --------------------------------------------------------------------------------------------------------

UNARY = ["Neg", "Abs", "Relu", "Tanh", "Sigmoid", "Softmax", "Identity", "Erf", "Floor"]
BINARY = ["Add", "Sub", "Mul", "Max", "Min"]


@st.composite
def models(draw_from: st.DrawFn) -> onnx.ModelProto:
    """Models of operators on (4, 2) tensors, with shared operands, constants, Splits and several outputs."""
    names = ["x0", "x1"]
    nodes = []
    weights = [
        onnx.numpy_helper.from_array(np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2) * scale, f"w{scale}")
        for scale in (1, 2)
    ]
    constants = [w.name for w in weights]
    for i in range(draw_from(st.integers(1, 8))):
        kind = draw_from(st.sampled_from([*UNARY, *BINARY, "Split"]))
        x = draw_from(st.sampled_from(names))
        if kind == "Split":
            nodes.append(helper.make_node("Split", [x], [f"t{i}a", f"t{i}b"], axis=0))
            nodes.append(helper.make_node("Concat", [f"t{i}b", f"t{i}a"], [f"t{i}"], axis=0))
        elif kind in UNARY:
            nodes.append(helper.make_node(kind, [x], [f"t{i}"]))
        else:
            nodes.append(helper.make_node(kind, [x, draw_from(st.sampled_from(names + constants))], [f"t{i}"]))
        names.append(f"t{i}")
    outputs = draw_from(st.lists(st.sampled_from(names[2:]), min_size=1, max_size=3, unique=True))
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 2]) for name in names}
    graph = helper.make_graph(nodes, "g", [infos["x0"], infos["x1"]], [infos[name] for name in outputs], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(models(), st.integers(-4, 4), st.one_of(st.none(), st.integers(-4, 4)))
def test_random_graphs_and_their_slices_come_back(source: onnx.ModelProto, start: int, stop: int | None) -> None:
    assert_round_trip(source)
    try:
        part = read(source)[start:stop]
    except ModelError:
        reject()
    assert_runs_alike(part, written(part), seeds=1)


# every kind of node ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_model_of_the_node_tests_comes_back() -> None:
    types: set[str] = set()
    for case in node_tests.collect_testcases(None):
        assert case.model is not None
        try:
            graph = read(case.model)
        except ModelError:
            continue
        assert_same_structure(graph, read(written(graph, full_check=False)))
        types |= {type(op).__name__ for op in graph.nodes}
    assert len(types) > 100
