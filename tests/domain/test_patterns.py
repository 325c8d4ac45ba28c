"""Networks that are safe for a reason that lies in several nodes are proved; their unsafe twins stay open."""

import numpy as np
import pytest

from tests.domain.related_twins import RELATED
from tests.domain.soundness import Subject, Verdict, faults_in
from tests.domain.twins import ADDED, FLAGGED, GATED, KEPT, VOTES, Twins
from tests.network.building import parse

CONSTANTS = (
    "<float tiny = {1e-5}, float one = {1}, float two = {2}, float zero = {0}, float half = {0.5}, int64[1] last = {1}>"
)


_OWN_NORM = "n = ReduceL2<axes = [1]>(x) c = Equal(n, zero) r = Where(c, one, n) u = Div(x, r)"
_NORM_OF_ALL = "m = Constant<value_ints = [-1]>() f = Reshape(x, m) " + _OWN_NORM.replace(
    "<axes = [1]>(x)", "<keepdims = 0>(f)"
)

_OWN_MEAN = "m = ReduceMean<axes = [1]>(x) d = Sub(x, m) "
_OTHER_MEAN = "o = ReduceMean<axes = [1]>(x) e = Sub(x, o) p = Mul(e, e) "
_UNBIASED = (
    "v = ReduceMean<axes = [1], keepdims = 0>(p) w = Mul(v, six) u = Div(w, five) k = Unsqueeze(u, last) s = Sqrt(k) "
    "r = Add(s, {least}) z = Div(d, r) c = Mul(z, percent) y = Exp(c)"
)

