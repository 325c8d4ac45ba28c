"""Clips within whose ranges the model is proved, and which run without NaN and infinity."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.config import ProveConfig
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import Graph, read
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.language.parse import parse_dnnp
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.repair.abstraction.clipping import find_clips, list_clippable, narrow
from ranum_falsify.repair.abstraction.ranges import KeptRange
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.zoo.catalogue import model_of
from ranum_falsify.zoo.detect import problem_of
from tests.network.building import parse

_HEAD = "from dnnv.properties import *\nfrom ranum_falsify.properties import *\nN = Network('N')\n"


def problem(model: onnx.ModelProto, text: str) -> Problem:
    return reduce(parse_dnnp(_HEAD + text, Path("property.py")), {"N": read(model)})


def one_input(body: str, low: float, high: float, goal: str = "no_invalid_input(N(x))") -> Problem:
    model = parse(f"g (float[2, 3] x) => (float[2, 3] y) {{ {body} }}")
    return problem(model, f"Forall(x, Implies({low} <= x <= {high}, {goal}))")


@cache
def zoo_problem(name: str) -> Problem:
    model = model_of(name)
    return problem_of(model, model.architecture())


def exposed(graph: Graph) -> onnxruntime.InferenceSession:
    """A session that returns every float tensor, as written."""
    model = onnx.shape_inference.infer_shapes(graph.as_onnx())
    known = {output.name for output in model.graph.output}
    model.graph.output.extend(
        info
        for info in model.graph.value_info
        if info.name not in known and info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def corners(narrowed: Problem, count: int, seed: int = 0) -> Sequence[dict[str, np.ndarray]]:
    """Inputs each element of which is at an end of its range, or anywhere within."""
    rng = np.random.default_rng(seed)
    call, found = narrowed.calls[0], []
    boxes = {v.name: v for v in narrowed.inputs}
    for index in range(count):
        feed = {}
        for name, variable in zip(call.graph.input_names, call.variables, strict=True):
            v = boxes[str(variable)]
            high = rng.random(v.shape) < (0.0, 1.0, 0.5)[index % 3]
            array = np.where(high, v.upper, v.lower)
            if index % 4 == 3 and v.dtype.kind == "f":
                share = rng.random(v.shape)
                array = np.clip(v.lower + share * (v.upper - v.lower), v.lower, v.upper)
            feed[name] = array.astype(v.dtype)
        found.append(feed)
    return found


def assert_law(original: Problem, kept: Sequence[KeptRange], runs: int = 200) -> None:
    boxes = {v.name: v for v in original.inputs}
    names = dict(zip(original.calls[0].graph.input_names, original.calls[0].variables, strict=True))
    for part in kept:
        v = boxes[str(names[part.tensor])]
        assert part.lower.dtype == part.upper.dtype == v.dtype and part.lower.shape == v.shape
        assert np.all(v.lower <= part.lower) and np.all(part.lower <= part.upper) and np.all(part.upper <= v.upper)
        assert 0 <= part.least <= part.kept < 1
    narrowed = narrow(original, kept)
    assert Prover(narrowed, ProveConfig(prove_timeout=0.0)).analyse().holds
    session = exposed(original.calls[0].graph)
    for feed in corners(narrowed, runs):
        assert all(np.isfinite(y).all() for y in session.run(None, feed) if y.dtype.kind == "f")


def clips(found: Sequence[KeptRange] | None) -> dict[str, tuple[float, float]]:
    assert found is not None
    return {part.tensor: (float(part.lower.min()), float(part.upper.max())) for part in found}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2", "4", "5", "12", "16b", "28b", "32", "37"])
def test_models_of_the_zoo_are_clipped_at_inputs_and_weights(name: str) -> None:
    original = zoo_problem(name)
    assert not Prover(original, ProveConfig(prove_timeout=0.0)).analyse().holds
    kept = find_clips(original, list(list_clippable(original)))
    assert kept
    assert_law(original, kept, runs=200)


@pytest.mark.few(1)
@pytest.mark.parametrize(("place", "count"), [("input", 1), ("weight", 1)])
def test_only_what_may_be_narrowed_is(place: str, count: int) -> None:
    original = zoo_problem("3")
    at = [name for name, found in list_clippable(original).items() if found == place]
    kept = find_clips(original, at)
    assert kept is not None and [part.place for part in kept] == [place] * count
    assert {part.tensor for part in kept} <= set(at)
    assert_law(original, kept, runs=30)


def test_where_inputs_alone_cannot_help_nothing_is_returned() -> None:
    original = zoo_problem("33")  # its inputs are at least 1, and one weight of 10 saturates the sigmoid
    places = list_clippable(original)
    assert find_clips(original, [name for name, place in places.items() if place == "input"]) is None
    assert find_clips(original, []) is None


UNARY = {"Exp": (-300.0, 300.0), "Log": (-3.0, 5.0), "Sqrt": (-4.0, 9.0), "Reciprocal": (-1.0, 8.0)}


@st.composite
def programs(draw: st.DrawFn) -> Problem:
    """Small networks with one or two hazards, with ranges in which these are reached."""
    g = ModelBuilder("program")
    rows, inner = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    x, w = g.input("x", (rows, inner)), g.input("w", (inner, 2))
    y = x @ w
    if draw(st.booleans()):
        y = g.Relu(y)
    for op_type in draw(st.lists(st.sampled_from([*UNARY, "Softmax", "Sigmoid"]), min_size=1, max_size=2)):
        y = g.node(op_type, y)
    g.output(g.Log(y) if draw(st.booleans()) else y)
    scale = draw(st.sampled_from([1.0, 10.0, 100.0]))
    low = draw(st.sampled_from([-1.0, 0.0, 0.5]))
    text = f"Forall(x, Forall(w, Implies(And({low} <= x <= 2, -{scale} <= w <= {scale}), no_invalid_input(N(x, w)))))"
    return problem(g.build(), text)


@pytest.mark.slow
@given(programs(), st.sampled_from([("x",), ("w",), ("x", "w")]))
@settings(max_examples=25, deadline=None)
def test_whatever_is_returned_is_proved_and_runs(original: Problem, at: tuple[str, ...]) -> None:
    kept = find_clips(original, at)
    if kept is not None:
        assert {part.tensor for part in kept} <= set(at)
        assert_law(original, kept, runs=60)


@pytest.mark.parametrize(
    ("op", "low", "high", "kept"),
    [
        ("Log", -4, 6, (0, 6)),
        ("Exp", -50, 150, (-50, 88.7)),
        ("Sqrt", -9, 1, (0, 1)),
        ("Reciprocal", -1, 3, (0, 3)),
        ("Acos", -2, 2, (-1, 1)),
    ],
)
def test_nearly_the_whole_valid_range_is_kept(op: str, low: float, high: float, kept: tuple[float, float]) -> None:
    original = one_input(f"y = {op}(x)", low, high)
    found = find_clips(original, ["x"])
    assert found is not None and found[0].is_uniform
    assert_law(original, found, runs=30)
    assert found[0].kept > 0.94 * (kept[1] - kept[0]) / (high - low)


def test_ranges_that_differ_from_element_to_element_are_kept_apart() -> None:
    model = parse("g (float[3] x) => (float[3] y) { y = Log(x) }")
    text = "Forall(x, Implies(And(np.array([-1, 2, 3]) <= x, x <= np.array([4, 5, 6])), no_invalid_input(N(x))))"
    original = problem(model, "import numpy as np\n" + text)
    found = find_clips(original, ["x"])
    assert found is not None
    assert_law(original, found, runs=30)


def test_inner_tensors_can_be_clipped() -> None:
    original = one_input("e = Exp(x) d = Sub(e, x) y = Log(d)", -3, 3)
    kept = find_clips(original, ["d"])
    assert kept is not None and [part.place for part in kept] == ["tensor"]
    ((name, (low, high)),) = clips(kept).items()
    assert name == "d" and 0 < low < 0.5 and high > 20


def test_only_the_nodes_that_are_named_are_repaired() -> None:
    original = one_input("s = Sqrt(x) t = Sub(s, x) y = Exp(t)", -3, 200)
    names = {type(op).__name__: op.name for op in original.calls[0].graph.nodes}
    first = clips(find_clips(original, ["x"], nodes=[names["Sqrt"]]))
    assert first["x"][0] >= 0 and first["x"][1] == 200


def test_gradients_count_if_the_property_asks_for_them() -> None:
    of_value, of_slope = (
        clips(find_clips(one_input("y = Sqrt(x)", -1, 4, goal), ["x"]))["x"][0]
        for goal in ("no_invalid_input(N(x))", "no_invalid_input(N(x), gradient=True)")
    )
    assert of_value >= 0 and of_slope > 0


def test_a_valid_model_needs_no_clips() -> None:
    assert find_clips(one_input("y = Log(x)", 1, 2), ["x"]) == ()


def test_integers_keep_integers() -> None:
    model = parse("g (int64[2] k) => (float[2] y) { f = Cast<to=1>(k) y = Log(f) }")
    original = problem(model, "Forall(k, Implies(And(-5 <= k, k <= 5), no_invalid_input(N(k))))")
    kept = find_clips(original, ["k"])
    assert kept is not None
    assert_law(original, kept, runs=30)
    assert clips(kept) == {"k": (1, 5)}


def test_unknown_tensors_are_named() -> None:
    with pytest.raises(ValueError, match="cannot be clipped: nowhere"):
        find_clips(one_input("y = Log(x)", -1, 1), ["x", "nowhere"])


def test_time_that_is_up_ends_the_search() -> None:
    assert find_clips(one_input("y = Log(x)", -1, 1), ["x"], deadline=Deadline.after(0)) is None


def test_elements_that_matter_little_keep_more() -> None:
    weights = np.diag([100.0, 10.0, 1.0, 0.0]).astype(np.float32) + np.float32(1e-3)
    g = ModelBuilder("weighted")
    y = g.Exp(g.input("x", (1, 4)) @ g.constant(weights, "W"))
    g.output(y)
    original = problem(g.build(), "Forall(x, Implies(-100 <= x <= 100, no_invalid_input(N(x))))")
    (kept,) = find_clips(original, ["x"]) or ()
    assert_law(original, [kept], runs=50)
    highest = kept.upper[0].tolist()
    assert highest == sorted(highest) and highest[0] < 1 and highest[3] == 100
    assert np.all(kept.lower == -100) and kept.least < 0.51 and kept.kept > 0.6


def test_single_values_that_differ_from_element_to_element_are_tried() -> None:
    """Where all elements are equal, their deviation is 0, and so is its logarithm's operand."""
    body = "m = ReduceMean<axes=[1]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMax<axes=[1]>(s) y = Log(v)"
    model = parse(f"g (float[1, 3] x) => (float[1, 1] y) {{ {body} }}")
    original = problem(model, "Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x))))")
    kept = find_clips(original, ["x"])
    assert kept is not None and not kept[0].is_uniform
    assert_law(original, kept, runs=50)
