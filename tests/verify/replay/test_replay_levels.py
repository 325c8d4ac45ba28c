"""Which graph optimisations of ONNX Runtime a finding shows with, and what users see of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ranum_falsify.verify.replay.replayer import Replay, Replayer
from tests.verify.replay.replay_kit import model, replay

F16, F32 = np.float16, np.float32
node = helper.make_node


def f32(*values: float) -> np.ndarray:
    return np.array(values, F32)


def shown(result: Replay) -> list[tuple[str, str, str, str | None]]:
    """Node, kind, reach and optimisations of each finding."""
    return [(f.node, f.kind, f.reach, f.optimisations) for f in result.findings]


def scaled_product(*more: onnx.NodeProto) -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    """`(1e25 x) (1e25 x)`, of which the optimiser makes one product with the factor 1e50, which is infinite."""
    nodes = [
        node("Mul", ["x", "c"], ["left"], name="left"),
        node("Mul", ["x", "c"], ["right"], name="right"),
        node("MatMul", ["left", "right"], ["y"], name="product"),
    ]
    return [*nodes, *more], {"c": F32(1e25)}


def test_an_overflow_of_constants_that_fusion_merges_shows_at_the_default_level_alone() -> None:
    nodes, constants = scaled_product()
    result = replay(nodes, {"x": np.zeros((2, 2), F32)}, ["y"], constants)
    assert shown(result) == [("product", "nan", "output", "default")]
    (finding,) = result.findings
    assert (finding.op_type, finding.output, finding.fused) == ("MatMul", "y", "FusedMatMul")
    assert finding.operands == {"x": (0, 0)} and (finding.node_index, finding.index) == (2, (0, 0))
    assert np.isnan(result.outputs["y"]).all()


def normalised_convolution(scale: float) -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    """A batch normalisation after weights of 1e25, which the optimiser folds into those weights."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="conv"),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"], name="norm", epsilon=0.0),
    ]
    constants = {"w": np.full((1, 1, 1, 1), 1e25, F32), "s": f32(scale), "b": f32(0), "m": f32(0), "v": f32(1)}
    return nodes, constants


def test_infinite_weights_that_fusion_makes_are_no_mask() -> None:
    nodes, constants = normalised_convolution(1e20)
    for x, kind in ((0.0, "nan"), (1e-10, "inf")):
        result = replay(nodes, {"x": np.full((1, 1, 2, 2), x, F32)}, ["y"], constants)
        assert shown(result) == [("norm", kind, "output", "default")]
        assert result.findings[0].fused == "Conv"


def test_an_overflow_that_fusion_removes_shows_without_optimisations_alone() -> None:
    nodes, constants = normalised_convolution(1e-25)
    result = replay(nodes, {"x": np.full((1, 1, 2, 2), 1e20, F32)}, ["y"], constants)
    assert shown(result) == [("conv", "inf", "masked", "off")]
    np.testing.assert_allclose(result.outputs["y"], 1e20, rtol=1e-3)


def test_what_shows_with_and_without_is_said_to() -> None:
    nodes = [node("Log", ["x"], ["l"], name="log"), node("Mul", ["l", "x"], ["y"])]
    result = replay(nodes, {"x": f32(-1)}, ["y"])
    assert shown(result) == [("log", "nan", "output", "any")]


def test_what_is_masked_with_and_without_stays_masked() -> None:
    nodes = [
        node("Div", ["x", "x"], ["q"], name="div"),
        node("Equal", ["x", "zero"], ["is_zero"]),
        node("Where", ["is_zero", "zero", "q"], ["y"]),
    ]
    result = replay(nodes, {"x": f32(1, 0)}, ["y"], {"zero": F32(0)})
    assert shown(result) == [("div", "nan", "masked", "any")]


def test_what_is_masked_where_fusion_removes_it_shows_without_optimisations_alone() -> None:
    nodes, constants = normalised_convolution(1e-25)
    nodes += [node("ArgMax", ["y"], ["best"], axis=-1)]
    result = replay(nodes, {"x": np.full((1, 1, 2, 2), 1e20, F32)}, ["best"], constants)
    assert shown(result) == [("conv", "inf", "masked", "off")]


