"""What is read where greatest, least or added numbers were written, as graph networks take softmax over neighbours."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from ranum_falsify.domain.analysis import IntervalAnalysis
from ranum_falsify.domain.interval import Interval
from ranum_falsify.network import read
from ranum_falsify.selfcheck.running import Array
from tests.domain.test_shares import LEVELS, load

EDGES, NODES, HEADS = 12, 5, 2
BOX = 3.0
COLUMN = "c = Reshape(i, tall) p = Expand(c, whole)"
ROWS = f"{COLUMN} v = Reshape(i, flat)"
GATHERED = {
    "max": f"{ROWS} s = ScatterElements<axis = 0, reduction = 'max'>(z, p, x) y = Gather<axis = 0>(s, v)",
    "min": f"{ROWS} s = ScatterElements<axis = 0, reduction = 'min'>(z, p, x) y = Gather<axis = 0>(s, v)",
    "copies": f"{COLUMN} k = Cast<to = 7>(i) v = Reshape(k, flat) l = Expand(p, whole) "
    "s = ScatterElements<axis = 0, reduction = 'max'>(z, l, x) y = Gather<axis = 0>(s, v)",
    "computed twice": "a = Abs(i) c = Reshape(a, tall) p = Expand(c, whole) b = Abs(i) v = Reshape(b, flat) "
    "s = ScatterElements<axis = 0, reduction = 'max'>(z, p, x) y = Gather<axis = 0>(s, v)",
    "elements": f"{COLUMN} s = ScatterElements<axis = 0, reduction = 'max'>(z, p, x) y = GatherElements(s, p)",
}
OTHERS = {
    "another index": f"{ROWS} s = ScatterElements<axis = 0, reduction = 'max'>(z, p, x) y = Gather<axis = 0>(s, j)",
    "nothing reduced": f"{ROWS} s = ScatterElements<axis = 0>(z, p, x) y = Gather<axis = 0>(s, v)",
    "product": f"{ROWS} s = ScatterElements<axis = 0, reduction = 'mul'>(z, p, x) y = Gather<axis = 0>(s, v)",
}


def make(body: str, result: str) -> onnx.ModelProto:
    body = body.replace("'", '"')
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float[{EDGES}, {HEADS}] x, int64[{EDGES}] i, int64[{EDGES}] j, '
        f"float[{NODES}, {HEADS}] z) => (float[{EDGES}, {HEADS}] r) "
        f"<int64[2] tall = {{-1, 1}}, int64[1] flat = {{-1}}, int64[2] whole = {{{EDGES}, {HEADS}}}> "
        f"{{ {body} r = {result} }}"
    )


def bound(model: onnx.ModelProto, x: Array) -> Interval:
    indices = np.zeros(EDGES, np.int64), np.full(EDGES, NODES - 1)
    least = np.full((NODES, HEADS), -BOX, np.float32)
    boxes = [Interval.box(x, x), Interval.box(*indices), Interval.box(*indices), Interval.box(least, -least)]
    (r,) = IntervalAnalysis(read(model)).run(boxes)
    assert r is not None
    return r


@pytest.mark.parametrize("name", GATHERED)
@pytest.mark.parametrize("result", ["Identity(y)", "Sub(x, y)", "Sub(y, x)"])
def test_what_is_read_lies_within(name: str, result: str) -> None:
    rng, model = np.random.default_rng(1), make(GATHERED[name], result)
    sessions = [load(model, level) for level in LEVELS]
    for _ in range(20):
        x = rng.uniform(-BOX, BOX, (EDGES, HEADS)).astype(np.float32)
        r = bound(model, x)
        low, high = (np.broadcast_to(end.numpy(), r.shape) for end in (r.lower, r.upper))
        rises = name != "min"
        if result == "Identity(y)":
            assert bool((low >= x).all()) if rises else bool((high <= x).all())
        else:
            assert bool((high <= 0).all()) if rises == (result == "Sub(x, y)") else bool((low >= 0).all())
        for _ in range(10):
            i, j = rng.integers(0, NODES, (2, EDGES))
            z = rng.uniform(-BOX, BOX, (NODES, HEADS)).astype(np.float32)
            for session in sessions:
                found = np.asarray(session.run(None, {"x": x, "i": i, "j": j, "z": z})[0])
                assert bool(((low <= found) & (found <= high)).all())


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_is_said_of_other_places_and_reductions(name: str) -> None:
    x = np.random.default_rng(2).uniform(-BOX, BOX, (EDGES, HEADS)).astype(np.float32)
    r = bound(make(OTHERS[name], "Sub(x, y)"), x)
    assert r.extremes[0] < 0 < r.extremes[1]


def test_a_softmax_over_neighbours_is_bounded() -> None:
    body = (
        f"{GATHERED['max']} d = Sub(x, y) e = Exp(d) t = Sub(z, z) "
        "a = ScatterElements<axis = 0, reduction = 'add'>(t, p, e) q = Gather<axis = 0>(a, v)"
    )
    x = np.random.default_rng(2).uniform(-300, 300, (EDGES, HEADS)).astype(np.float32)
    r = bound(make(body, "Identity(e)"), x)
    assert r.extremes[1] <= 1.00001


SHARES = (
    f"{COLUMN} v = Reshape(i, flat) f = Expand(least, whole) h = ScatterElements<axis = 0, reduction = 'min'>(z, p, f) "
    "s = ScatterElements<axis = 0, reduction = 'max'>(h, p, x) y = Gather<axis = 0>(s, v) d = Sub(x, y) e = Exp(d) "
    "t = Sub(z, z) a = ScatterElements<axis = 0, reduction = 'add'>(t, p, e) q = Gather<axis = 0>(a, v)"
)
"""Softmax over neighbours, as PyTorch exports it: what is compared with is the least number."""
NO_SHARES = {
    "another first number": SHARES.replace("(h, p, x)", "(z, p, x)"),
    "other groups": SHARES.replace("'add'>(t, p, e)", "'add'>(t, o, e)").replace("v = ", "o = Expand(c2, whole) v = "),
}


def make_shares(body: str) -> onnx.ModelProto:
    model = make(body.replace("o = Expand(c2, whole)", "c2 = Reshape(j, tall) o = Expand(c2, whole)"), "Identity(q)")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(np.finfo(np.float32).min), "least"))
    return model


def test_one_share_at_least_is_exp_of_0() -> None:
    rng, model = np.random.default_rng(5), make_shares(SHARES)
    x = rng.uniform(-1e4, 1e4, (EDGES, HEADS)).astype(np.float32)
    r = bound(model, x)
    assert 0.99 < r.extremes[0] <= 1
    sessions = [load(model, level) for level in LEVELS]
    for _ in range(50):
        i, j = rng.integers(0, NODES, (2, EDGES))
        z = rng.uniform(-BOX, BOX, (NODES, HEADS)).astype(np.float32)
        for session in sessions:
            found = np.asarray(session.run(None, {"x": x, "i": i, "j": j, "z": z})[0])
            assert bool((r.lower.numpy() <= found).all() and (found <= r.upper.numpy()).all())


@pytest.mark.parametrize("name", NO_SHARES)
def test_else_the_least_share_may_vanish(name: str) -> None:
    x = np.random.default_rng(6).uniform(-1e4, 1e4, (EDGES, HEADS)).astype(np.float32)
    assert bound(make_shares(NO_SHARES[name]), x).extremes[0] <= 0


@pytest.mark.parametrize("reduction", ["none", "add", "max", "min", "mul"])
@pytest.mark.parametrize("axis", [0, 1])
def test_of_indices_some_are_known(reduction: str, axis: int) -> None:
    """Bounds hold wherever the others write, and are no wider than if no index were known."""
    shape, updates = (NODES, 3), (7, 3) if axis == 0 else (NODES, 7)
    size, n, m = shape[axis], *updates
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float[{NODES}, 3] x, int64[{n}, {m}] i, float[{n}, {m}] u) '
        f"=> (float[{NODES}, 3] r) "
        f'{{ r = ScatterElements<axis = {axis}, reduction = "{reduction}">(x, i, u) }}'
    )
    rng, sessions = np.random.default_rng(7), [load(model, level) for level in LEVELS]
    for _ in range(15):
        low = rng.integers(-size, size, updates)
        high = np.where(rng.uniform(size=updates) < 0.5, low, rng.integers(low, size))
        x, u = (np.sort(rng.uniform(-BOX, BOX, (2, *of)).astype(np.float32), 0) for of in (shape, updates))
        analysis = IntervalAnalysis(read(model))
        (r,) = analysis.run([Interval.box(*x), Interval.box(low, high), Interval.box(*u)])
        unknown = np.full(updates, -size), np.full(updates, size - 1)
        (wide,) = IntervalAnalysis(read(model)).run([Interval.box(*x), Interval.box(*unknown), Interval.box(*u)])
        assert r is not None and wide is not None
        least, most = (end.numpy() for end in r.expand())
        assert bool((wide.expand()[0].numpy() <= least).all() and (most <= wide.expand()[1].numpy()).all())
        for _ in range(20):
            a, b = (np.where(rng.uniform(size=of[0].shape) < 0.3, of[0], rng.uniform(*of)) for of in (x, u))
            feeds = {"x": a.astype(np.float32), "u": b.astype(np.float32)}
            for session in sessions:
                found = np.asarray(session.run(None, {**feeds, "i": rng.integers(low, high + 1)})[0])
                assert bool(((least <= found) & (found <= most)).all())
