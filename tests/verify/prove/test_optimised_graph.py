"""What is proved for ONNX Runtime holds of what it runs at its default level, not only of the model as written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
import pytest

from ranum_falsify.config import ProveConfig, Runtime
from ranum_falsify.network import optimised as optimised_module
from ranum_falsify.network import read
from ranum_falsify.process.child import SharedChild
from ranum_falsify.verify.prove.analyses import execution_of
from ranum_falsify.verify.prove.optimised_graph import ValidWhenOptimised, _Correspondence
from ranum_falsify.verify.prove.proof import Proof
from ranum_falsify.verify.prove.prover import Prover
from tests.network.building import parse
from tests.verify.search.search_kit import in_box, problem, valid_in_box


@dataclass(frozen=True)
class Rewritten:
    """A model that is valid as written, and what ONNX Runtime makes invalid of it.

    Attributes:
        name: What its optimiser does.
        text: The graph.
        bounds: Of each input.
        point: The value of all elements of each input at which the output is not finite.
        open: Nodes that are open for that reason.
        opset: Opset of the model.
    """

    name: str
    text: str
    bounds: tuple[tuple[float, float], ...]
    point: tuple[float, ...]
    open: frozenset[str]
    opset: int = 17


CASES = [
    Rewritten(
        "weights times scale overflow",
        "g (float[1,1,1,1] x) => (float[1,1,1,1] y) <float[1,1,1,1] w = {1e20},"
        " float[1] s = {1e10}, float[1] b = {0}, float[1] m = {0}, float[1] v = {1e-20}>"
        "{ c = Conv(x, w) y = BatchNormalization<epsilon = 1e-30>(c, s, b, m, v) }",
        ((0.0, 1e-10),),
        (0.0,),
        frozenset({"Conv_c", "BatchNormalization_y"}),
    ),
    Rewritten(
        "weights times factor vanish",
        "g (float[1,1,1,1] x) => (float[1,1,1,1] y) <float[1,1,1,1] w = {1e-20}, float[1,1,1] k = {1e-26}>"
        "{ c = Conv(x, w) e = Mul(c, k) y = Log(e) }",
        ((1e25, 2e25),),
        (1e25,),
        frozenset({"Log_y"}),
    ),
    Rewritten(
        "matrix times scale overflows",
        "g (float[1,1] x) => (float[1,1] y) <float[1,1] w = {1e20},"
        " float[1] s = {1e10}, float[1] b = {0}, float[1] m = {0}, float[1] v = {1e-20}>"
        "{ c = MatMul(x, w) y = BatchNormalization<epsilon = 1e-30>(c, s, b, m, v) }",
        ((0.0, 1e-10),),
        (0.0,),
        frozenset({"MatMul_c", "BatchNormalization_y"}),
    ),
    Rewritten(
        "factors around a product merge and overflow",
        "g (float[1,1] x, float[1,1] z) => (float[1,1] y) <float k = {1e20}>"
        "{ a = Mul(x, k) b = MatMul(a, z) y = Mul(b, k) }",
        ((0.0, 1e-20), (0.0, 1e-20)),
        (0.0, 0.0),
        frozenset({"Mul_a", "MatMul_b", "Mul_y"}),
    ),
    Rewritten(
        "factors around a product merge and vanish",
        "g (float[1,1] x, float[1,1] z) => (float[1,1] y) <float k = {1e-23}>"
        "{ a = Mul(x, k) b = MatMul(a, z) c = Mul(b, k) y = Log(c) }",
        ((1e23, 2e23), (1.0, 2.0)),
        (1e23, 1.0),
        frozenset({"Log_y"}),
    ),
    Rewritten(
        "half precision that is not rounded to",
        "g (float[1] x) => (float[1] y) <float k = {1.0006}>"
        "{ a = Cast<to = 10>(x) b = Relu(a) c = Cast<to = 1>(b) e = Sub(c, k) y = Log(e) }",
        ((1.0005, 1.0009),),
        (1.00055,),
        frozenset({"Log_y"}),
    ),
    Rewritten(
        "a root of squares with another epsilon",
        "g (double[1,4] x) => (double[1,4] y) <double two = {2}, double eps = {1e-12}, double[4] g = {1,1,1,1},"
        " double half = {0.5}> { p = Pow(x, two) m = ReduceMean<axes = [1], keepdims = 1>(p) v = Add(m, eps)"
        " s = Sqrt(v) n = Div(x, s) o = Mul(n, g) q = Sub(o, half) y = Log(q) }",
        ((1e-4, 1.1e-4),),
        (1e-4,),
        frozenset({"Log_y"}),
    ),
    Rewritten(
        "padding that a maximum leaves out",
        "g (float[1,1,1,1] x) => (float[1,1,2,2] y) <int64[8] p = {0,0,1,1,0,0,1,1}, float v = {0}, float k = {0.5}>"
        "{ a = Pad(x, p, v) m = MaxPool<kernel_shape = [2, 2]>(a) s = Add(m, k) y = Log(s) }",
        ((-2.0, -1.0),),
        (-1.5,),
        frozenset({"Log_y"}),
    ),
    Rewritten(
        "constants that are nearly those of Gelu",
        "g (float[4] x) => (float[4] y) <float c = {1.41421}, float one = {1}, float h = {0.5}, float k = {1.286941}>"
        "{ a = Div(x, c) e = Erf(a) g = Add(e, one) p = Mul(x, g) z = Mul(p, h) q = Sub(z, k) y = Sqrt(q) }",
        ((1.4, 1.4),),
        (1.4,),
        frozenset({"Sqrt_y"}),
    ),
    Rewritten(
        "two pairs of quantisers in one",
        "g (float[1] x) => (float[1] y) <float s1 = {0.003921569}, int8 z1 = {10}, float s2 = {0.1}, int8 z2 = {0},"
        " float k = {0.48}> { a = QuantizeLinear(x, s1, z1) b = DequantizeLinear(a, s1, z1)"
        " c = QuantizeLinear(b, s2, z2) d = DequantizeLinear(c, s2, z2) e = Sub(d, k) y = Log(e) }",
        ((1.0, 2.0),),
        (1.5,),
        frozenset({"Log_y"}),
    ),
    Rewritten(
        "a summand that is taken for 0 because single precision has no such number",
        "g (double[2] x) => (double[2] y) <double e = {1e-60}> { a = Abs(x) s = Add(a, e) y = Log(s) }",
        ((0.0, 1.0),),
        (0.0,),
        frozenset({"Log_y"}),
    ),
    Rewritten(
        "limits that are taken for those of the quantiser behind them",
        "g (float[2] x) => (float[2] y) <float one = {1e-21}, float low = {5e-21}, float high = {1e-18},"
        " float s = {2e-22}, int8 z = {81}> { a = Add(x, one) c = Clip(a, low, high) q = QuantizeLinear(c, s, z)"
        " d = DequantizeLinear(q, s, z) y = Log(d) }",
        ((-1.0, 1.0),),
        (-0.5,),
        frozenset({"Log_y"}),
    ),
    Rewritten(
        "a transpose that is ignored beside a vector",
        # Nothing fails at the ends of the box and in its centre, where w is 0.
        "g (float[3,2] x) => (float[2] y) <float one = {1}, float[3,2] s = {0, -10, 0, 0, 0, 0},"
        " float[3,2] c = {1, 0, 1, 0, 0, 20}, float[3] v = {1, 1, 1}> { q = Mul(x, x) r = Sub(one, q) w = Mul(x, r)"
        " p = Mul(w, s) a = Add(p, c) t = Transpose<perm = [1, 0]>(a) m = MatMul(t, v) y = Log(m) }",
        ((-1.0, 1.0),),
        (0.5,),
        frozenset({"Log_y"}),
    ),
]


def proof_of(case: Rewritten, *runtimes: Runtime) -> Proof:
    problem = valid_in_box(read(parse(case.text, case.opset)), case.bounds)
    return Prover(problem, ProveConfig(runtime=runtimes)).analyse()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_fails_as_run_is_not_proved(case: Rewritten) -> None:
    model = parse(case.text, case.opset)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = zip(session.get_inputs(), case.point, strict=True)
    dtypes = {"tensor(float)": np.float32, "tensor(double)": np.float64}
    (output,) = session.run(None, {x.name: np.full(x.shape, value, dtypes[x.type]) for x, value in inputs})
    assert proof_of(case, "torch", "exact").holds, "nothing is wrong with the model as written"
    if np.isfinite(output).all():
        pytest.skip("this version of ONNX Runtime leaves the model as it is written")

    proof = proof_of(case, "onnxruntime")
    assert not proof.holds
    rewritten = {o.node for o in proof.operators.values() if any(isinstance(c, ValidWhenOptimised) for c in o.open)}
    assert case.open <= rewritten


def test_infinite_constants_of_other_operators_excuse_none() -> None:
    model = parse(
        "g (float[1,1,1,1] x) => (float[1,1,1,1] y, float[1] z) <float[1,1,1,1] w = {1}, float[1] b = {1e20},"
        " float[1,1,1] k = {1e20}, int64[1] one = {1}, float[1] far = {1}>"
        "{ c = Conv(x, w, b) y = Mul(c, k) r = Reshape(x, one) z = Min(r, far) }"
    )
    model.graph.initializer[-1].CopyFrom(onnx.numpy_helper.from_array(np.full(1, np.inf, np.float32), "far"))
    proof = Prover(valid_in_box(read(model), [(-1e20, -1e20)]), ProveConfig(runtime=("onnxruntime",))).analyse()
    assert {o.node for o in proof.operators.values() if o.proved} == {"Reshape_r", "Min_z"}


def test_names_like_those_of_onnx_runtime_are_those_of_other_tensors() -> None:
    clash = "InsertedPrecisionFreeCast_z"
    model = parse(
        f"g (float[1,1,1,1] x) => (float[1,1,1,1] {clash}, float[1,1,1,1] z) <float[1,1,1,1] w = {{1e20}},"
        f" float[1,1,1] k = {{1e20}}> {{ c = Conv(x, w) {clash} = Mul(c, k) z = Tanh(x) }}"
    )
    proof = Prover(valid_in_box(read(model), [(0.0, 1e-10)]), ProveConfig(runtime=("onnxruntime",))).analyse()
    assert {o.node for o in proof.operators.values() if o.proved} == {"Tanh_z"}


PARTS = {
    "outputs that are new, of two operators that became one": (
        "g (float[4] x) => (float[2] p, float[2] q)",
        "p, a = Split(x) b, c = Split(x) q = Abs(c)",
        "p, new = Split(x) q = Abs(new)",
        {"p": {"p", "b"}, "q": {"q"}},
    ),
    "twins of which the first is left": (
        "g (float[4] x) => (float[4] y)",
        "a = Exp(x) b = Exp(x) c = Neg(a) d = Neg(b) e = Log(c) f = Sqrt(d) y = Add(e, f)",
        "a = Exp(x) c = Neg(a) e = Log(c) f = Sqrt(c) y = Add(e, f)",
        {"a": {"a", "b"}, "c": {"c", "d"}, "e": {"e"}, "f": {"f"}, "y": {"y"}},
    ),
    "operators that are gone": (
        "g (float[4] x) => (float[4] y)",
        "a = Exp(x) b = Neg(a) c = Neg(b) d = Abs(x) e = Abs(d) f = Sqrt(e) y = Add(c, f)",
        "a = Exp(x) f = Sqrt(x) y = Add(a, f)",
        {"a": {"a"}, "f": {"f"}, "y": {"y"}},
    ),
    "a new tensor in place of an operand": (
        "g (float[4] x) => (float[4] y)",
        "a = Exp(x) b = Neg(a) c = Abs(x) y = Div(b, c)",
        "m = Exp(x) n = Log(m) c = Abs(x) y = Div(n, c)",
        {"m": {"a", "b"}, "n": {"a", "b"}, "c": {"c"}, "y": {"y"}},
    ),
    "a new tensor that two written operators read": (
        "g (float[4] x) => (float[4] y, float[4] z)",
        "a = Exp(x) y = Neg(a) z = Abs(x)",
        "m = Log(x) y = Neg(m) z = Abs(m)",
        {"m": {"a", "z"}, "y": {"y"}, "z": {"z"}},
    ),
    "an operator that became another": (
        "g (float[4] x) => (float[4] y)",
        "a = Exp(x) b = Neg(a) y = Abs(b)",
        "m = Log(x) n = Sqrt(m) y = Neg(n)",
        {"m": {"a", "b", "y"}, "n": {"a", "b", "y"}, "y": {"a", "b", "y"}},
    ),
    "a tensor in place of another that is left": (
        "g (float[4] x) => (float[4] y, float[4] z)",
        "a = Exp(x) b = Log(x) y = Neg(a) z = Abs(b)",
        "a = Exp(x) b = Log(x) y = Neg(b) z = Abs(b)",
        {"a": {"a"}, "b": {"a", "b"}, "y": {"y"}, "z": {"z"}},
    ),
}


@pytest.mark.parametrize("case", PARTS)
def test_operators_stand_for_the_written_ones_that_they_compute(case: str) -> None:
    ends, before, after, parts = PARTS[case]
    written, other = (read(parse(f"{ends} {{ {nodes} }}", 13)) for nodes in (before, after))
    found = _Correspondence(written, other).parts()
    names = {id(op): op.output_names[0] for op in (*written.nodes, *other.nodes)}
    assert {names[op]: {names[key] for key in part} for op, part in found.items()} == parts


def test_operators_of_which_only_a_twin_runs_are_blamed_for_its_faults_alone() -> None:
    model = parse(
        "g (float[1,2] x) => (float[1,2] y) <float[2,2] w = {1, 2, 3, 4}>"
        "{ a = MatMul(x, w) b = MatMul(x, w) c = Exp(a) d = Reciprocal(b) y = Add(c, d) }"
    )
    found = []
    for most in (100.0, 2e38):
        proof = Prover(valid_in_box(read(model), [(0.0, most)]), ProveConfig(runtime=("onnxruntime",))).analyse()
        operators = proof.operators.values()
        found.append({o.node for o in operators if any(isinstance(c, ValidWhenOptimised) for c in o.open)})
    assert found[0] == {"Exp_c", "Reciprocal_d"}
    assert found[1] >= {"MatMul_a", "MatMul_b"}


def test_operators_that_run_as_written_stay_proved() -> None:
    case = next(case for case in CASES if case.name == "half precision that is not rounded to")
    proof = proof_of(case, "onnxruntime")
    assert {o.node for o in proof.operators.values() if o.proved} == {"Cast_a", "Relu_b", "Cast_c", "Sub_e"}


def test_only_the_runtime_that_rewrites_is_concerned() -> None:
    graph = read(parse("g (float[2,2] x) => (float[2,2] y) { a = Transpose(x) y = MatMul(a, x) }"))
    for runtimes in (("torch",), ("exact",), ("torch", "exact")):
        Prover(valid_in_box(graph, [(0.0, 1.0)]), ProveConfig(runtime=runtimes)).analyse()
    assert graph not in optimised_module._found


def test_a_graph_that_runs_as_written_is_analysed_once() -> None:
    graph = read(parse("g (float[2,2] x) => (float[2,2] y) { a = Transpose(x) b = Softmax(a) y = Log(b) }"))
    assert execution_of(graph) is None


def test_fixed_inputs_are_no_constants_to_the_optimiser() -> None:
    text = (
        "g (float[1,1,2,2] x, float[1,1,1,1] w) => (float[1,1,2,2] y) <float[1,1,1] k = {2}>"
        "{ c = Conv(x, w) d = Identity(c) y = Mul(d, k) }"
    )
    given = {"w": np.ones((1, 1, 1, 1), np.float32)}
    execution = execution_of(read(parse(text), fixed=given))
    assert execution is None, "a product of two constants would be another graph"


def test_bounds_of_outputs_enclose_both_graphs() -> None:
    text = (
        "g (float[1,1,1,1] x) => (float[1,1,2,2] m) <int64[8] p = {0,0,1,1,0,0,1,1}, float v = {0}>"
        "{ a = Pad(x, p, v) m = MaxPool<kernel_shape = [2, 2]>(a) }"
    )
    inner = "And(N(v0)[0, 0, 0, 0] >= 0, N(v0)[0, 0, 0, 0] <= 0)"
    reduced = problem(in_box([(-2.0, -1.0)], inner), networks={"N": read(parse(text))})
    assert Prover(reduced, ProveConfig(runtime=("torch", "exact"))).analyse().holds
    session = onnxruntime.InferenceSession(parse(text).SerializeToString(), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {"x": np.full((1, 1, 1, 1), -1, np.float32)})
    # One version of ONNX Runtime leaves the padding out of the maximum, another does not.
    assert Prover(reduced, ProveConfig(runtime=("onnxruntime",))).analyse().holds == bool((output == 0).all())


def test_nothing_is_proved_for_onnx_runtime_of_a_model_that_it_refuses() -> None:
    graph = read(parse("g (bfloat16[2] x) => (bfloat16[2] y) { y = Erf(x) }"))
    proof = Prover(valid_in_box(graph, [(0.0, 1.0)]), ProveConfig()).analyse()
    (notice,) = proof.notices
    assert not proof.holds and "network N for ONNX Runtime, which does not load it" in notice
    proof = Prover(valid_in_box(graph, [(0.0, 1.0)]), ProveConfig(runtime=("torch",))).analyse()
    assert proof.holds and not proof.notices


@pytest.mark.slow
def test_a_constant_whose_folding_takes_much_memory_is_not_taken_for_one_that_stays() -> None:
    text = (
        "g (float[1,1,1,1] x) => (float[1,1,1,1] y) <int64[4] s = {1,1,180,180}, int64[4] t = {1,1,100,100},"
        " float[1,1,1,1] w = {1e30}, float[1,1,1] e = {1e26}>"
        "{ a = ConstantOfShape<value = float[1] {1}>(s) b = ConstantOfShape<value = float[1] {1}>(t)"
        " c = ConvTranspose(a, b) r = ReduceMax<keepdims = 0>(c) k = Mul(r, e) d = Conv(x, w) y = Mul(d, k) }"
    )
    model = parse(text)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.zeros((1, 1, 1, 1), np.float32)})
    assert np.isnan(y).all()  # w times k is infinite
    proof = Prover(valid_in_box(read(model), [(0.0, 1e-30)]), ProveConfig(runtime=("onnxruntime",))).analyse()
    assert not proof.holds and any("needs too much memory" in notice for notice in proof.notices)


def test_what_is_not_known_of_a_model_that_may_run_is_not_proved_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No other test has the same model, whose optimised form would be known.
    graph = read(parse("g (float[2] x) => (float[2] never_optimised) { never_optimised = Exp(x) }"))
    # A process that waits would answer before anybody looks at the clock.
    monkeypatch.setattr(optimised_module, "optimiser", SharedChild(optimised_module._WORKER))
    monkeypatch.setattr(optimised_module, "_SECONDS", 0.0)
    proof = Prover(valid_in_box(graph, [(0.0, 1.0)]), ProveConfig()).analyse()
    (notice,) = proof.notices
    assert not proof.holds and "nothing is proved about network N for ONNX Runtime" in notice
    assert [o.is_open_as_executed for o in proof.operators.values()] == [True]