def test_each_finding_is_compared_by_itself() -> None:
    nodes, constants = scaled_product(node("Log", ["z"], ["l"], name="log"))
    result = replay(nodes, {"x": np.zeros((2, 2), F32), "z": f32(-1)}, ["y", "l"], constants)
    assert sorted(shown(result)) == [("log", "nan", "output", "any"), ("product", "nan", "output", "default")]


def test_an_operator_after_a_fused_one_is_blamed_for_its_own_failure() -> None:
    # The factor 1e-50 is 0, whose logarithm is not finite.
    nodes, _ = scaled_product(node("Log", ["y"], ["l"], name="log"))
    x = np.full((1, 1), 1e10, F32)
    result = replay(nodes, {"x": x}, ["l"], {"c": F32(1e-25)})
    assert shown(result) == [("log", "inf", "output", "default")]
    assert result.findings[0].fused == ""


def test_a_constant_mask_is_no_finding_at_either_level() -> None:
    nodes = [node("Where", ["keep", "zero", "low"], ["mask"]), node("Add", ["x", "mask"], ["y"])]
    constants = {"keep": np.array([True, False]), "zero": F32(0), "low": F32(-np.inf)}
    result = replay(nodes, {"x": f32(1, 2)}, ["y"], constants)
    assert result.findings == () and np.isneginf(result.outputs["y"][1])


def test_a_random_model_is_not_compared() -> None:
    nodes = [
        node("RandomNormalLike", ["x"], ["r"]),
        node("Abs", ["r"], ["positive"]),
        node("Neg", ["positive"], ["negative"]),
        node("Sqrt", ["negative"], ["y"], name="sqrt"),
    ]
    result = replay(nodes, {"x": f32(1, 2)}, ["y"])
    assert shown(result) == [("sqrt", "nan", "output", None)]


def test_outputs_are_those_of_the_default_level() -> None:
    nodes, constants = scaled_product()
    feeds = {"x": np.zeros((2, 2), F32)}
    with Replayer(model(nodes, feeds, ["y"], constants)) as replayer:
        assert np.isnan(replayer.outputs(feeds)["y"]).all()
        assert (replayer.run_plain(feeds)["y"] == 0).all()
        result = replayer.run(feeds)
        assert replayer._child is not None
        folder = replayer._child.folder
    assert shown(result) == [("product", "nan", "output", "default")]
    assert not list(folder.glob("*"))


def test_a_model_with_external_data_leaves_nothing_beside_its_file(tmp_path: Path) -> None:
    nodes, constants = normalised_convolution(1e20)
    nodes[0].input[1] = "large"
    constants["large"] = np.full((1, 1000, 1, 1), 1e25, F32)
    feeds = {"x": np.zeros((1, 1000, 2, 2), F32)}
    path = tmp_path / "model.onnx"
    onnx.save_model(model(nodes, feeds, ["y"], constants), path, save_as_external_data=True, location="weights.bin")
    with Replayer(path) as replayer:
        result = replayer.run(feeds)
    assert shown(result) == [("norm", "nan", "output", "default")]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "weights.bin"]


@pytest.mark.parametrize("x", [0, 3])
def test_integer_division_stops_both_runs(x: int) -> None:
    nodes = [node("Div", ["two", "x"], ["y"], name="div")]
    result = replay(nodes, {"x": np.array([x])}, ["y"], {"two": np.array([2])})
    assert shown(result) == ([("div", "error", "output", "any")] if x == 0 else [])


def test_a_cast_that_the_optimiser_drops_shows_without_optimisations_alone() -> None:
    nodes = [
        node("Cast", ["x"], ["h"], name="down", to=TensorProto.FLOAT16),
        node("Relu", ["h"], ["r"]),
        node("Cast", ["r"], ["y"], to=TensorProto.FLOAT),
    ]
    result = replay(nodes, {"x": f32(70000)}, ["y"])
    assert [(f.node, f.kind, f.optimisations) for f in result.findings] == [("down", "inf", "off")]


def test_the_failure_of_a_constant_is_one_with_all_optimisations() -> None:
    nodes = [
        node("Div", ["zero", "zero"], ["q"], name="div"),
        node("Add", ["x", "q"], ["s"]),
        node("ArgMax", ["s"], ["y"], axis=0),
    ]
    result = replay(nodes, {"x": f32(1, 2)}, ["y"], {"zero": f32(0, 0)})
    assert shown(result) == [("div", "nan", "masked", "any")]