PAIRS = [
    *GATED,
    *KEPT,
    *ADDED,
    *VOTES,
    *RELATED,
    *FLAGGED,
    Twins("x * x", "q = Mul(x, x) t = Add(q, tiny) y = Log(t)", "q = Mul(x, x) y = Log(q)"),
    Twins(
        "x * x and another",
        "q = Mul(x, x) y = Sqrt(q)",
        "w = Neg(x) q = Mul(x, w) y = Sqrt(q)",
    ),
    Twins(
        "x ^ 2",
        "q = Pow(x, two) t = Add(q, one) y = Reciprocal(t)",
        "q = Pow(x, two) t = Sub(q, one) y = Reciprocal(t)",
    ),
    Twins("x - x", "d = Sub(x, x) y = Sqrt(d)", "e = Add(x, zero) r = Sub(e, tiny) d = Sub(r, x) y = Sqrt(d)"),
    Twins("x / x", "p = Exp(x) q = Div(p, p) y = Acos(q)", "p = Exp(x) r = Add(p, one) q = Div(r, p) y = Acos(q)"),
    Twins(
        "standard score with another mean",
        _OWN_MEAN + _OTHER_MEAN + "v = ReduceMean<axes = [1]>(p) t = Add(v, tiny) r = Sqrt(t) z = Div(d, r) y = Exp(z)",
        _OWN_MEAN + "p = Mul(x, d) v = ReduceMean<axes = [1]>(p) a = Abs(v) t = Add(a, tiny) r = Sqrt(t) z = Div(d, r) "
        "y = Exp(z)",
    ),
    Twins(
        "standard score by an unbiased deviation",
        _OWN_MEAN + _OTHER_MEAN + _UNBIASED.format(least="tiny"),
        _OWN_MEAN + _OTHER_MEAN + _UNBIASED.format(least="tiniest"),
        more="float six = {6}, float five = {5}, float tiniest = {1e-12}, float percent = {0.01}",
    ),
    Twins(
        "a positive number over one that is not near 0",
        "p = Exp(x) a = Abs(x) c = Less(a, tiny) r = Where(c, tiny, x) q = Div(p, r) y = Reciprocal(q)",
        "p = Exp(x) a = Abs(x) c = Less(a, tiny) r = Where(c, tiny, x) s = Sub(p, one) q = Div(s, r) y = Reciprocal(q)",
    ),
    Twins("x + x", "a = Abs(x) s = Add(a, a) y = Sqrt(s)", "s = Add(x, x) y = Sqrt(s)"),
    Twins(
        "softmax of x + c",
        "c = ReduceMean<axes = [1]>(x) s = Add(x, c) p = Softmax<axis = 1>(s) y = Log(p)",
        "c = ReduceMean<axes = [0]>(x) s = Add(x, c) p = Softmax<axis = 1>(s) y = Log(p)",
        low=-40.0,
        high=40.0,
    ),
    Twins(
        "log softmax of a layer and one bias",
        "b = ReduceMax(x) h = MatMul(x, eye) s = Sub(h, b) p = LogSoftmax(s) e = Neg(p) y = Exp(e)",
        "b = ReduceMax<axes = [0]>(x) h = MatMul(x, eye) s = Sub(h, b) p = LogSoftmax(s) e = Neg(p) y = Exp(e)",
        low=-40.0,
        high=40.0,
        more="float[6, 6] eye = {" + ", ".join(str(float(i % 7 == 0)) for i in range(36)) + "}",
    ),
    Twins(
        "x - max",
        "m = ReduceMax<axes = [1]>(x) d = Sub(x, m) y = Exp(d)",
        "m = ReduceMin<axes = [1]>(x) d = Sub(x, m) y = Exp(d)",
        low=-1e4,
        high=1e4,
    ),
    Twins(
        "x - max, with the least number",
        "m = ReduceMax<axes = [1]>(x) n = Max(least, m) d = Sub(x, n) y = Exp(d)",
        "m = ReduceMax<axes = [1]>(x) n = Min(zero, m) d = Sub(x, n) y = Exp(d)",
        low=-1e4,
        high=1e4,
        more="float least = {-inf}",
    ),
    Twins(
        "max - x",
        "m = ReduceMax<axes = [1]>(x) d = Sub(m, x) y = Sqrt(d)",
        "m = ReduceMax<axes = [1]>(x) d = Sub(x, m) y = Sqrt(d)",
    ),
    Twins(
        "x - min",
        "m = ReduceMin<axes = [1]>(x) d = Sub(x, m) y = Sqrt(d)",
        "m = ReduceMin<axes = [0]>(x) d = Sub(m, x) y = Sqrt(d)",
    ),
    Twins(
        "softmax by hand",
        "m = ReduceMax<axes = [1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, last) y = Div(e, s)",
        "e = Exp(x) s = ReduceSum(e, last) y = Div(e, s)",
        low=-200,
        high=80,
    ),
    Twins(
        "softmax by hand, transposed",
        "m = ReduceMax<axes = [1]>(x) d = Sub(x, m) t = Transpose<perm = [1, 0]>(d) u = Transpose(t) v = Transpose(u) "
        "e = Exp(v) s = ReduceSum(e, first) y = Div(e, s)",
        "m = ReduceMax<axes = [1]>(x) d = Sub(x, m) t = Transpose<perm = [1, 0]>(d) e = Exp(t) s = ReduceSum(e, last) "
        "y = Div(e, s)",
        low=-200,
        high=80,
        more="int64[1] first = {0}",
    ),
    Twins(
        "log-sum-exp by hand",
        "m = ReduceMax<axes = [1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, last) l = Log(s) y = Add(l, m)",
        "m = ReduceMax<axes = [1]>(x) h = Sub(m, one) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, last) "
        "t = Sub(s, one) y = Log(t)",
        low=-300,
        high=300,
    ),
    Twins(
        "log-softmax by hand",
        "m = ReduceMax<axes = [1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, last) l = Log(s) p = "
        "Sub(d, l) n = Neg(p) y = Sqrt(n)",
        "e = Exp(x) s = ReduceSum(e, last) l = Log(s) p = Sub(x, l) y = Sqrt(p)",
    ),
    Twins(
        "share of exponentials",
        "e = Exp(x) s = ReduceSum(e, last) p = Div(e, s) y = Acos(p)",
        "e = Exp(x) s = ReduceSum(e, last) r = Add(e, one) p = Div(r, s) y = Acos(p)",
    ),
    Twins(
        "softmax sums to 1",
        "p = Softmax<axis = 1>(x) s = ReduceSum(p, last) t = Sub(two, s) y = Log(t)",
        "p = Softmax<axis = 1>(x) s = ReduceSum(p, last) t = Sub(one, s) y = Log(t)",
    ),
    Twins(
        "x - mean",
        "m = ReduceMean<axes = [1]>(x) d = Sub(x, m) s = Mul(d, tenth) y = Acos(s)",
        "m = ReduceMean<axes = [1]>(x) d = Sub(x, m) s = Mul(d, tenth) t = Add(s, half) y = Acos(t)",
        low=95.0,
        high=106.0,
        more="float tenth = {0.1}",
    ),
    Twins(
        "variance",
        "m = ReduceMean<axes = [1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes = [1]>(q) s = "
        "Add(v, tiny) r = Sqrt(s) y = Div(d, r)",
        "m = ReduceMean<axes = [1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes = [1]>(q) r = "
        "Sqrt(v) y = Div(d, r)",
        low=-1e3,
        high=1e3,
    ),
    Twins(
        "variance is bounded",
        "m = ReduceMean<axes = [1]>(x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean<axes = [1]>(q) s = "
        "Sub(limit, v) y = Log(s)",
        "q = Pow(x, two) v = ReduceMean<axes = [1]>(q) s = Sub(limit, v) y = Log(s)",
        low=10.0,
        high=14.0,
        more="float limit = {4.001}",
    ),
    Twins(
        "variance of moments cancels",
        "m = ReduceMean<axes = [1]>(x) n = Mul(m, m) q = Mul(x, x) e = ReduceMean<axes = [1]>(q) v = "
        "Sub(e, n) s = Add(v, one) y = Sqrt(s)",
        "m = ReduceMean<axes = [1]>(x) n = Mul(m, m) q = Mul(x, x) e = ReduceMean<axes = [1]>(q) v = "
        "Sub(e, n) y = Sqrt(v)",
        low=90.0,
        high=100.0,
    ),
    Twins(
        "standard score",
        "m = ReduceMean<axes = [1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes = [1]>(q) s = "
        "Add(v, tiny) r = Sqrt(s) z = Div(d, r) t = Add(z, three) y = Log(t)",
        "m = ReduceMean<axes = [1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes = [1]>(q) s = "
        "Add(v, tiny) r = Sqrt(s) z = Div(d, r) t = Add(z, two) y = Log(t)",
        more="float three = {3}",
    ),
    Twins(
        "x / norm",
        "q = Mul(x, x) s = ReduceSum(q, last) t = Add(s, tiny) r = Sqrt(t) u = Div(x, r) v = Mul(u, half) y = Acos(v)",
        "q = Mul(x, x) s = ReduceSum(q, last) t = Add(s, tiny) r = Sqrt(t) u = Div(x, r) v = Mul(u, two) y = Acos(v)",
    ),
    Twins(
        "x / max(norm, epsilon)",
        "n = ReduceL2<axes = [1]>(x) r = Max(n, tiny) u = Div(x, r) v = Mul(u, half) y = Acos(v)",
        "n = ReduceL2<axes = [1]>(x) r = Max(n, tiny) u = Div(x, r) v = Add(u, half) y = Acos(v)",
    ),
    Twins(
        "x / norm, or 1 where that is 0",
        f"{_OWN_NORM} v = Mul(u, half) y = Acos(v)",
        f"{_OWN_NORM} y = Acos(u)",
    ),
    Twins(
        "x / norm of all, or 1 where that is 0",
        f"{_NORM_OF_ALL} v = Mul(u, half) y = Acos(v)",
        f"{_NORM_OF_ALL} y = Acos(u)",
    ),
    Twins(
        "root mean square",
        "q = Mul(x, x) s = ReduceMean<axes = [1]>(q) t = Add(s, tiny) r = Sqrt(t) i = Reciprocal(r) u = "
        "Mul(x, i) v = Add(u, three) y = Log(v)",
        "q = Mul(x, x) s = ReduceMean<axes = [1]>(q) t = Add(s, tiny) r = Sqrt(t) i = Reciprocal(r) u = "
        "Mul(x, i) v = Add(u, one) y = Log(v)",
        more="float three = {3}",
    ),
    Twins(
        "x (1 - x)",
        "r = Sub(one, x) p = Mul(x, r) t = Sub(third, p) y = Log(t)",
        "r = Sub(one, x) p = Mul(x, r) t = Sub(fifth, p) y = Log(t)",
        low=0,
        high=1,
        more="float third = {0.26}, float fifth = {0.2}",
    ),
    Twins(
        "1 + e^x", "e = Exp(x) s = Add(one, e) l = Log(s) y = Sqrt(l)", "e = Exp(x) s = Sub(e, one) y = Log(s)", low=-80
    ),
    Twins(
        "sqrt(x x + e)",
        "q = Mul(x, x) s = Add(q, tiny) r = Sqrt(s) y = Div(x, r)",
        "q = Mul(x, x) r = Sqrt(q) y = Div(x, r)",
    ),
    Twins("max(x, e)", "m = Max(x, tiny) y = Log(m)", "m = Max(x, zero) y = Log(m)"),
    Twins("clip(x, e)", "m = Clip(x, tiny) y = Log(m)", "m = Clip(x, zero) y = Log(m)"),
    Twins("|x| + e", "a = Abs(x) s = Add(a, tiny) y = Div(x, s)", "a = Abs(x) s = Sub(a, tiny) y = Div(x, s)"),
    Twins("relu(x) + e", "a = Relu(x) s = Add(a, tiny) y = Log(s)", "a = Relu(x) y = Log(a)"),
    # tests of what a branch reads
    Twins(
        "where x > 0",
        "c = Greater(x, zero) w = Where(c, x, one) y = Log(w)",
        "c = GreaterOrEqual(x, zero) w = Where(c, x, one) y = Log(w)",
    ),
    Twins(
        "where x > 0, f(x)",
        "c = Greater(x, zero) f = Add(x, tiny) w = Where(c, f, one) y = Log(w)",
        "c = Greater(x, zero) f = Sub(x, tiny) w = Where(c, f, one) y = Log(w)",
    ),
    Twins(
        "where x > 1, thresholded",
        "c = Greater(x, one) f = ThresholdedRelu(x) w = Where(c, f, one) y = Log(w)",
        "c = Greater(x, half) f = ThresholdedRelu(x) w = Where(c, f, one) y = Log(w)",
    ),
    Twins(
        "where not x <= 0",
        "c = LessOrEqual(x, zero) n = Not(c) w = Where(n, x, one) y = Log(w)",
        "c = LessOrEqual(x, zero) w = Where(c, x, one) y = Log(w)",
    ),
    Twins(
        "where x > 0, of another element",
        "c = Greater(x, zero) w = Where(c, x, one) y = Log(w)",
        "c = Greater(x, zero) f = ReduceMin<axes = [1]>(x) w = Where(c, f, one) y = Log(w)",
    ),
    Twins(
        "where |x| > e",
        "a = Abs(x) c = Greater(a, tiny) w = Where(c, x, tiny) y = Reciprocal(w)",
        "a = Abs(x) c = Less(a, tiny) w = Where(c, x, tiny) y = Reciprocal(w)",
    ),
    Twins(
        "where |x| > e, moved",
        "a = Abs(x) c = Greater(a, tiny) w = Where(c, x, one) t = Transpose(w) n = Neg(t) y = Div(one, n)",
        "a = Abs(x) c = Greater(a, zero) w = Where(c, x, one) t = Transpose(w) s = Add(t, one) y = Div(one, s)",
    ),
    Twins(
        "where both",
        "c = Greater(x, tiny) d = Less(x, one) b = And(c, d) w = Where(b, x, half) l = Log(w) n = Neg(l) y = Sqrt(n)",
        "c = Greater(x, tiny) d = Less(x, one) b = Or(c, d) w = Where(b, x, half) y = Log(w)",
    ),
    Twins(
        "where x > |z| + e",
        "z = Neg(x) a = Abs(z) s = Add(a, tiny) c = Greater(x, s) w = Where(c, x, one) y = Log(w)",
        "z = Neg(x) a = Abs(z) s = Add(a, tiny) c = Less(x, s) w = Where(c, x, one) y = Log(w)",
    ),
]


