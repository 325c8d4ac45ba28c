"""Guards, rewrites and clips: as gentle as the proof allows, and what ONNX Runtime makes of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import ranum_falsify as rf
from ranum_falsify.network import registry

HEAD = """
from dnnv.properties import *
from ranum_falsify.properties import *

N = Network("N")
"""
BOX = "Forall(x, Implies(And({low} <= x, x <= {high}), no_invalid_input(N(x), gradient={gradient})))\n"
TINY = float(np.finfo(np.float32).tiny)


def model_of(text: str, opset: int = 17) -> onnx.ModelProto:
    """Return a model in ONNX's text syntax."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')


def over(low: float, high: float, *, gradient: bool = False) -> str:
    """Return the property of a box."""
    return HEAD + BOX.format(low=low, high=high, gradient=gradient)


def fix(model: onnx.ModelProto, prop: str, **options: Any) -> list[rf.Repair]:
    """Return repairs, quickly."""
    quick: dict[str, Any] = {"samples": 12, "n_starts": 4, "timeout": 30.0, "self_check": False}
    repairs: list[rf.Repair] = rf.fix(model, prop, **(quick | options))
    return repairs


def run(model: onnx.ModelProto, *arrays: np.ndarray, optimised: bool = True) -> Sequence[np.ndarray]:
    """Run a model on ONNX Runtime."""
    options = ort.SessionOptions()
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = dict(zip((value.name for value in session.get_inputs()), arrays, strict=True))
    found: Sequence[np.ndarray] = session.run(None, feeds)
    return found


def holds(model: onnx.ModelProto, prop: str) -> bool:
    """Tell whether the prover, asked anew, proves the property."""
    return rf.prove(model, prop, self_check=False).verdict == "holds"


def attributes(repairs: Sequence[rf.Repair]) -> list[tuple[tuple[str, ...], str]]:
    """Return kinds and standing of each."""
    return [(repair.kinds, repair.standing) for repair in repairs]


LOG = model_of("g (float[4] x) => (float[4] y) { [square] s = Mul(x, x) [log] y = Log(s) }")


def test_a_logarithm_gets_the_least_limit_that_is_normal() -> None:
    """A limit that is 0 on processors that flush would not do; a larger one would change valid outputs."""
    prop = over(-1, 1)
    repairs = fix(LOG, prop, by="guard")
    assert attributes(repairs) == [(("guard",), "proved")] * 2
    adding, limiting = repairs
    assert (adding.keeps_gradient, limiting.keeps_gradient) == (True, False)
    (change,) = limiting.changes
    assert (change.node, change.tensor, change.kept) == ("log", "s", (1.0, 1.0))
    assert change.text == f"Max(s, {TINY:.9g})"
    for repair in repairs:
        assert holds(repair.model, prop)
        x = np.array([0, 1e-30, 0.5, -1], np.float32)
        assert np.isfinite(run(repair.model, x)[0]).all()
        assert np.array_equal(run(repair.model, x)[0][2:], run(LOG, x)[0][2:])
        assert repair.outputs is not None and repair.outputs.away == 0
        assert repair.operations == 4


@pytest.mark.slow
def test_the_limit_of_a_divisor_is_as_small_as_the_quotient_allows() -> None:
    model = model_of("g (float[3] x) => (float[3] y) <float c = {1e30}> { [size] a = Abs(x) [div] y = Div(c, a) }")
    prop = over(-1, 1)
    changes = [change for repair in fix(model, prop, by="guard") for change in repair.changes]
    (change,) = [change for change in changes if change.text.startswith("Max")]
    least = 1e30 / float(np.finfo(np.float32).max)
    limit = float(change.text.split(",")[1].rstrip(")"))
    assert least <= limit < 1.5 * least


