"""Sizes that values choose: what is proved holds whatever they are, and nothing is lost behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import ranum_falsify as rf
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import read
from ranum_falsify.selfcheck.running import Array
from ranum_falsify.verify.prove.analyses import analyses_of
from tests.domain.test_shares import LEVELS, load

NODES, EDGES = 4, 5
LOOPS = (
    "a = Gather(e, first) b = Gather(e, second) same = Equal(a, b) m = Not(same) n = NonZero(m) t = Squeeze(n, zero) "
    "kept = Gather<axis = 1>(e, t) all = Concat<axis = 1>(kept, loops) to = Gather(all, second) s = Shape(to) "
    "ones = Expand(one, s) d = ScatterElements<axis = 0, reduction = 'add'>(none, to, ones)"
)
"""Degrees of the nodes of a graph, to each of which an edge to itself is added, as those that it had are removed."""
CONSTANTS = (
    f"int64 first = {{0}}, int64 second = {{1}}, int64[2, {NODES}] loops = {{0, 1, 2, 3, 0, 1, 2, 3}}, "
    f"float one = {{1}}, float[{NODES}] none = {{0, 0, 0, 0}}, float half = {{-0.5}}, int64[1] zero = {{0}}"
)
ROOT = f"g (int64[2, {EDGES}] e) => (float[n] y) <{CONSTANTS}> {{ {LOOPS} y = Pow(d, half) }}"
COUNT = "n = NonZero(k) s = Shape<start = 1>(n) c = Cast<to = 1>(s)"
CASES: dict[str, tuple[str, str]] = {
    "degree": (ROOT, "holds"),
    "degree without loops": (ROOT.replace("Concat<axis = 1>(kept, loops)", "Identity(kept)"), "violated"),
    "count and one": (
        f"g (bool[5] k) => (float[1] y) <float one = {{1}}> {{ {COUNT} d = Add(c, one) y = Div(one, d) }}",
        "holds",
    ),
    "count": (f"g (bool[5] k) => (float[1] y) <float one = {{1}}> {{ {COUNT} y = Div(one, c) }}", "violated"),
    "positions": (
        "g (bool[5] k) => (float[n] y) <float[5] t = {1, 1, 1, 1, 1}, int64[1] zero = {0}> "
        "{ n = NonZero(k) i = Squeeze(n, zero) v = Gather(t, i) y = Log(v) }",
        "holds",
    ),
    "the same mask twice": (
        "g (float[4] x, int64[4] k, int64[4] l) => (float[n] y) <float two = {2}> { "
        "a = Less(k, l) b = Less(k, l) n = NonZero(a) m = NonZero(b) v = Gather(x, n) w = Gather(x, m) "
        "s = Add(v, w) r = Add(s, two) q = Add(r, two) y = Log(q) }",
        "holds",
    ),
    "two masks": (
        "g (bool[3] k, bool[4] l) => (float[1] y) <float one = {1}> { n = NonZero(k) m = NonZero(l) "
        "c = Concat<axis = 1>(n, m) s = Shape<start = 1>(c) f = Cast<to = 1>(s) d = Add(f, one) y = Div(one, d) }",
        "holds",
    ),
    "rows kept": (
        "g (float[4, 2] x, bool[4] k) => (float[n, 2] y) <float two = {2}> "
        "{ v = Compress<axis = 0>(x, k) s = Add(v, two) y = Log(s) }",
        "holds",
    ),
    "sum of none": (
        "g (float[4] x, bool[4] k) => (float y) { v = Compress(x, k) s = ReduceSum<keepdims = 0>(v) y = Log(s) }",
        "violated",
    ),
    "mean of none, which is 0": (
        "g (float[4] x, bool[4] k) => (float y) { v = Compress(x, k) y = ReduceMean<keepdims = 0>(v) }",
        "holds",
    ),
    "infinity that a choice drops": (
        f"g (int64[2, {EDGES}] e) => (float[n] y) <{CONSTANTS}, float[1] two = {{2}}> {{ {LOOPS} c = Sub(d, one) "
        "l = Log(c) w = Softmax(l) z = Greater(c, one) y = Where(z, w, one) }",
        "unknown",
    ),
    "too many": (
        f"g (bool[300] k) => (float[1] y) <float one = {{1}}> {{ {COUNT} d = Add(c, one) y = Div(one, d) }}",
        "unknown",
    ),
}
BOX = {"x": (-1, 1), "e": (0, NODES - 1), "k": (0, 1), "l": (0, 1)}


def make(text: str) -> onnx.ModelProto:
    return parser.parse_model('<ir_version: 8, opset_import: ["": 18]> ' + text.replace("'", '"'))


def draw(model: onnx.ModelProto, rng: np.random.Generator) -> dict[str, Array]:
    drawn: dict[str, Any] = {}
    for value in model.graph.input:
        low, high = BOX[value.name]
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            drawn[value.name] = rng.uniform(low, high, shape).astype(np.float32)
        else:
            kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            share = rng.uniform(0, 1)
            drawn[value.name] = np.where(rng.uniform(0, 1, shape) < share, low, rng.integers(low, high + 1, shape))
            drawn[value.name] = drawn[value.name].astype(kind)
    return drawn


def ask(model: onnx.ModelProto, **options: Any) -> rf.Result:
    box = {value.name: BOX[value.name] for value in model.graph.input}
    return rf.check(model, box=box, n_starts=20, self_check=False, **options)


@pytest.mark.parametrize("name", CASES)
def test_verdicts_are_right_whatever_the_sizes(name: str) -> None:
    text, verdict = CASES[name]
    model = make(text)
    found = ask(model, timeout=8, prove_timeout=2)
    assert found.verdict == verdict, found
    if verdict == "holds":
        rng, sessions = np.random.default_rng(3), [load(model, level) for level in LEVELS]
        for _ in range(100):
            feeds = draw(model, rng)
            for session in sessions:
                (y,) = session.run(None, feeds)
                assert bool(np.isfinite(np.asarray(y)).all())


@pytest.mark.parametrize("name", ["degree", "positions", "the same mask twice", "two masks", "rows kept"])
def test_bounds_of_a_reading_hold_where_sizes_are_those(name: str) -> None:
    """All tensors of a run lie within the bounds of the box, read with the sizes that the run has."""
    model = make(CASES[name][0])
    graph = read(model)
    names = [node.output[0] for node in model.graph.node]
    shown = make(CASES[name][0])
    shown.graph.output.extend(onnx.ValueInfoProto(name=one) for one in names if one != "y")
    session, rng = load(shown, LEVELS[0]), np.random.default_rng(4)
    analyses = analyses_of(graph, ("onnxruntime",), lambda of, runtimes: IntervalAnalysis(of, runtimes=runtimes))
    boxes = [
        Interval.box(*(np.full(d.shape, end, d.dtype) for end in BOX[name]))
        for name, d in zip(graph.input_names, graph.input_details, strict=True)
    ]
    chosen = [node.output[0] for node in model.graph.node if node.op_type in ("NonZero", "Compress")]
    for _ in range(30):
        feeds = draw(model, rng)
        run: Mapping[str, Array] = dict(
            zip([o.name for o in shown.graph.output], map(np.asarray, session.run(None, feeds)), strict=True)
        )
        axes = {n.output[0]: 1 if n.op_type == "NonZero" else 0 for n in model.graph.node}
        again = analyses.read_with({one: run[one].shape[axes[one]] for one in chosen})
        assert again is not None
        again.written.run(boxes)
        for op in again.written.graph.nodes:
            bounds = again.written.bounds_of(op)
            assert bounds is not None, op.name
            low, high = (end.numpy() for end in bounds.expand())
            value = run[op.output_names[0]]
            assert value.shape == bounds.shape
            assert bool(((low <= value) & (value <= high)).all()), op.name


def test_on_one_input_bounds_are_those_of_its_sizes() -> None:
    """Watched bounds reach behind sizes that values choose."""
    graph = read(make(ROOT))
    analyses = analyses_of(graph, ("onnxruntime",), lambda of, runtimes: IntervalAnalysis(of, runtimes=runtimes))
    edges = np.array([[0, 1, 1, 2, 3], [0, 2, 1, 2, 0]])
    written, *_ = analyses.run([Interval.box(edges, edges)])
    (degree,) = (op for op in written.graph.nodes if op.output_names[0] == "d")
    bounds = written.bounds_of(degree)
    assert bounds is not None
    for end in (bounds.lower, bounds.upper):
        assert end.tolist() == pytest.approx([2.0, 1.0, 2.0, 1.0])


def test_rows_and_columns_that_one_mask_keeps_are_not_as_many() -> None:
    """Of a mask that is longer than an axis, the rest does not count there."""
    text = (
        "g (float[4, 2] x, bool[4] k) => (float[1] y) <float one = {1}> { a = Compress<axis = 0>(x, k) "
        "b = Compress<axis = 1>(x, k) s = Shape<end = 1>(a) t = Shape<start = 1>(b) d = Sub(s, t) "
        "f = Cast<to = 1>(d) e = Add(f, one) l = Sub(e, one) m = Abs(l) n = Sub(one, m) y = Div(one, n) }"
    )
    assert ask(make(text), timeout=8, prove_timeout=1).verdict != "holds"


def test_an_explanation_is_of_the_greatest_sizes() -> None:
    found = ask(make(ROOT), timeout=8)
    said = found.explain("Pow_y")
    assert f"N: Pow_y (Pow), where values choose {EDGES} for n" in said and "nothing that comes after" not in said


def test_outputs_are_bounded_by_those_of_all_sizes() -> None:
    """A degree is at least 1, and a property of the root may rest on it."""
    text = (
        "from dnnv.properties import *\nfrom ranum_falsify.properties import *\nN = Network('N')\n"
        f"Forall(e, Implies(And(0 <= e, e <= {NODES - 1}), N(e)[0] <= {{most}}))"
    )
    for most, verdict in ((1.1, "holds"), (0.9, "violated")):
        found = rf.falsify(make(ROOT), text.format(most=most), timeout=8, self_check=False)
        assert found.verdict == verdict