def analysed(twins: Twins, body: str) -> tuple[Subject, dict[str, np.ndarray], dict[str, np.ndarray], Verdict]:
    constants = CONSTANTS if not twins.more else f"{CONSTANTS[:-1]}, {twins.more}>"
    kind = "int64" if "<to = 7>" in body else "float"
    model = parse(f"g (float[2,6] x) => ({kind}[a,b] y) {constants} {{ {body} }}")
    subject = Subject(model)
    low, high = ({"x": np.full((2, 6), end, np.float32)} for end in (twins.low, twins.high))
    return subject, low, high, subject.analyse(low, high)


@pytest.mark.few(24)
@pytest.mark.parametrize("twins", PAIRS, ids=[twins.name for twins in PAIRS])
def test_safe_twin_is_proved(twins: Twins) -> None:
    subject, low, high, verdict = analysed(twins, twins.safe)
    assert {op.name for op in subject.graph.nodes if not verdict.proves(op.name)} == set()
    tally = faults_in(subject, (low, high), samples=4, rounds=1, rng=np.random.default_rng(0))
    assert not tally.faults, "\n".join(tally.faults)


@pytest.mark.few(5)
@pytest.mark.parametrize("twins", PAIRS, ids=[twins.name for twins in PAIRS])
def test_unsafe_twin_stays_open(twins: Twins) -> None:
    subject, low, high, verdict = analysed(twins, twins.unsafe)
    assert any(not verdict.proves(op.name) for op in subject.graph.nodes)
    tally = faults_in(subject, (low, high), samples=4, rounds=1, rng=np.random.default_rng(0))
    assert not tally.faults, "\n".join(tally.faults)


