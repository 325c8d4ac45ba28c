"""Products with rows of shares are weighted means, of any number of terms."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from ranum_falsify.domain.analysis import IntervalAnalysis
from ranum_falsify.domain.interval import Interval
from ranum_falsify.network import read
from ranum_falsify.selfcheck.running import Array

KEYS = 64
SHARES = {
    "softmax": "p = Softmax<axis = -1>(x) y = MatMul(p, v)",
    "without NaN": "s = Softmax(x) n = IsNaN(s) p = Where(n, o, s) y = MatMul(p, v)",
    "masked": "s = Softmax(x) n = Greater(x, o) p = Where(n, s, o) y = MatMul(p, v)",
    "dropped": "s = Softmax(x) m = Sigmoid(x) p = Mul(m, s) y = MatMul(p, v)",
    "twice": "s = Softmax(x) m = Sigmoid(x) t = Mul(s, m) n = IsNaN(t) p = Where(n, o, t) y = MatMul(p, v)",
    "turned": "p = Softmax(x) t = Transpose<perm = [0, 2, 1]>(v) y = com.microsoft.FusedMatMul<transB = 1>(p, t)",
    "scaled": "p = Softmax(x) y = com.microsoft.FusedMatMul<alpha = 3.0>(p, v)",
}
NONE = {
    "columns": "p = Softmax<axis = 1>(x) y = MatMul(p, v)",
    "filled": "s = Softmax(x) n = Greater(x, o) p = Where(n, s, l) y = MatMul(p, v)",
    "grown": "s = Softmax(x) m = Exp(x) p = Mul(m, s) y = MatMul(p, v)",
    "second": "s = Softmax(x) t = Transpose<perm = [0, 2, 1]>(s) y = MatMul(t, v)",
    "turned first": "p = Softmax(x) y = com.microsoft.FusedMatMul<transA = 1>(p, v)",
}


LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)


def load(model: onnx.ModelProto, level: ort.GraphOptimizationLevel) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def make(body: str) -> onnx.ModelProto:
    return parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g '
        f"(float[2, {KEYS}, {KEYS}] x, float[2, {KEYS}, 3] v) => (float[2, {KEYS}, 3] y) "
        f"<float o = {{0}}, float l = {{1}}> {{ {body} }}"
    )


def bound(model: onnx.ModelProto, logits: tuple[Array, Array], values: tuple[Array, Array]) -> tuple[Array, Array]:
    boxes = [Interval.box(*logits), Interval.box(*values)]
    (y,) = IntervalAnalysis(read(model), runtimes=("onnxruntime",)).run(boxes)
    assert y is not None
    low, high = (np.broadcast_to(end.numpy(), y.shape) for end in (y.lower, y.upper))
    return low, high


@pytest.mark.parametrize("name", SHARES)
def test_what_onnx_runtime_computes_lies_within(name: str) -> None:
    rng, model = np.random.default_rng(3), make(SHARES[name])
    factor = 3 if name == "scaled" else 1
    sessions = [load(model, level) for level in LEVELS]
    for scale in (0.0, 1e-3, 1.0, 30.0, 1e4):
        x = (rng.normal(0, 1, (2, KEYS, KEYS)) * scale).astype(np.float32)
        v = rng.uniform(-2, 5, (2, KEYS, 3)).astype(np.float32)
        v[0] = 7.123457  # rounding alone leaves the hull of equal numbers
        low, high = bound(model, (x - 1, x + 1), (v, v))
        for session in sessions:
            y = np.asarray(session.run(None, {"x": x, "v": v})[0])
            assert bool(((low <= y) & (y <= high)).all())
        assert high.max() <= factor * 7.2 and low.min() >= -factor * 2.1


@pytest.mark.parametrize("name", NONE)
def test_other_products_are_no_means(name: str) -> None:
    x, v = np.zeros((2, KEYS, KEYS), np.float32), np.ones((2, KEYS, 3), np.float32)
    _, high = bound(make(NONE[name]), (x - 1, x + 1), (v, v))
    assert high.max() > 2
