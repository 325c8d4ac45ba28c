"""Bounds that hold whatever is invalid enclose what ONNX Runtime computes; only what no output shows is left aside."""

from __future__ import annotations

import copy

import numpy as np
import onnx
import pytest

import ranum_falsify as rf
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.network import read
from ranum_falsify.network.nesting import black_boxes_of, has_subgraphs
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.verify.prove.analyses import analyses_of
from ranum_falsify.verify.prove.unconditional import RunRefusedError, Unconditional, keeps_outputs_finite
from tests.domain.boxes import Array, Feeds
from tests.network.building import parse, session
from tests.operators.harness import OperatorCase, model_of
from tests.operators.test_operators import CASES
from tests.verify.prove.invalid_graphs import InvalidGraph

ATTENTION = (
    "float[4] z = {0, 0, 0, 0}, float[4] hidden = {-inf, -inf, -inf, -inf}, float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}"
)
MASKED = "b = Where(m, z, hidden) s = Add(x, b) p = Softmax(s)"
LOWEST = "float[4] z = {{0, 0, 0, 0}}, float[4] low = {{{}, -3e38, -3e38, -3e38}}"
SUMMED = "b = Where(m, z, low) c = Add(b, low) s = Add(x, c) y = Softmax(s)"
ONE = "float[4] z = {0, 0, 0, 0}, float[4] one = {1, 1, 1, 1}"

SHOWN = {
    "weights that are not NaN": (
        f"<{ATTENTION}> {{ {MASKED} q = IsNaN(p) r = Where(q, z, p) y = MatMul(r, w) }}",
        True,
    ),
    "the other way round": (
        f"<{ATTENTION}> {{ {MASKED} q = IsNaN(p) n = Not(q) r = Where(n, p, z) y = MatMul(r, w) }}",
        True,
    ),
    "it is compared with itself": (
        f"<{ATTENTION}> {{ {MASKED} q = Equal(p, p) r = Where(q, p, z) y = MatMul(r, w) }}",
        True,
    ),
    "it is compared with itself, and taken where it differs": (
        f"<{ATTENTION}> {{ {MASKED} q = Equal(p, p) r = Where(q, z, p) y = MatMul(r, w) }}",
        False,
    ),
    "it is compared with something else": (
        f"<{ATTENTION}> {{ {MASKED} q = Equal(p, s) r = Where(q, z, p) y = MatMul(r, w) }}",
        False,
    ),
    "its type alone is read": (
        f"<{ATTENTION}, float nought = {{0}}> {{ {MASKED} q = IsNaN(p) c = CastLike(nought, p) r = Where(q, c, p) "
        "y = MatMul(r, w) }",
        True,
    ),
    "NaN is handed on": (f"<{ATTENTION}> {{ {MASKED} y = MatMul(p, w) }}", False),
    "a test among others": (
        f"<{ATTENTION}> {{ {MASKED} q = IsNaN(p) i = IsInf(p) f = Not(i) n = Not(q) g = And(f, n) r = Where(g, p, z) "
        "y = MatMul(r, w) }",
        True,
    ),
    "one of two tests suffices": (
        f"<{ATTENTION}> {{ {MASKED} q = IsNaN(p) g = Or(m, q) r = Where(g, z, p) y = MatMul(r, w) }}",
        True,
    ),
    "one of two tests does not": (
        f"<{ATTENTION}> {{ {MASKED} q = IsNaN(p) g = And(m, q) r = Where(g, z, p) y = MatMul(r, w) }}",
        False,
    ),
    "nan_to_num as PyTorch exports it": (
        f"<{ATTENTION}, float most = {{3.4e38}}, float least = {{-3.4e38}}> {{ {MASKED} q = IsNaN(p) "
        "r = Where(q, z, p) l = Less(p, z) i = IsInf(p) li = And(l, i) u = Where(li, least, r) g = Greater(p, z) "
        "gi = And(g, i) t = Where(gi, most, u) y = MatMul(t, w) }",
        True,
    ),
    "infinity is tested, NaN is not": (f"<{ONE}> {{ p = Log(x) i = IsInf(p) y = Where(i, z, p) }}", False),
    "infinity and NaN are tested": (
        f"<{ONE}> {{ p = Log(x) i = IsInf(p) q = IsNaN(p) b = Or(i, q) y = Where(b, z, p) }}",
        True,
    ),
    "another tensor is tested": (
        f"<{ATTENTION}> {{ {MASKED} q = IsNaN(s) r = Where(q, z, p) y = MatMul(r, w) }}",
        False,
    ),
    "it is put in place of numbers": (
        f"<{ATTENTION}> {{ {MASKED} q = IsNaN(p) r = Where(q, p, z) y = MatMul(r, w) }}",
        False,
    ),
    "a test that nothing passes": (
        f"<{ONE}, float most = {{2}}> {{ p = Log(x) g = Greater(x, most) y = Where(g, p, z) }}",
        True,
    ),
    "a test that everything passes": (
        f"<{ONE}, float most = {{2}}> {{ p = Log(x) g = Less(x, most) y = Where(g, z, p) }}",
        True,
    ),
    "a test that some may pass": (
        f"<{ONE}, float most = {{-0.5}}> {{ p = Log(x) g = Less(x, most) y = Where(g, p, z) }}",
        False,
    ),
    "infinity is no NaN": (f"<{ONE}> {{ p = Log(x) q = IsNaN(p) r = Where(q, z, p) y = Add(r, one) }}", False),
    "a limit on both sides": (
        f"<{ONE}> {{ p = Log(x) q = IsNaN(p) r = Where(q, z, p) lo = Neg(one) c = Max(r, lo) y = Min(c, one) }}",
        True,
    ),
    "a test that NaN fails": (
        f"<{ONE}, float five = {{5}}> {{ l = Log(x) p = Min(l, z) g = Greater(p, z) q = IsNaN(p) r = Where(q, five, p) "
        "lo = Neg(one) c = Max(r, lo) t = Where(g, z, c) d = Sub(five, t) y = Div(one, d) }",
        False,
    ),
    "two masks that come to infinity": (f"<{LOWEST.format(0)}> {{ {SUMMED} }}", True),
    "two masks that come to infinity in whole rows": (f"<{LOWEST.format(-3e38)}> {{ {SUMMED} }}", False),
    "a number that is forgotten before NaN": (
        f"<{ONE}, float[1, 4] none = {{0, 0, 0, 0}}, float five = {{5}}, bool[1, 4] first = {{1, 0, 0, 0}}, "
        "int64[1, 4] at = {0, 0, 0, 0}> { l = Log(x) u = Where(first, l, five) "
        's = ScatterElements <axis = 1, reduction = "min"> (none, at, u) q = IsNaN(s) r = Where(q, none, s) '
        "d = Sub(five, r) y = Div(one, d) }",
        False,
    ),
    "a difference to a mean that overflows": (
        f"<{ONE}, float most = {{3e38}}> {{ a = Abs(x) l = Mul(a, most) c = ReduceMean <axes = [1]> (l) "
        "d = Sub(l, c) q = IsNaN(d) y = Where(q, z, d) }",
        False,
    ),
    "a logarithm of an exponential that overflows": (
        f"<{ONE}, float most = {{100}}> {{ l = Mul(x, most) e = Exp(l) d = Log(e) q = IsNaN(d) y = Where(q, z, d) }}",
        False,
    ),
    "NaN that the model stores": (
        f"<{ONE}, float[4] n = {{nan, 1, 1, 1}}> {{ s = Add(x, n) c = Max(s, z) y = Min(c, one) }}",
        False,
    ),
    "a limit that NaN passes": (f"<{ONE}> {{ p = Log(x) lo = Neg(one) c = Max(p, lo) y = Min(c, one) }}", False),
}

