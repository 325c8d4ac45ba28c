"""Graphs: compositions, freed weights, fixed inputs, evaluation, and long chains."""

import time
import weakref
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor

import ranum_falsify.network.builder as builder
import ranum_falsify.network.evaluate as evaluate_module
import ranum_falsify.network.graph as graph_module
from ranum_falsify.errors import ModelError
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import OperatorSpec, read
from ranum_falsify.network.evaluate import apply
from tests.network.building import HEADS, chain, draw, floats, parse, run, types

# compositions ---------------------------------------------------------------------------------------------------------


def test_a_composition_applies_one_to_the_other() -> None:
    inner, outer = read(chain(["Abs", "Sqrt"])), read(chain(["Neg", "Exp"]))
    both = outer.compose(inner)
    (x,) = draw(both)
    assert types(both) == ["Abs", "Sqrt", "Neg", "Exp"]
    np.testing.assert_array_equal(both(x), outer(inner(x)))
    assert both.input_names == inner.input_names and both.output_names == outer.output_names
    assert len({op.name for op in both.order}) == len(both.order)
    assert both.output_details == outer.output_details
    assert types(both[2:-1]) == ["Sqrt", "Neg"]


def test_a_composition_keeps_what_may_end_a_run_in_both() -> None:
    inner = read(parse("g (float[2] x, int64[2] i) => (float[2] y) { l = Gather(x, i) y = Neg(x) }", 13))
    outer = read(parse("g (float[2] x) => (float[2] y) <int64[1] i = {5}> { l = Gather(x, i) y = Abs(x) }", 13))
    both = outer.compose(inner)
    assert sorted(types(both)) == ["Abs", "Gather", "Gather", "Neg"]
    assert sorted(node.op_type for node in both.model.graph.node) == ["Abs", "Gather", "Gather", "Neg"]


def test_a_composition_over_several_tensors() -> None:
    inner = read(parse(HEADS, 13))
    outer = read(parse("g (float[2] u, float[2] v) => (float[2] w) { w = Sub (v, u) }"))
    both = outer.compose(inner)
    (x,) = draw(both)
    x = np.abs(x)
    p, q = inner(x)
    np.testing.assert_array_equal(both(x), q - p)


