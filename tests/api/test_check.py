"""`check`: models without a property file."""

from pathlib import Path

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
        ({"x": (0, 1)}, "no range for input 'y'"),
        ((1, 0), "input 'x': lower bound 1 is above upper bound 0"),
        ((0, np.array([1.0, -1.0, 1.0])), "above upper bound -1 at [1]"),
        ((0, float("nan")), "NaN is no bound"),
        ((0, float("inf")), "an infinity is no bound"),
        ((0, [1.0, 2.0]), "is float32 [3], the bound has shape [2]"),
        ((0, "one"), "is no number"),
        ((0, 1, 2), "got 3 values"),
    ],
)
def test_a_box_that_does_not_fit_is_said_in_one_line(box: rf.BoxLike, said: str) -> None:
    with pytest.raises(rf.UsageError) as caught:
        rf.check(LOGARITHM, box=box)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(TypeError, match="'nstarts'; did you mean 'n_starts'"):
        rf.check(LOGARITHM, box=(0, 1), nstarts=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("file", ["softmax_regression.onnx", "vae.onnx"])
def test_the_text_of_the_property_means_the_same(file: str) -> None:
    result = rf.check(NETWORKS / file, box=(0, 1), only=["Log"], gradient=True)
    assert result.property_text is not None
    model = rf.load_model(NETWORKS / file)
    again = rf.falsify(model, rf.load_property(result.property_text), runtime="onnxruntime")
    one, other = result.loaded.problem, again.loaded.problem
    assert [v.name for v in one.inputs] == [v.name for v in other.inputs]
    for mine, theirs in zip(one.inputs, other.inputs, strict=True):
        assert np.array_equal(mine.lower, theirs.lower) and np.array_equal(mine.upper, theirs.upper)
    assert [(o.node, o.verdict) for o in result.operators] == [(o.node, o.verdict) for o in again.operators]