MAKERS = ("Log", "Sqrt", "Reciprocal", "Exp", "Mul")
FLOATS = (np.float32, np.float64)
FEW = CASES[::30]


def behind(case: OperatorCase, rng: np.random.Generator) -> tuple[onnx.ModelProto, Feeds, Feeds]:
    """A case whose floating operands come from operators that may be invalid, or are large, and a box."""
    model, feeds = model_of(case, case.arrays(int(rng.integers(1000))))
    if not all(bool(np.isfinite(x.astype(np.float64)).all()) for x in feeds.values() if x.dtype.kind in "fV"):
        raise ValueError("a box has finite ends")
    graph, (node,) = model.graph, model.graph.node
    names = [name for name, x in feeds.items() if x.dtype in FLOATS]
    makers = {name: str(rng.choice(MAKERS)) for name in names if rng.random() < 0.7}
    large = {name: feeds[name].dtype.type(np.finfo(feeds[name].dtype).max / 4) for name in makers}
    graph.initializer.extend(onnx.numpy_helper.from_array(np.array(x), f"{name}_large") for name, x in large.items())
    read_by = {name: [name, f"{name}_large"][: 2 if maker == "Mul" else 1] for name, maker in makers.items()}
    before = [onnx.helper.make_node(maker, read_by[name], [f"{name}_made"]) for name, maker in makers.items()]
    node.input[:] = [f"{name}_made" if name in makers else name for name in node.input]
    written = copy.deepcopy(node)
    del graph.node[:]
    graph.node.extend([*before, written])
    low, high = dict(feeds), dict(feeds)
    for name, maker in makers.items():
        x = feeds[name]
        edge = 100 if maker == "Exp" else 0
        usual = rng.choice((-2.0, 0.5)) if maker == "Mul" else edge / 200 + 0.5
        low[name] = np.where(rng.random(x.shape) < 0.3, edge - 1.0, usual).astype(x.dtype)
        high[name] = np.where(rng.random(x.shape) < 0.3, low[name], low[name] + 1.5).astype(x.dtype)
    return model, low, high