def test_a_composition_of_halves_is_the_whole() -> None:
    graph = read(parse(HEADS, 13))
    (x,) = draw(graph)
    for ours, theirs in zip(graph[3:].compose(graph[:3])(x), graph(x), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_composition_keeps_the_notices_of_both() -> None:
    text = "g (float[n] x) => (float[n] y) { y = Neg (x) }"
    graph = read(parse(text))
    assert graph.compose(graph).notices == graph.notices * 2


@pytest.mark.parametrize("text", ["g (float[3] u) => (float[3] w) { w = Neg (u) }", HEADS])
def test_a_composition_that_does_not_fit_is_refused(text: str) -> None:
    inner = read(parse("g (double[4] u) => (double[4] w) { w = Neg (u) }"))
    with pytest.raises(ModelError, match=r"the inner network gives .* the outer takes"):
        read(parse(text, 13)).compose(inner)


# freed weights and fixed inputs ---------------------------------------------------------------------------------------

AFFINE = (
    "g (float[2] x, float[2] z) => (float[2] y) <float[2] w = {2, 3}, float[2] b = {1, 1}>"
    " { t = Mul (x, w) u = Add (t, b) y = Sub (u, z) }"
)


def test_freed_weights_are_further_inputs() -> None:
    graph = read(parse(AFFINE))
    freed = graph.free(["b", "w"])
    assert freed.input_names == ("x", "z", "b", "w")
    x, z, b, w = (floats(v) for v in ([1, 2], [0, 1], [5, 5], [-1, 1]))
    np.testing.assert_array_equal(freed(x, z, b, w), [4, 6])
    np.testing.assert_array_equal(run(freed.model, [x, z, b, w])[0], [4, 6])
    np.testing.assert_array_equal(freed(x, z, floats([1, 1]), floats([2, 3])), graph(x, z))
    assert graph.input_names == ("x", "z"), "the graph itself stays as it is"


SELECTED = (
    "g (float[2, 3] x) => (float[2, 3] y, int64[2, N] n, int64[2] s) <float[3] w = {1, 2, 3}, int64[2] rows = {1, 0}>"
    " { a = Mul (x, w) b = Abs (a) y = Gather (b, rows) s = Shape (y) c = Exp (a) n = NonZero (c) }"
)


@pytest.mark.parametrize("names", [["w"], ["rows"], ["rows", "w"]])
def test_nodes_whose_shapes_are_known_run_only_if_their_values_are_wanted(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, direct = read(parse(SELECTED)), read(parse(SELECTED), free=names)
    runs: list[str] = []

    def observed(spec: OperatorSpec, *rest: Any, **options: Any) -> tuple[Tensor, ...]:
        runs.append(spec.op_type)
        return apply(spec, *rest, **options)

    monkeypatch.setattr(builder, "apply", observed)
    freed = graph.free(names)
    assert sorted(runs) == ["Exp", "Mul", "NonZero", "Shape"]
    assert freed.details == direct.details and freed.shapes == direct.shapes and types(freed) == types(direct)
    x, weights = floats([1, -2, 3, -4, 5, -6]).reshape(2, 3), {"w": floats([1, 2, 3]), "rows": np.array([1, 0])}
    for mine, other in zip(freed(x, *(weights[name] for name in names)), graph(x), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_weights_freed_twice_are_one_input() -> None:
    assert read(parse(AFFINE)).free(["b"]).free(["w", "b"]).input_names == ("x", "z", "b", "w")


def test_an_initializer_that_is_an_input_too_can_be_freed() -> None:
    model = parse(AFFINE)
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    assert read(model).input_names == ("x", "z")
    assert read(model).free(["w"]).input_names == ("x", "z", "w")


def test_an_unknown_weight_is_refused() -> None:
    with pytest.raises(ModelError, match="free: no initializer is named 'v'; there are b, w"):
        read(parse(AFFINE)).free(["v"])


def test_fixed_inputs_are_constants() -> None:
    graph = read(parse(AFFINE))
    fixed = graph.fix({"z": np.array([10.0, 20.0])})
    assert fixed.input_names == ("x",)
    (x,) = draw(fixed)
    np.testing.assert_array_equal(fixed(x), graph(x, floats([10, 20])))
    np.testing.assert_array_equal(run(fixed.model, [x])[0], fixed(x))
    assert fixed.free(["w"]).input_names == ("x", "w")
    assert fixed.fix({"x": x}).input_names == ()
    np.testing.assert_array_equal(fixed.fix({"x": x})(), fixed(x))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("v", np.zeros(2), "fixed: no input is named 'v'; there are x, z"),
        ("w", np.zeros(2), "fixed: no input is named 'w'"),
        ("z", np.zeros(3), r"fixed: input 'z' has shape \(2,\), the value given has \(3,\)"),
        ("z", np.zeros((1, 2)), "has shape"),
        ("z", np.array(["a", "b"]), "fixed: input 'z' holds float32, the value given holds <U1"),
    ],
)
def test_a_fixed_input_that_does_not_fit_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(parse(AFFINE)).fix({name: value})


def test_parts_have_no_weights_to_free() -> None:
    with pytest.raises(ModelError, match="not a slice or composition"):
        read(parse(AFFINE))[1:].free(["w"])


# evaluation -----------------------------------------------------------------------------------------------------------


def test_one_output_comes_bare_and_several_as_a_tuple() -> None:
    graph = read(chain(["Neg"]))
    (x,) = draw(graph)
    assert isinstance(graph(x), np.ndarray)
    assert isinstance(graph(x, squeeze=False), tuple)
    assert isinstance(read(parse(HEADS, 13))(np.zeros(4)), tuple)


def test_arrays_are_cast_to_the_inputs_type() -> None:
    graph = read(chain(["Neg"]))
    assert graph([[1, 2, 3], [4, 5, 6]]).dtype == np.float32


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([], r"network takes 1 inputs \(x\), got 0"),
        ([np.zeros((2, 3)), np.zeros((2, 3))], "network takes 1 inputs"),
        ([np.zeros((3, 2))], r"network input 'x' has shape \(2, 3\), got \(3, 2\)"),
        ([np.full((2, 3), "a")], "network input 'x' holds float32, got <U1"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays: list[Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(chain(["Neg"]))(*arrays)


def test_evaluation_carries_gradients() -> None:
    x = torch.tensor([[0.5, 1, 2], [3, 4, 5]], requires_grad=True)
    (y,) = read(chain(["Neg", "Exp"])).evaluate([x])
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, -torch.exp(-x.detach()))


def test_dead_tensors_are_freed_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Tensor]] = []
    most = 0
    original = evaluate_module.apply

    def counting(*arguments: Any) -> tuple[Tensor, ...]:
        nonlocal most
        results = original(*arguments)
        alive.extend(weakref.ref(result) for result in results)
        most = max(most, sum(reference() is not None for reference in alive))
        return results

    graph = read(chain(["Neg", "Abs"] * 20))
    monkeypatch.setattr(graph_module, "apply", counting)
    with torch.no_grad():
        graph.evaluate([torch.ones(2, 3)])
    assert len(alive) == 40
    assert most <= 2


