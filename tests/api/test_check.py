"""`check`: models without a property file."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ranum_falsify as rf

NETWORKS = Path(__file__).resolve().parents[2] / "networks"
LOGARITHM = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 20]> f (float[3] x, float[3] y) => (float[3] z) {'
    " [add] s = Add(x, y) [log] z = Log(s) }"
)


def test_a_violation_comes_with_an_input_that_violates() -> None:
    result = rf.check(LOGARITHM, box=(-1, 1))
    log = result.operators[-1]
    assert (result.verdict, log.verdict, log.condition) == ("violated", "violated", "x > 0")
    assert log.counterexample is not None
    assert (log.counterexample["x"] + log.counterexample["y"] <= 0).any()


def test_a_safe_box_holds_for_onnx_runtime() -> None:
    result = rf.check(LOGARITHM, box={"x": (1, 2), "y": (0, np.array([1.0, 2.0, 3.0]))})
    assert (result.verdict, result.runtimes) == ("holds", ("onnxruntime",))
    assert result.operators[1].bounds["x"][1] == pytest.approx(5)


@pytest.mark.parametrize(
    ("box", "said"),
    [
        ({"z": (0, 1)}, "no input 'z'; it has x (float32 [3]), y (float32 [3])"),
        ((1, 0), "input 'x': lower bound 1 is above upper bound 0"),
        ((0, np.array([1.0, -1.0, 1.0])), "above upper bound -1 at [1]"),
        ((0, float("nan")), "NaN cannot be a bound"),
        ((0, float("inf")), "an infinity cannot be a bound"),
        ((0, [1.0, 2.0]), "is float32 [3], the bound has shape [2]"),
        ((0, "one"), "is neither a number nor an array"),
        ((0, 1, 2), "got 3 values"),
    ],
)
def test_a_box_that_does_not_fit_is_said_in_one_line(box: rf.BoxLike, said: str) -> None:
    with pytest.raises(rf.UsageError) as caught:
        rf.check(LOGARITHM, box=box)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(TypeError, match="'nstarts'; did you mean 'n_starts'"):
        rf.check(LOGARITHM, box=(0, 1), nstarts=3)


DEFAULTS = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 20]> '
    "f (float[2] x, float[1,3,16,16] a, float[4] pixel_values, int64[2] ids, int32[3] token_mask, bool[1] flag, "
    "uint8[2] bytes) => (float[2,3] y, float[1,3,16,16] b, float[4] c, int32[3] d, bool[1] e, uint8[2] g, float[2] z) "
    "<float[7,3] table = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20}> {"
    " wide = Cast <to = 6> (ids) rows = Unsqueeze (wide, axis) axis = Constant <value_ints = [0]> ()"
    " found = Gather (table, rows) y = Squeeze (found, axis)"
    " b = Neg(a) c = Neg(pixel_values) d = Neg(token_mask) e = Not(flag) g = Identity(bytes) z = Log(x) }"
)


def test_inputs_that_the_box_leaves_out_have_defaults() -> None:
    result = rf.check(DEFAULTS, box={"x": (1, 2)})
    box = {
        variable.name: (variable.lower.min().item(), variable.upper.max().item())
        for variable in result.loaded.problem.inputs
    }
    assert box == {
        "x": (1, 2),
        "a": (0, 1),
        "pixel_values": (0, 1),
        "ids": (0, 6),
        "token_mask": (0, 1),
        "flag": (0, 1),
        "bytes": (0, 255),
    }
    assert result.verdict == "holds"
    assert result.assumptions.default_inputs == tuple(box)[1:]
    assert "holds for onnxruntime on x86-64 and arm64, with the default box of 6 inputs" in str(result)
    assert any("ids in [0, 6] (indices of a table)" in notice for notice in result.notices)
    assert result.to_json()["assumptions"]["default_inputs"] == [*box][1:]


@pytest.mark.parametrize(
    ("inputs", "body", "says"),
    [
        ("int64[2] n", "y = Neg(n)", "n in [0, 1] (integers, of which nothing is known)"),
        ("int32[2] n", "c = Cast<to = 9>(n) y = Not(c)", "n in [0, 1] (integers, of which nothing is known)"),
        ("int64 rate", "y = Equal(rate, r)", "rate in [16000, 16000] (the number that it is compared with)"),
        ("int64[1] n", "y = Equal(n, classes)", "n in [0, 3] (between numbers that it is compared with)"),
        ("float[7] x, int64[1] x_lengths", "y = Neg(x_lengths)", "x_lengths in [1, 7] (a length)"),
        ("int64[1] timesteps", "y = Neg(timesteps)", "timesteps in [0, 999] (a step of diffusion)"),
        ("float[5, 2] x, int64[2, 3] edges", "e = Gather(edges, o) y = Gather(x, e)", "edges in [0, 4] (indices"),
        ("float[5, 2] x, int64[3, 2] n", "y = GatherND(x, n)", "n in [0, 1] (indices of a table)"),
        ("float[5, 2] x, int64[3, 1] n", "y = GatherND(x, n)", "n in [0, 4] (indices of a table)"),
        ("float[5] x, int64[2, 3] n", "a, b = Split<axis = 0>(n, s) y = Gather(x, b)", "n in [0, 4] (indices of a"),
    ],
)
def test_integers_range_over_what_their_use_tells(inputs: str, body: str, says: str) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> f ({inputs}) => (y) '
        f"<int64 o = {{0}}, int64 r = {{16000}}, int64[4] classes = {{0, 1, 2, 3}}, int64[2] s = {{1, 1}}> {{ {body} }}"
    )
    result = rf.check(model, self_check=False, n_starts=4)
    assert says in result.notices[0] and "with the default box" in str(result).splitlines()[0]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("y = SoftmaxCrossEntropyLoss<ignore_index = -100>(x, n)", "n in [0, 4] (class labels)"),
        ("p = LogSoftmax<axis = 1>(x) y = NegativeLogLikelihoodLoss(p, n)", "n in [0, 4] (class labels)"),
        ("i = Cast<to = 6>(n) y = SoftmaxCrossEntropyLoss(x, i)", "n in [0, 4] (class labels)"),
        (
            "m = Equal(n, a) k = Not(m) w = Where(k, n, o) c = Unsqueeze(w, o) y = GatherElements<axis = 1>(x, c)",
            "n in [0, 4] (indices of a table)",
        ),
        (
            "m = Equal(n, a) k = Cast<to = 7>(m) h = ConstantOfShape(t) r = Gather(h, k) c = Unsqueeze(n, o)"
            " g = GatherElements<axis = 1>(x, c) q = Unsqueeze(r, o) y = Add(g, q)",
            "n in [0, 4] (indices of a table)",
        ),
        ("c = Unsqueeze(n, o) y = ScatterElements<axis = 1>(x, c, u)", "n in [0, 4] (indices of a table)"),
        ("h = ConstantOfShape(s) b = Cast<to = 2>(n) i = Cast<to = 7>(b) y = Gather(h, i)", "n in [0, 299] (indices"),
    ],
)
def test_labels_and_indices_range_over_what_they_choose_from(body: str, says: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> f (float[2,5] x, int64[2] n) => (y) '
        "<int64 a = {-100}, int64 o = {1}, int64[1] s = {300}, int64[1] t = {2}, float[2,1] u = {1, 1}> "
        f"{{ {body} }}"
    )
    result = rf.check(model, self_check=False)
    assert result.verdict == "holds" and says in result.notices[0]


def test_indices_are_numbers_that_the_input_can_hold() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> f (uint8[2] n) => (float[2] y) <int64[1] s = {300}> '
        "{ h = ConstantOfShape(s) i = Cast<to = 7>(n) y = Gather(h, i) }"
    )
    assert "n in [0, 255] (indices of a table)" in rf.check(model, self_check=False).notices[0]


@pytest.mark.slow
def test_a_loss_over_no_targets_does_not_hold() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> f (float[0,5] x, int64[0] n) => (float y) '
        "{ y = NegativeLogLikelihoodLoss(x, n) }"
    )
    assert rf.check(model, self_check=False, n_starts=4).verdict != "holds"


WEIGHTS = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 20]> f (float[2] x) => (float[2] z) '
    "<float[2] w = {4, 0}, float[2] b = {0, 0}, float e = {1}> { p = Mul(x, w) s = Add(p, b) t = Add(s, e) z = Log(t) }"
)


def test_weights_range_over_a_share_of_their_values() -> None:
    result = rf.check(WEIGHTS, box=(0, 0), free="all", weights=0.25)
    bounds = {v.name: (v.lower.tolist(), v.upper.tolist()) for v in result.loaded.problem.inputs[1:]}
    assert bounds == {"w": ([3, -1], [5, 1]), "b": ([-0.25, -0.25], [0.25, 0.25])}
    assert result.verdict == "holds"
    assert "2 initializers range over their values +- 0.25 of each" in result.notices


def test_weights_range_over_a_range() -> None:
    result = rf.check(WEIGHTS, box=(0, 0), free=["b"], weights=(-2, 2))
    assert result.verdict == "violated"
    assert result.counterexample is not None and (result.counterexample["b"] <= -1).any()
    assert result.property_text is not None and "free(N, 'b')" in result.property_text
    assert rf.check(WEIGHTS, box={"x": 0, "b": (0, [1, 2])}, free=["b"], weights=(-2, 2)).verdict == "holds"


@pytest.mark.parametrize(
    ("free", "weights", "said"),
    [
        ("w", 0.1, 'is neither "all" nor a list'),
        (["v"], 0.1, "no initializer is named 'v'; there are b, e, w"),
        ("all", -1, "weights=-1: is not a share"),
        ("all", (1, 0), "weights: 'w': lower bound 1 is above upper bound 0"),
    ],
)
def test_weights_that_cannot_range_are_said_in_one_line(free: Any, weights: Any, said: str) -> None:
    with pytest.raises(rf.UsageError) as caught:
        rf.check(WEIGHTS, free=free, weights=weights)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_property_with_large_arrays_is_not_written_down() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> f (float[200] x) => (float[200] y) { y = Neg(x) }'
    )
    result = rf.check(model, box=(np.zeros(200), np.arange(200)))
    with pytest.raises(rf.UsageError, match="200 numbers bound 'x', too many to write down"):
        _ = result.property_text


@pytest.mark.few(1)
@pytest.mark.parametrize("file", ["softmax_regression.onnx", "vae.onnx"])
def test_the_text_of_the_property_means_the_same(file: str) -> None:
    free = ["logvar_b"] if file == "vae.onnx" else None
    result = rf.check(NETWORKS / file, box=(0, 1), only=["Log"], gradient=True, free=free, n_starts=2, n_steps=5)
    assert result.property_text is not None
    model = rf.load_model(NETWORKS / file)
    again = rf.falsify(model, rf.load_property(result.property_text), runtime="onnxruntime", n_starts=2, n_steps=5)
    one, other = result.loaded.problem, again.loaded.problem
    assert [v.name for v in one.inputs] == [v.name for v in other.inputs]
    for mine, theirs in zip(one.inputs, other.inputs, strict=True):
        assert np.array_equal(mine.lower, theirs.lower) and np.array_equal(mine.upper, theirs.upper)
    assert [(o.node, o.verdict) for o in result.operators] == [(o.node, o.verdict) for o in again.operators]