def test_a_divisor_of_either_sign_keeps_its_sign() -> None:
    model = model_of("g (float[5] x) => (float[5] y) <float c = {1}> { [div] y = Div(c, x) }")
    prop = over(-1, 1)
    (repair,) = fix(model, prop, by="guard")
    assert repair.standing == "proved" and holds(repair.model, prop)
    x = np.array([-0.5, 0.25, -1e-38, 0, 1e-10], np.float32)
    y = run(repair.model, x)[0]
    assert np.isfinite(y).all() and y[2] < 0
    assert np.array_equal(y[[0, 1, 4]], run(model, x)[0][[0, 1, 4]])
    assert "torch.where" in repair.changes[0].torch and "tf.where" in repair.changes[0].tensorflow


SUM = model_of(
    "g (float[1, 8] x) => (float[1, 1] y) <int64[1] axes = {1}> { [exp] e = Exp(x) [sum] y = ReduceSum(e, axes) }"
)


@pytest.mark.slow
def test_a_sum_of_exponentials_is_kept_finite_before_they_grow() -> None:
    prop = over(-100, 200)
    repair = fix(SUM, prop, by="guard")[-1]
    (change,) = repair.changes
    high = float(change.text.split(",")[1].rstrip(")"))
    assert repair.standing == "proved" and change.node == "exp" and 86.5 < high < 88.73 - np.log(8)
    assert np.isfinite(run(repair.model, np.full((1, 8), 200, np.float32))[0]).all()


