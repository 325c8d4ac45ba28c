"""Loops that are too long to be unrolled, and collect rows: how many there are, and bounds of them."""

from __future__ import annotations

import time

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto
from onnx.parser import parse_graph, parse_model

import ranum_falsify as rf
import ranum_falsify.operators
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.errors import ModelError
from ranum_falsify.network import Graph, read

LONG = 25_000
SETTLING = "t = Mul(s, w) r = Sqrt(t) q = Neg(i)"
BODIES = {
    "one number each": SETTLING,
    "the state": "t = Mul(s, w) r = Add(t, x) q = Identity(i)",
    "a comparison": "t = Clip(s, zero, one) b0 = Greater(t, w) r = Cast<to = 1>(b0) q = Add(i, i)",
    "what is captured": "t = Identity(s) r = Max(x, w) q = Mul(i, i)",
}


def make(body: str, *, count: int = LONG, condition: str = "d = Identity(c)", start: str = "go") -> ModelProto:
    """Return a model of a loop that hands on a vector, and collects a vector and an integer."""
    model = parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, float[2] w) => (float[2] y, float[n,2] z, int64[m] k)'
        f" <int64 count = {{{count}}}, bool go = {{1}}, float zero = {{0}}, float one = {{1}}>"
        f"{{ [loop] y, z, k = Loop(count, {start}, x) }}"
    )
    graph = f"b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] r, int64 q) {{ {condition} {body} }}"
    attribute = model.graph.node[0].attribute.add(name="body", type=5)
    attribute.g.CopyFrom(parse_graph(graph))
    return model


def bound(graph: Graph, low: float, high: float) -> tuple[Interval | None, ...]:
    boxes = [Interval.box(np.full(2, low, np.float32), np.full(2, high, np.float32)) for _ in graph.inputs]
    return IntervalAnalysis(graph).run(boxes)


@pytest.mark.few(1)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("box", [(0.0, 0.75), (0.25, 1.0)])
def test_bounds_hold_every_row(body: str, box: tuple[float, float]) -> None:
    model = make(body)
    graph = read(model)
    assert [tuple(one.shape) for one in graph.output_details] == [(2,), (LONG, 2), (LONG,)]
    bounds = bound(graph, *box)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for x in (np.array(box), rng.uniform(*box, 2), np.full(2, box[0]), np.full(2, box[1])):
        feeds = {"x": x.astype(np.float32), "w": x[::-1].astype(np.float32)}
        for known, found in zip(bounds, session.run(None, feeds), strict=True):
            assert known is not None and known.shape == found.shape
            low, high = (end.numpy() for end in known.expand())
            assert (low <= found).all() and (found <= high).all()


@pytest.mark.slow
def test_a_million_iterations_are_read_at_once_and_fewer_decided() -> None:
    began = time.monotonic()
    y, z, k = bound(read(make(SETTLING, count=10**6)), 0, 1)
    assert y is not None and z is not None and k is not None
    assert [one.shape for one in (y, z, k)] == [(2,), (10**6, 2), (10**6,)]
    assert time.monotonic() - began < 20
    # ONNX Runtime, which runs it before it holds, takes a kilobyte for each row.
    assert rf.check(make(SETTLING, count=10**5), box=(0, 1), timeout=60, self_check=False).verdict == "holds"


@pytest.mark.parametrize(
    ("condition", "start", "has_number"),
    [
        ("d = Identity(c)", "go", True),
        ("d = Identity(c)", "", True),
        ("d = Or(c, c)", "go", True),
        ("h = ReduceSum<keepdims = 0>(s) d = Greater(h, zero)", "go", False),
        ("h = RandomUniform<shape = [1]>() f = Squeeze(h) g = Greater(f, zero) d = Or(g, c)", "go", False),
    ],
)
def test_rows_have_a_number_only_where_the_condition_is_handed_on(condition: str, start: str, has_number: bool) -> None:
    graph = read(make(SETTLING, condition=condition, start=start))
    _, z, k = bound(graph, 0.25, 0.75)
    assert (z is not None, k is not None) == (has_number,) * 2


def test_rows_after_an_operator_that_may_fail_are_anything() -> None:
    z = bound(read(make("t = Sub(s, w) r = Sqrt(t) q = Neg(i)")), 0, 1)[1]
    assert z is not None and z.shape == (LONG, 2)
    low, high = z.extremes
    assert low < -1e38 and high > 1e38


def test_rows_that_need_too_much_memory_are_refused_at_once() -> None:
    with pytest.raises(ModelError, match=r"'loop' \(Loop\): its 1,000,000,000 .* 16,000,000,000 bytes.*fewer"):
        read(make(SETTLING, count=10**9))
