"""`Where(x > 0, Log(x), 0)`: a branch is not NaN where a test of numbers takes it, and bounded as it is there."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ranum_falsify as rf
from ranum_falsify.domain import Interval
from ranum_falsify.network import read
from ranum_falsify.verify.prove.unconditional import Unconditional
from tests.network.building import parse, session
from tests.verify.prove.test_unconditional import encloses

CONSTANTS = "float[1] c0 = {0}, float[1] c1 = {1}, float[1] half = {0.5}, float[1] low = {-inf}"
TESTS = {
    "x > 0": "c = Greater(x, c0)",
    "x >= 0": "c = GreaterOrEqual(x, c0)",
    "not x > 0": "g = Greater(x, c0) c = Not(g)",
    "x < y": "c = Less(x, y)",
    "x == 0": "c = Equal(x, c0)",
    "x != 0": "e = Equal(x, c0) c = Not(e)",
    "|x| > 0.5": "a = Abs(x) c = Greater(a, half)",
    "x > 0 and y > 0": "g = Greater(x, c0) h = Greater(y, c0) c = And(g, h)",
    "x > 0 or y > 0": "g = Greater(x, c0) h = Greater(y, c0) c = Or(g, h)",
    "bool(x)": "c = Cast<to = 9>(x)",
    "log x < 0": "l = Log(x) c = Less(l, c0)",
    "not log x < 0": "l = Log(x) g = Less(l, c0) c = Not(g)",
    "not inf(log x)": "l = Log(x) i = IsInf(l) c = Not(i)",
    "not nan(log x)": "l = Log(x) i = IsNaN(l) c = Not(i)",
    "sqrt x > 0.5": "s = Sqrt(x) c = Greater(s, half)",
    "sqrt x == sqrt x": "s = Sqrt(x) c = Equal(s, s)",
    "0 / x <= y": "q = Div(c0, x) c = LessOrEqual(q, y)",
    "chosen != -inf": "t = Greater(x, c0) w = Where(t, y, low) e = Equal(w, low) c = Not(e)",
    "chosen of sqrt > 0": "t = Less(x, c0) s = Sqrt(x) w = Where(t, c0, s) c = Greater(w, c0)",
}
BRANCHES = {
    "log x": "b = Log(x)",
    "log log x": "k = Log(x) b = Log(k)",
    "sqrt x": "b = Sqrt(x)",
    "1 / x": "b = Div(c1, x)",
    "y / (x + 1)": "p1 = Add(x, c1) b = Div(y, p1)",
    "log x + sqrt y": "k = Log(x) r = Sqrt(y) b = Add(k, r)",
    "log x / log x": "k = Log(x) m = Log(x) b = Div(k, m)",
    "min(log x, y)": "k = Log(x) b = Min(k, y)",
    "exp(log x)": "k = Log(x) b = Exp(k)",
    "a choice inside": "g2 = Greater(x, half) k = Log(x) r = Sqrt(y) b = Where(g2, k, r)",
    "log of a sum": "n = ReduceSum<keepdims = 1>(x) b = Log(n)",
    "a product with 0 / y": "k = Sqrt(x) r = Div(c0, y) b = Mul(k, r)",
    "the same sum twice": "n1 = Sub(x, y) n2 = Sub(x, y) a2 = Div(n1, n2) k = Sqrt(x) b = Add(a2, k)",
}
BOXES = (((-1, 1), (-1, 1)), ((0, 1), (-1, 0)), ((-1, 2), (0, 2)), ((0.25, 2), (-1, 1)))
CASES = [*itertools.product(TESTS, BRANCHES)]


def make(test: str, branch: str, *, turned: bool) -> str:
    ends = "x, b" if turned else "b, x"
    return f"""g (float[9] x, float[9] y) => (float[9] z) <{CONSTANTS}> {{
        {TESTS[test]} {BRANCHES[branch]} z = Where(c, {ends}) }}"""


@pytest.mark.few(40)
@pytest.mark.parametrize(("test", "branch"), CASES)
def test_bounds_hold_what_is_chosen_valid_or_not(test: str, branch: str) -> None:
    for turned in (False, True):
        model = parse(make(test, branch, turned=turned))
        graph, runs = read(model), [session(model, optimised=level) for level in (False, True)]
        for ends in BOXES:
            box = [Interval.box(*np.array([end] * 9, np.float32).T) for end in ends]
            (bounds,) = Unconditional(graph, runtimes=("onnxruntime",)).run(box)
            assert bounds is not None
            points = [
                np.unique(
                    np.array([low, high, 0, 1e-40, 0.5, 1, *np.linspace(low, high, 4)], np.float32).clip(low, high)
                )
                for low, high in ends
            ]
            x, y = (grid.ravel() for grid in np.meshgrid(*points))
            for start in range(0, len(x) - 8, 9):
                feeds = {"x": x[start : start + 9], "y": y[start : start + 9]}
                for run in runs:
                    (value,) = run.run(None, feeds)
                    assert encloses(bounds, value), (ends, turned, feeds, value, bounds)


HALVES = " ".join(f"{name} = Cast<to = 10>(k{name})" for name in ("c0", "c1", "half", "low"))
COMPUTED = {
    "a product": "p = Mul(x, y)",
    "what rounds to 0": "q0 = Mul(x, tiny) p = Mul(q0, q0)",
    "an exponential": "p = Exp(x)",
}


@pytest.mark.few(12)
@pytest.mark.parametrize(
    ("computed", "test"), [*itertools.product(COMPUTED, sorted(TESTS.keys() - {"not inf(log x)"}))]
)
def test_what_some_readers_round_is_bounded_for_all(computed: str, test: str) -> None:
    """ONNX Runtime rounds numbers in half precision before some operators only."""
    constants = CONSTANTS.replace("float[1] ", "float[1] k") + ", float[1] ktiny = {0.000244140625}"
    for branch, turned in itertools.product(("log x", "sqrt x", "1 / x", "min(log x, y)"), (False, True)):
        body = f"{TESTS[test]} {BRANCHES[branch]}".replace("(x", "(p").replace(", x", ", p")
        model = parse(f"""g (float16[9] x, float16[9] y) => (float16[9] z, float16[9] q9) <{constants}> {{
            {HALVES} tiny = Cast<to = 10>(ktiny) {COMPUTED[computed]} q9 = Identity(p) {body}
            z = Where(c, {"p, b" if turned else "b, p"}) }}""")
        graph, runs = read(model), [session(model, optimised=level) for level in (False, True)]
        for low, high in ((-1, 1), (0, 1)):
            box = [Interval.box(np.full(9, low, np.float16), np.full(9, high, np.float16))] * 2
            (bounds, _) = Unconditional(graph, runtimes=("onnxruntime",)).run(box)
            assert bounds is not None
            random = np.random.default_rng(0)
            for run, _ in itertools.product(runs, range(6)):
                x, y = random.choice(SMALL, (2, 9)).astype(np.float16).clip(low, high)
                value = run.run(None, {"x": x, "y": y})[0]
                assert encloses(bounds, value), (branch, turned, x, y, value, bounds)


SMALL = (0, 1, -1, 1e-4, -1e-4, 6e-8, 1e-3, 0.5, 0.25, -0.5, 0.0313, -0.99)

HOLD = [
    ("x > 0", "log x"),
    ("x >= 0", "sqrt x"),
    ("|x| > 0.5", "1 / x"),
    ("chosen != -inf", "log x"),
    ("x > 0", "exp(log x)"),
    ("x > 0 and y > 0", "log x + sqrt y"),
]
OPEN = [
    ("not inf(log x)", "sqrt x"),
    ("not inf(log x)", "log x"),
    ("x > 0 or y > 0", "log x"),
    ("not log x < 0", "log x"),
    ("not x > 0", "log x"),
    ("x < y", "log x"),
    ("x > 0", "log of a sum"),
]


@pytest.mark.parametrize(("test", "branch"), [*HOLD, *OPEN])
def test_what_is_taken_where_it_is_valid_holds_on_outputs(test: str, branch: str) -> None:
    model = parse(make(test, branch, turned=False))
    result = rf.check(model, box=(-1, 1), n_starts=0, timeout=5, self_check=False)
    assert (result.verdict == "holds") == ((test, branch) in HOLD)