def draw(low: Feeds, high: Feeds, rng: np.random.Generator) -> Feeds:
    """A point, zeros among its elements."""
    found: dict[str, Array] = {}
    for name, least in low.items():
        if least.dtype not in FLOATS:
            found[name] = least
            continue
        x = least + (high[name] - least) * rng.choice((0.0, 1.0, rng.random()), least.shape)
        x = np.where((least <= 0) & (high[name] >= 0) & (rng.random(least.shape) < 0.3), 0.0, x)
        found[name] = np.clip(x.astype(least.dtype), least, high[name])
    return found


def encloses(bounds: Interval, value: Array) -> bool:
    """Whether bounds, with NaN as a fact, enclose a value."""
    x = to_torch(value)
    if tuple(x.shape) != bounds.shape or x.dtype != bounds.dtype:
        return False
    if not x.is_floating_point():
        return bool(bounds.encloses(x).all())
    low, high = (end.expand(x.shape) for end in (bounds.lower, bounds.upper))
    return bool((((low <= x) & (x <= high)) | (x.isnan() & bounds.nan)).all())


def check_case(case: OperatorCase, seed: int) -> bool:
    """Compare the outputs of a case behind others with their bounds; False where there is nothing to compare."""
    rng = np.random.default_rng(seed)
    try:
        model, low, high = behind(case, rng)
        graph, runtime = read(model), session(model)
        if has_subgraphs(graph) or black_boxes_of(graph) or not graph.input_names:
            return False
        box = [Interval.box(low[name], high[name]) for name in graph.input_names]
        bounds = Unconditional(graph, runtimes=("onnxruntime",)).run(box)
    except (RunRefusedError, RanumFalsifyError, RuntimeError, ValueError):
        return False
    except Exception as error:
        if type(error).__module__.startswith("onnxruntime"):
            return False
        raise
    for _ in range(6):
        point = draw(low, high, rng)
        try:
            values = runtime.run(None, point)
        except Exception:
            continue
        for name, bound, value in zip(graph.output_names, bounds, values, strict=True):
            assert bound is None or encloses(bound, value), f"{case.id}: {name} = {value}, not {bound}"
    return True


@pytest.mark.few(2)
@pytest.mark.parametrize(("body", "holds"), SHOWN.values(), ids=SHOWN)
def test_a_network_holds_on_outputs_where_nothing_invalid_gets_to_one(body: str, holds: bool) -> None:
    width = 2 if "MatMul" in body else 4
    model = parse(f"g (float[1, 4] x, bool[1, 4] m) => (float[1, {width}] y) {body}")
    result = rf.check(model, box={"x": (-1, 1), "m": (0, 1)}, n_starts=20, timeout=5)
    assert (result.verdict == "holds") == holds
    assert str(result).startswith("holds on outputs") == holds
    plain = rf.check(model, box={"x": (-1, 1), "m": (0, 1)}, n_starts=20, timeout=5, fail_on="any")
    assert plain.verdict != "holds"


@pytest.mark.few(25)
@pytest.mark.parametrize("case", FEW, ids=lambda case: case.id)
def test_bounds_enclose_what_is_invalid(case: OperatorCase) -> None:
    check_case(case, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_bounds_of_all_cases_enclose_what_is_invalid(case: OperatorCase) -> None:
    for seed in range(5):
        check_case(case, seed)


def check_graph(seed: int) -> bool:
    """Hold what is proved of a random model against runs, optimised and not; tell whether its outputs are finite."""
    drawn = InvalidGraph(seed)
    try:
        graph, exposed = read(drawn.model), read(drawn.exposed)
        box = [Interval.box(drawn.low[name], drawn.high[name]) for name in exposed.input_names]
        bounds = Unconditional(exposed, runtimes=("onnxruntime",)).run(box)
        analyses = analyses_of(graph, ("onnxruntime",), lambda graph, on: IntervalAnalysis(graph, runtimes=on))
        box = [Interval.box(drawn.low[name], drawn.high[name]) for name in graph.input_names]
        holds = keeps_outputs_finite(analyses, box)
    except (RunRefusedError, RanumFalsifyError):
        return False
    plain, runs = session(drawn.exposed), [session(drawn.model), session(drawn.model, optimised=True)]
    for _ in range(16):
        point = drawn.draw()
        values = plain.run(None, {name: point[name] for name in exposed.input_names})
        for name, bound, value in zip(exposed.output_names, bounds, values, strict=True):
            assert bound is None or encloses(bound, value), f"{seed}: {name} = {value}, not {bound}"
        given = {name: point[name] for name in graph.input_names}
        finite = all(np.isfinite(value).all() for run in runs for value in run.run(None, given))
        assert finite or not holds, f"{seed}: outputs hold, but for {point}"
    return holds


def test_random_models_hold_on_outputs_where_all_are_finite() -> None:
    assert sum(check_graph(seed) for seed in range(340, 400)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_random_models_hold_on_outputs_where_all_are_finite(part: int) -> None:
    for seed in range(1000 + 200 * part, 1200 + 200 * part):
        check_graph(seed)