@pytest.mark.parametrize("size", [1e-45, 4e-45, 1e-40, 3e-23, 1e-22, 1e-19, 1.0, 1e18, 3e38])
@pytest.mark.parametrize("elements", [1, 2, 33])
def test_a_quotient_by_its_own_norm_is_bounded_whatever_the_squares_lose(size: float, elements: int) -> None:
    body = f"{_OWN_NORM.replace('u =', 'y =')}"
    subject = Subject(parse(f"g (float[2,{elements}] x) => (float[a,b] y) {CONSTANTS} {{ {body} }}"))
    high = np.full((2, elements), size, np.float32)
    found = faults_in(subject, ({"x": -high}, {"x": high}), samples=12, rounds=2, rng=np.random.default_rng(0))
    assert found.samples
    assert not found.faults, found.faults


@pytest.mark.few(6)
@pytest.mark.parametrize("centre", [0.0, 1.0, -3e4, 1e10, 1e18])
@pytest.mark.parametrize("width", [0.0, 1e-22, 1e-7, 1e-3, 1.0])
@pytest.mark.parametrize("least", ["1e-12", "1e-5"])
def test_scores_with_another_mean_are_bounded_however_the_means_stray(centre: float, width: float, least: str) -> None:
    constants = f"{CONSTANTS[:-1]}, float six = {{6}}, float five = {{5}}, float least = {{{least}}}>"
    unbiased = _UNBIASED.format(least="least").replace("z =", "y =").split("c =")[0]
    body = _OWN_MEAN + _OTHER_MEAN + unbiased
    subject = Subject(parse(f"g (float[2,6] x) => (float[2,6] y) {constants} {{ {body} }}"))
    low, high = (np.full((2, 6), centre + side * width * max(1.0, abs(centre)), np.float32) for side in (-1, 1))
    found = faults_in(subject, ({"x": low}, {"x": high}), samples=12, rounds=2, rng=np.random.default_rng(0))
    assert found.samples and not found.faults, found.faults


