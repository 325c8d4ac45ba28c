"""Random operators as inputs: what they may draw, and that a graph computes from draws what the original does."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from ranum_falsify.network import read
from ranum_falsify.network.random_inputs import Draw, expose_draws
from tests.network.building import Array, parse, run

LIKE = "g (float[2,3] x) => (float[2,3] y) {{ [draw] r = {}(x) [sum] y = Add(x, r) }}"
BARE = "g (float[2,3] x) => (float[2,3] y) {{ [draw] r = {} <shape = [2, 3]> () [sum] y = Add(x, r) }}"
# Text, and the bounds of what is drawn.
MODELS = {
    "uniform": (BARE.format("RandomUniform").replace("<", "<low = -2.0, high = 3.0, "), (-2.0, 3.0)),
    "uniform_like": (LIKE.format("RandomUniformLike <low = -2.0, high = 3.0>"), (-2.0, 3.0)),
    "default": (LIKE.format("RandomUniformLike"), (0.0, 1.0)),
    "normal": (BARE.format("RandomNormal").replace("<", "<mean = 1.0, scale = 0.5, "), (-1.0, 3.0)),
    "normal_like": (LIKE.format("RandomNormalLike <mean = 1.0, scale = 0.5>"), (-1.0, 3.0)),
}
BERNOULLI = "g (float[2,3] x) => (float[2,3] y) { [draw] r = Bernoulli(x) [sum] y = Add(x, r) }"


def exposed(model: onnx.ModelProto, tensor: str, x: Array) -> tuple[Array, Array]:
    """Run a model on ONNX Runtime; return its output and one further tensor."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    changed.graph.output.append(onnx.ValueInfoProto(name=tensor))
    session = onnxruntime.InferenceSession(changed.SerializeToString(), providers=["CPUExecutionProvider"])
    y, drawn_now = session.run(None, {"x": x})
    return y, drawn_now


@pytest.fixture
def x() -> Array:
    return np.random.default_rng(0).random((2, 3), np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_drawn_becomes_an_input_of_its_range(name: str) -> None:
    text, (low, high) = MODELS[name]
    graph, draws = expose_draws(read(parse(text)))
    (draw,) = draws
    assert isinstance(draw, Draw) and (draw.name, draw.node) == ("r", "draw")
    assert draw.low == low
    # Kernels draw from intervals that are open above.
    assert draw.high == np.nextafter(np.float32(high), np.float32(-np.inf))
    assert graph.input_names == ("x", "r")
    assert [(d.shape, d.dtype) for d in graph.input_details] == [((2, 3), np.dtype(np.float32))] * 2
    assert [op.name for op in graph.nodes] == ["sum"]


@pytest.mark.parametrize("name", MODELS)
def test_recorded_draws_give_what_the_original_gave(name: str, x: Array) -> None:
    model = parse(MODELS[name][0])
    graph, (draw,) = expose_draws(read(model))
    onnx.checker.check_model(graph.model)
    y, recorded = exposed(model, "r", x)
    np.testing.assert_array_equal(graph(x, recorded), y)
    np.testing.assert_array_equal(run(graph.model, [x, recorded])[0], y)
    if "uniform" in name:
        assert (draw.low <= recorded).all() and (recorded <= draw.high).all()


def test_uniform_draws_fill_their_range() -> None:
    model = parse("g () => (float[400,400] r) { r = RandomUniform<low = -2.0, high = 3.0, shape = [400, 400]>() }")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (values,) = session.run(None, {})
    assert values.min() < -1.99 and values.max() > 2.99 and -2 <= values.min() and values.max() < 3


class TestBernoulli:
    def test_a_uniform_draw_is_compared_with_the_probabilities(self, x: Array) -> None:
        graph, (draw,) = expose_draws(read(parse(BERNOULLI)))
        onnx.checker.check_model(graph.model)
        assert (draw.name, draw.node, draw.low) == ("r_draw", "draw", 0.0)
        assert draw.high == np.nextafter(np.float32(1), np.float32(0))
        assert graph.input_names == ("x", "r_draw")
        values = np.random.default_rng(1).random((2, 3), np.float32)
        wanted = x + (values < x)
        np.testing.assert_array_equal(graph(x, values), wanted)
        np.testing.assert_array_equal(run(graph.model, [x, values])[0], wanted)

    @pytest.mark.parametrize(("probability", "outcome"), [(0.0, 0.0), (1.0, 1.0)])
    def test_certain_outcomes_are_certain(self, probability: float, outcome: float) -> None:
        graph, (draw,) = expose_draws(read(parse(BERNOULLI)))
        x = np.full((2, 3), probability, np.float32)
        for end in (draw.low, draw.high):
            np.testing.assert_array_equal(graph(x, np.full((2, 3), end, np.float32)), x + outcome)


def test_half_precision_keeps_its_type() -> None:
    text = "g (float16[2] x) => (float16[2] y) { [draw] r = RandomUniformLike(x) [sum] y = Add(x, r) }"
    graph, (draw,) = expose_draws(read(parse(text)))
    assert graph.input_details[1].dtype == np.float16
    assert np.float16(draw.high) < 1


def test_a_graph_without_draws_stays_itself() -> None:
    graph = read(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    assert expose_draws(graph) == (graph, ())


def test_other_random_operators_stay() -> None:
    text = "g (float[1,3] x) => (int32[1,2] y) { [draw] y = Multinomial<sample_size = 2>(x) }"
    graph = read(parse(text))
    assert expose_draws(graph) == (graph, ())


def test_freed_weights_stay_free() -> None:
    text = """g (float[2,3] x) => (float[2,3] y) <float[3] w = {1.0, 2.0, 3.0}> {
        r = RandomNormalLike(x) s = Mul(r, w) y = Add(x, s)
    }"""
    graph, draws = expose_draws(read(parse(text), free=["w"]))
    assert graph.input_names == ("x", "w", "r") and len(draws) == 1
    x, w, r = (np.full(shape, value, np.float32) for shape, value in (((2, 3), 1.0), ((3,), 5.0), ((2, 3), 2.0)))
    np.testing.assert_array_equal(graph(x, w, r), x + r * w)