@pytest.mark.slow
def test_a_sum_that_was_finite_stays_what_it_was() -> None:
    """A limit of the terms would change sums of one large term and small ones, which are finite."""
    prop = over(-100, 200)
    repair = fix(SUM, prop, by="guard")[0]
    assert repair.standing == "proved" and holds(repair.model, prop)
    assert [change.node for change in repair.changes] == ["exp", "sum"] and repair.kept == {"x": 1.0, "e": 1.0}
    assert repair.model.graph.output[0] == SUM.graph.output[0]
    large = np.full((1, 8), -100, np.float32)
    large[0, 3] = 88.7
    for x in (large, np.linspace(-5, 5, 8, dtype=np.float32)[None]):
        for optimised in (True, False):
            assert run(repair.model, x, optimised=optimised) == run(SUM, x, optimised=optimised)
    assert np.isfinite(run(repair.model, np.full((1, 8), 200, np.float32))[0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float16", "double"])
@pytest.mark.parametrize("node", ["ReduceMean <axes = [1]> (x)", "ReduceSum <keepdims = 0> (x, axes)"])
def test_sums_are_scaled_in_their_own_type(kind: str, node: str) -> None:
    text = f"g ({kind}[2, 5] x) => ({kind}[n] y) <int64[1] axes = {{1}}> {{ [sum] s = {node} y = Sqrt(s) }}"
    model = model_of(text.replace("[n]", "[2, 1]" if "axes =" in node else "[2]"))
    most = float(np.finfo("float16" if kind == "float16" else "float64").max)
    prop = over(0, most)
    repairs = fix(model, prop, by="guard", samples=0)
    (scaled,) = [repair for repair in repairs if "/ " in repair.changes[0].text]
    assert scaled.standing == "proved" and holds(scaled.model, prop)
    x = np.full((2, 5), most, "float16" if kind == "float16" else "float64")
    x[1] = [0, 1, 2, 3, most / 8]
    (y,), (before,) = run(scaled.model, x, optimised=False), run(model, x, optimised=False)
    assert np.isfinite(y).all() and np.array_equal(y.reshape(-1)[1], before.reshape(-1)[1])


def test_rows_that_are_masked_out_keep_their_elements() -> None:
    model = model_of(
        """g (float[2, 3] x) => (float[2, 3] y) <float no = {-inf}, float zero = {0}> {
            dark = Less(x, zero) masked = Where(dark, no, x) [softmax] y = Softmax(masked)
        }"""
    )
    prop = over(-1, 1)
    (repair,) = fix(model, prop)
    assert attributes([repair]) == [(("guard",), "proved")]
    x = np.array([[-1, -1, -1], [-1, 0.5, 0.25]], np.float32)
    y, before = run(repair.model, x)[0], run(model, x)[0]
    assert np.allclose(y[0], 1 / 3) and np.isnan(before[0]).all()
    assert np.array_equal(y[1], before[1])


@pytest.mark.parametrize(("kind", "tiny"), [("float16", 2.0**-14), ("double", float(np.finfo(np.float64).tiny))])
def test_limits_are_those_of_the_operand(kind: str, tiny: float) -> None:
    model = model_of(f"g ({kind}[2] x) => ({kind}[2] y) {{ r = Relu(x) [log] y = Log(r) }}")
    repairs = fix(model, over(-1, 1), by="guard", samples=0)
    assert f"Max(r, {tiny:.9g})" in [repair.changes[0].text for repair in repairs]
    assert all(repair.standing == "proved" for repair in repairs)


def test_a_whole_divisor_is_not_zero() -> None:
    model = model_of("g (int64[3] x) => (int64[3] y) <int64 c = {7}> { [div] y = Div(c, x) }")
    (repair,) = fix(model, over(-3, 3), by="guard")
    assert repair.standing == "proved"
    assert run(repair.model, np.array([0, -3, 2]))[0].tolist() == [7, -2, 3]


def test_free_weights_are_no_constants_of_a_rewrite() -> None:
    """What is added to the exponential ranges with the property; a pass must not compute with its value in the file."""
    model = model_of("g (float[2] x) => (float[2] y) <float c = {1}> { e = Exp(x) s = Add(c, e) [log] y = Log(s) }")
    prop = HEAD + (
        "Forall(x, Forall(c, Implies(And(-200 <= x, x <= 200, 0 <= c, c <= 2), "
        "no_invalid_input(free(N, 'c')(x, c)))))\n"
    )
    for repair in fix(model, prop):
        assert repair.standing == "proved"
        (c,) = [tensor for tensor in repair.model.graph.initializer if tensor.name == "c"]
        c.CopyFrom(onnx.numpy_helper.from_array(np.array(2, np.float32), "c"))
        y = run(repair.model, np.array([0, 1], np.float32))[0]
        assert np.allclose(y, np.log(2 + np.exp([0, 1])), rtol=1e-6)


@pytest.mark.slow
def test_derivatives_are_kept_finite_where_the_property_asks() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { r = Relu(x) [root] y = Sqrt(r) }")
    with pytest.raises(rf.UsageError, match="nothing to repair"):
        fix(model, over(-1, 1))
    repairs = fix(model, over(-1, 1, gradient=True))
    assert repairs[0].standing == "proved" and repairs[0].keeps_gradient
    assert repairs[0].changes[0].text == f"r + {TINY:.9g}"


SOFTMAX = model_of("g (float[1, 3] x) => (float[1, 3] y) { [softmax] p = Softmax(x) [log] y = Log(p) }")


def test_the_same_function_in_stable_operators_comes_first() -> None:
    repairs = fix(SOFTMAX, over(-500, 500))
    assert attributes(repairs)[0] == (("rewrite",), "proved") and {r.kinds for r in repairs[1:]} == {("guard",)}
    best = repairs[0]
    assert [node.op_type for node in best.model.graph.node] == ["LogSoftmax"]
    (change,) = best.changes
    assert (change.text, change.node, change.torch) == ("stable_log_softmax", "softmax, log", "log_softmax")
    assert best.keeps_gradient and best.outputs is not None and best.outputs.relative < 1e-5
    assert [line.split()[0] for line in best.diff.removed] == ["Softmax", "Log"]


WEIGHTED = model_of(
    "g (float[1, 2] x) => (float[1, 2] y) <float[2, 2] w = {1, 0, 0, 1}> { p = MatMul(x, w) [log] y = Log(p) }"
)
FREE = HEAD + (
    "Forall(x, Forall(w, Implies(And(0.1 <= x, x <= 1, -2 <= w, w <= 2), no_invalid_input(free(N, 'w')(x, w)))))\n"
)


@pytest.mark.few(1)
@pytest.mark.parametrize(("at", "places"), [("weight", {"weight"}), ("operand", {"operand"}), ("any", None)])
def test_clips_go_where_they_are_asked_for(at: str, places: set[str] | None) -> None:
    repairs = fix(WEIGHTED, FREE, by="clip", at=at)
    assert repairs and all(repair.standing == "proved" and repair.kinds == ("clip",) for repair in repairs)
    assert all(holds(repair.model, FREE) for repair in repairs)
    if places is not None:
        assert {change.place for repair in repairs for change in repair.changes} == places
    assert all(0 < share <= 1 for repair in repairs for share in repair.kept.values())


def test_only_what_is_asked_for_is_repaired() -> None:
    model = model_of("g (float[2] x) => (float[2] y, float[2] z) { [one] y = Log(x) [two] z = Sqrt(x) }")
    prop = over(-1, 1)
    repair = fix(model, prop, nodes=["two"])[0]
    assert [change.node for change in repair.changes] == ["two"]
    assert (repair.repaired, repair.left) == (("two",), ("one",))
    y, z = run(repair.model, np.array([-1, 1], np.float32))
    assert np.isnan(y[0]) and np.isfinite(z).all()


@pytest.mark.slow
def test_what_the_prover_does_not_prove_is_not_called_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is proved of an operator without a row; the repair of the other one is only not falsified."""
    monkeypatch.delitem(registry._ROWS, ("com.microsoft", "TransposeMatMul"))
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[2, 2] x) => (float[2, 2] y, float[2, 2] z) {
            y = com.microsoft.TransposeMatMul <transB = 1> (x, x) r = Relu(x) [log] z = Log(r)
        }"""
    )
    repairs = fix(model, over(-1, 1), by="guard")
    assert repairs
    for repair in repairs:
        assert (repair.standing, repair.runtimes, "log" in repair.left) == ("not falsified", (), False)


def metadata(model: onnx.ModelProto) -> Mapping[str, object]:
    """Return what a repair must not change."""
    graph = model.graph
    return {
        "inputs": [(v.name, v.type) for v in graph.input],
        "outputs": [(v.name, v.type) for v in graph.output],
        "initializers": {t.name for t in graph.initializer if "/limit" not in t.name},
        "opset": [(o.domain, o.version) for o in model.opset_import],
        "ir_version": model.ir_version,
        "properties": [(p.key, p.value) for p in model.metadata_props],
        "producer": model.producer_name,
    }


@pytest.mark.few(1)
@pytest.mark.parametrize("by", ["rewrite", "guard", "clip"])
def test_names_shapes_metadata_and_opset_stay(by: str) -> None:
    model = model_of(
        """g (float[b, 3] x) => (float[b, 3] y) <float[3] c = {1, 2, 3}> {
            [softmax] p = Softmax(x) l = Log(p) y = Mul(l, c)
        }"""
    )
    model.metadata_props.add(key="author", value="someone")
    model.producer_name = "a framework"
    prop = over(-500, 500)
    repairs = fix(model, prop, by=by)
    assert repairs and repairs[0].standing == "proved"
    for repair in repairs:
        assert metadata(repair.model) == metadata(model)
        onnx.checker.check_model(repair.model, full_check=True)


@pytest.mark.few(1)
@pytest.mark.parametrize(("opset", "version"), [(7, 3), (9, 3), (10, 8), (12, 8), (18, 8), (22, 10)])
def test_guards_are_written_as_the_opset_and_the_representation_have_them(opset: int, version: int) -> None:
    """Up to version 3 of the representation, initializers must be inputs, which a repair does not add."""
    model = model_of(
        "g (float[3] x) => (float[3] y, float[3] z) { s = Abs(x) [log] y = Log(s) [div] z = Div(s, x) }", opset
    )
    model.ir_version = version
    prop = over(-1, 1)
    repairs = fix(model, prop, by="guard,clip".split(","), samples=4)
    assert repairs and all(repair.standing == "proved" for repair in repairs)
    for repair in repairs:
        onnx.checker.check_model(repair.model, full_check=True)
        assert repair.model.graph.input == model.graph.input
        for optimised in (True, False):
            found = run(repair.model, np.array([0, -1, 1], np.float32), optimised=optimised)
            assert all(np.isfinite(y).all() for y in found)