def test_a_constant_stays_as_it_is() -> None:
    graph = read(parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { t = Add (w, x) y = Add (t, w) }"))
    (x,) = draw(graph)
    first = graph(x)
    np.testing.assert_array_equal(first, graph(x))


def test_equal_twins_stay_two_nodes() -> None:
    nodes = [helper.make_node("Neg", ["x"], [name], name="same") for name in ("a", "b")]
    nodes.append(helper.make_node("Concat", ["a", "b"], ["y"], axis=0))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name, size in (("x", 1), ("y", 2))]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]), ir_version=8)
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 17))
    graph = read(model)
    assert types(graph) == ["Neg", "Neg", "Concat"]
    assert len({op.name for op in graph.nodes}) == 3


def test_details_of_an_operation_of_several_outputs_are_those_of_its_first() -> None:
    text = "g (float[5] x) => (int64[2] i, float[2] y) <int64[1] k = {2}> { y, i = TopK (x, k) }"
    graph = read(parse(text))
    (node,) = graph.nodes
    assert graph.details_of(node).dtype == np.float32
    assert [d.dtype for d in graph.output_details] == [np.int64, np.float32]


# long chains ----------------------------------------------------------------------------------------------------------

LENGTH = 20_000


def long_model() -> onnx.ModelProto:
    """A chain of Adds with a long skip, 20,000 nodes."""
    g = ModelBuilder("long")
    x, v, w = g.input("x", [2]), g.constant(np.full(2, 1, np.float32), "v"), g.constant(np.full(2, -1, np.float32), "w")
    chain = [x]
    for i in range(LENGTH - 1):
        chain.append(chain[-1] + (w if i % 2 else v))
    g.output(chain[-1] + chain[1], [2])
    return g.build()


@pytest.mark.slow
def test_a_chain_of_20000_nodes_is_walked_without_recursion() -> None:
    model = long_model()
    started = time.process_time()
    graph = read(model)
    assert len(graph.order) == LENGTH + 1
    np.testing.assert_array_equal(graph(floats([0, 1])), [2, 4])
    part = graph[LENGTH // 2 : -5]
    assert len(part.nodes) == LENGTH // 2 - 4
    assert len(graph[-5:].nodes) == 6, "the skipped node is one step from the end"
    assert len(graph.compose(graph).nodes) == 2 * LENGTH
    assert len(part.model.graph.node) == len(part.nodes)
    assert time.process_time() - started < 60
