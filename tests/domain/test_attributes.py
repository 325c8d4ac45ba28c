"""Attributes that are denormal: a session that replaces such numbers by 0 replaces those, too."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest

import ranum_falsify as rf
from ranum_falsify.verify.replay.replayer import Replayer
from tests.network.building import Array

_HEAD = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1, "ai.onnx.ml" : 3]>'

_LEAF = (
    'nodes_treeids = [0], nodes_nodeids = [0], nodes_featureids = [0], nodes_modes = ["LEAF"], nodes_values = [0.0], '
    "nodes_truenodeids = [0], nodes_falsenodeids = [0], target_treeids = [0], target_nodeids = [0], target_ids = [0], "
    "target_weights = [A], n_targets = 1"
)
_FACTORS = {
    "leaky": "LeakyRelu<alpha = A>(n)",
    "hard": "HardSigmoid<alpha = A, beta = 0.0>(x)",
    "ramp": "Mul(x, hard)",
    "selu": "Selu<alpha = 1.0, gamma = A>(x)",
    "gemm": "Gemm<alpha = A>(x, one)",
    "added": "Gemm<beta = A>(zero, one, x)",
    "fused": 'com.microsoft.FusedGemm<alpha = A, activation = "Relu">(x, one)',
    "activated": 'com.microsoft.FusedGemm<activation = "LeakyRelu", activation_alpha = A>(n, one)',
    "product": "com.microsoft.FusedMatMul<alpha = A>(x, one)",
    "scaler": "ai.onnx.ml.Scaler<offset = [0.0], scale = [A]>(x)",
    "regressor": "ai.onnx.ml.LinearRegressor<coefficients = [A]>(x)",
    "leaf": f"ai.onnx.ml.TreeEnsembleRegressor<{_LEAF}>(x)",
    "forest": "Mul(leaf, x)",
}
_NORMS = """
    plain = LayerNormalization<epsilon = A>(x, one)
    wide = LayerNormalization<epsilon = A>(w, wide_one)
    skip = com.microsoft.SkipLayerNormalization<epsilon = A>(x, x, one)
    embedded, mask = com.microsoft.EmbedLayerNormalization<epsilon = A>(ids, "", one_row, zero_row, "", one, zero)
"""


def verdicts(model: onnx.ModelProto, box: Mapping[str, tuple[float, float]]) -> dict[str, str]:
    """Return what is said of the node that writes each output of a model."""
    names = {node.output[0]: node.name for node in model.graph.node}
    result = rf.check(model, box=dict(box), n_starts=0, self_check=False, try_rewrites=False, prove_timeout=0.1)
    found = {op.node: op.verdict for op in result.operators}
    return {y.name: found[names[y.name]] for y in model.graph.output}


def run_flushed(model: onnx.ModelProto, point: Mapping[str, Array]) -> Mapping[str, Array]:
    with Replayer(model, threads=1, flush=True) as replayer:
        return replayer.run_plain(dict(point))


def parse(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"{_HEAD} {text}")
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def factors(number: str) -> onnx.ModelProto:
    """Return the reciprocals of what is made with a number as an attribute."""
    body = " ".join(f"{name} = {call} y_{name} = Reciprocal({name})" for name, call in _FACTORS.items())
    outputs = ", ".join(f"float[1,1] y_{name}" for name in _FACTORS)
    constants = "<float[1,1] one = {1}, float[1,1] zero = {0}>"
    body = body.replace("= A", f"= {number}").replace("[A]", f"[{number}]")
    return parse(f"g (float[1,1] x) => ({outputs}) {constants} {{ n = Neg(x) {body} }}")


def test_factors_may_be_0() -> None:
    box, point = {"x": (1e33, 3e33)}, {"x": np.full((1, 1), 2e33, np.float32)}
    assert set(verdicts(factors("1e-30"), box).values()) == {"proved"}
    flushed = run_flushed(factors("1e-40"), point)
    assert all(np.isinf(y).all() for y in flushed.values())
    assert "proved" not in verdicts(factors("1e-40"), box).values()


def norms(number: str) -> onnx.ModelProto:
    constants = (
        "<float[2] one = {1, 1}, float[2] zero = {0, 0}, double[2] wide_one = {1, 1}, "
        "float[1,2] one_row = {1, 1}, float[1,2] zero_row = {0, 0}>"
    )
    outputs = "float[1,1,2] plain, double[1,1,2] wide, float[1,1,2] skip, float[1,1,2] embedded"
    body = _NORMS.replace("= A", f"= {number}")
    return parse(f"g (float[1,1,2] x, double[1,1,2] w, int32[1,1] ids) => ({outputs}) {constants} {{ {body} }}")


def test_epsilons_may_be_0() -> None:
    box = {"x": (-1.0, 1.0), "w": (0.0, 1.0), "ids": (0, 0)}
    point: dict[str, Array] = {
        "x": np.zeros((1, 1, 2), np.float32),
        "w": np.ones((1, 1, 2)),
        "ids": np.zeros((1, 1), np.int32),
    }
    assert set(verdicts(norms("1e-5"), box).values()) == {"proved"}
    assert all(np.isnan(y).all() for y in run_flushed(norms("1e-38"), point).values())
    assert "proved" not in verdicts(norms("1e-38"), box).values()


@pytest.mark.parametrize("alpha", ["1e-38", "1.0"])
def test_a_divisor_may_be_0(alpha: str) -> None:
    model = parse(f"g (float[1] x) => (float[1] y) {{ y = Celu<alpha = {alpha}>(x) }}")
    failing = np.isnan(run_flushed(model, {"x": np.zeros(1, np.float32)})["y"]).all()
    assert failing == (alpha != "1.0")
    assert verdicts(model, {"x": (-3.0, 2.0)})["y"] == ("open" if failing else "proved")