def test_a_gated_number_whose_parts_overflow_is_bounded() -> None:
    constants = "<double one = {1}, double root = {1.4142135623730951}, double k = {1e308}>"
    body = "d = Div(x, root) e = Erf(d) r = Add(e, one) p = Mul(x, r) y = Mul(p, k)"
    subject = Subject(parse(f"g (double[2] x) => (double[2] y) {constants} {{ {body} }}", 18))
    box = {"x": np.array([0.3, -0.4])}, {"x": np.array([0.5, -0.3])}
    found = faults_in(subject, box, samples=6, rounds=1, rng=np.random.default_rng(0))
    assert found.samples
    assert not found.faults, found.faults


_RAMP = "s = Mul(x, small) a = Add(s, three) c = Clip(a, zero, six) g = Mul(c, least) y = Mul(x, g)"
_HALF = """h = Cast<to = 10>(three) z = Cast<to = 10>(zero) t = Cast<to = 10>(tiny) l = Cast<to = 10>(large)
    a = Add(x, h) c = Clip(a, z, t) g = Div(c, l) y = Mul(x, g)"""


@pytest.mark.parametrize(
    ("dtype", "gate", "low", "high"),
    [
        (
            "float",
            "s = Mul(x, small) a = Add(s, three) c = Clip(a, zero, six) g = Mul(c, least) y = Mul(x, g)",
            1e10,
            1.1e10,
        ),
        ("float", "s = Mul(x, small) e = Erf(s) r = Add(e, one) g = Mul(r, least) y = Mul(x, g)", 1e10, 1.1e10),
        ("float16", _HALF, 1e4, 1.2e4),
    ],
    ids=["ramp", "erf", "half"],
)
def test_a_gate_that_underflows_loses_what_x_enlarges(dtype: str, gate: str, low: float, high: float) -> None:
    numbers = {"three": 3.0, "zero": 0.0, "six": 6.0, "one": 1.0}
    numbers |= {"small": 1e-10, "tiny": 5e-4, "large": 3e4, "least": 1e-44}
    used = [f"float {name} = {{{value:g}}}" for name, value in numbers.items() if name in gate]
    subject = Subject(parse(f"g ({dtype}[4] x) => ({dtype}[4] y) <{', '.join(used)}> {{ {gate} }}", 18))
    kind = np.float16 if dtype == "float16" else np.float32
    box = {"x": np.full(4, low, kind)}, {"x": np.full(4, high, kind)}
    found = faults_in(subject, box, samples=12, rounds=2, rng=np.random.default_rng(0))
    assert found.samples
    assert not found.faults, found.faults


@pytest.mark.parametrize("step", ["m2 = Max(m, least)", "m2 = Unsqueeze(m, first)"])
def test_a_maximum_of_more_dimensions_is_not_that_of_the_rows(step: str) -> None:
    text = f"""g (float[4] x) => (float[1,4] y)
        <int64[1] first = {{0}}, float[1,1] least = {{-3e38}}, float c = {{0.99}}> {{
        m = ReduceMax(x, first) {step} d = Sub(x, m2) e = Exp(d) s = ReduceSum(e, first) z = Sub(s, c)
        [log] y = Log(z) }}"""
    model = parse(text, 18)
    least = next(tensor for tensor in model.graph.initializer if tensor.name == "least")
    least.float_data[0] = -np.inf
    subject = Subject(model)
    verdict = subject.analyse({"x": np.full(4, -1, np.float32)}, {"x": np.full(4, 1, np.float32)})
    assert not verdict.proves("log")
