"""Linear bounds go back through a softmax or a normalisation that several nodes compute."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import Interval
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.rows import RowStep
from ranum_falsify.network import read
from tests.network.building import parse

_MEAN, _ROOT = "m = ReduceMean <axes = [-1]> (h) d = Sub(h, m)", "s = Add(v, epsilon) r = Sqrt(s)"
_DEVIATION = f"{_MEAN} q = Pow(d, two) v = ReduceMean <axes = [-1]> (q) {_ROOT}"
_SQUARES = f"q = Mul(h, h) v = ReduceMean <axes = [-1]> (q) {_ROOT}"
_EXPONENTIALS = "m = ReduceMax <axes = [-1]> (h) d = Sub(h, m) e = Exp(d)"

_FORMS = {
    "a standard score": f"{_DEVIATION} z = Div(d, r)",
    "a standard score by a product": f"{_MEAN} q = Mul(d, d) v = ReduceMean <axes = [1]> (q) {_ROOT} i = Reciprocal(r) "
    "z = Mul(d, i)",
    "by the root mean square": f"{_SQUARES} z = Div(h, r)",
    "by its reciprocal": f"{_SQUARES} i = Reciprocal(r) z = Mul(h, i)",
    "by a quotient of one": f"{_SQUARES} i = Div(one, r) z = Mul(i, h)",
    "a softmax": f"{_EXPONENTIALS} t = ReduceSum(e, last) z = Div(e, t)",
}
_OTHERS = {
    "the mean of other rows": f"m = ReduceMean <axes = [0]> (h) d = Sub(h, m) q = Mul(d, d) "
    f"v = ReduceMean <axes = [-1]> (q) {_ROOT} z = Div(h, r)",
    "an epsilon that is added twice": f"{_DEVIATION} o = Add(r, epsilon) z = Div(d, o)",
    "the squares of another tensor": f"g = Neg(h) q = Mul(g, g) v = ReduceMean <axes = [-1]> (q) {_ROOT} z = Div(h, r)",
    "the maximum of other rows": "m = ReduceMax <axes = [0]> (h) d = Sub(h, m) e = Exp(d) t = ReduceSum(e, last) "
    "z = Div(e, t)",
    "a softmax and an epsilon": f"{_EXPONENTIALS} t = ReduceSum(e, last) u = Add(t, epsilon) z = Div(e, u)",
    "a sum of other rows": f"{_EXPONENTIALS} t = ReduceSum(e, first) z = Div(e, t)",
}


def _model(body: str, opset: int = 17) -> onnx.ModelProto:
    weights = ", ".join(f"{x:.3f}" for x in np.random.default_rng(0).normal(size=12))
    return parse(
        f"""g (float[3, 4] x) => (float[3, 1] y)
        <float[4, 3] w = {{{weights}}}, float[3, 1] c = {{1, 2, 0.5}}, float epsilon = {{0.001}}, float two = {{2}},
         float one = {{1}}, float[3] ones = {{1, 1, 1}}, int64[1] last = {{-1}}, int64[1] first = {{0}}>
        {{ h = MatMul(x, w) {body} y = MatMul(z, c) }}""",
        opset=opset,
    )


def _bound(model: onnx.ModelProto, low: np.ndarray, high: np.ndarray) -> tuple[LinearAnalysis, Interval]:
    graph = read(model)
    analysis = LinearAnalysis(graph)
    analysis.run([Interval.box(low, high)])
    return analysis, analysis.tighten(graph.output_operations[0])


def _draw_box(width: float) -> tuple[np.ndarray, np.ndarray]:
    centre = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    return centre - np.float32(width), centre + np.float32(width)


def _check_values(model: onnx.ModelProto, box: tuple[np.ndarray, np.ndarray], bounds: Interval) -> None:
    """Hold what ONNX Runtime computes of points of a box, optimised and not, against bounds."""
    least, greatest = (end.numpy() for end in bounds.doubles())
    random = np.random.default_rng(2)
    for level in (
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        for share in (*random.random((60, 3, 4)), *random.integers(0, 2, (60, 3, 4))):
            x = (box[0] + share * (box[1] - box[0])).astype(np.float32).clip(*box)
            y = session.run(None, {"x": x})[0]
            assert (least <= y).all() and (y <= greatest).all()


def _has_rows(analysis: LinearAnalysis) -> bool:
    return any(isinstance(step, RowStep) for step in analysis.program.steps)


@pytest.mark.parametrize("width", [1e-6, 0.01, 1.0])
@pytest.mark.parametrize("name", _FORMS)
def test_what_several_nodes_compute_is_bounded(name: str, width: float) -> None:
    model, box = _model(_FORMS[name]), _draw_box(width)
    analysis, bounds = _bound(model, *box)
    assert _has_rows(analysis) == (name == "a softmax")
    _check_values(model, box, bounds)


def test_a_softmax_of_several_nodes_is_bounded_as_one_is() -> None:
    box = _draw_box(0.01)
    widths = []
    for body in (_FORMS["a softmax"], "z = Softmax(h)"):
        low, high = _bound(_model(body), *box)[1].doubles()
        widths.append(float((high - low).sum()))
    assert widths[0] == pytest.approx(widths[1], rel=0.05)


@pytest.mark.parametrize("name", _OTHERS)
def test_what_only_looks_like_it_has_no_planes(name: str) -> None:
    model, box = _model(_OTHERS[name]), _draw_box(0.1)
    analysis, bounds = _bound(model, *box)
    assert not _has_rows(analysis)
    _check_values(model, box, bounds)
