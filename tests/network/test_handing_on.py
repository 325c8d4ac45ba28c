"""What bodies hand on as they got it: ONNX Runtime gives other numbers there, and no proof excludes them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto
from onnx.parser import parse_model

import ranum_falsify as rf
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.errors import ModelError
from ranum_falsify.network import read
from ranum_falsify.network.nesting import black_boxes_of
from ranum_falsify.network.unrolling import find_counting, is_well_defined
from tests.network.building import session

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
ONE_MORE = "one = Constant<value_int = 1>() t = Add(s, one)"

# what the body gives after its condition, and what it computes
COUNTERS = {
    "collected": ("int64 t, int64 i", ONE_MORE),
    "collected, renamed": ("int64 t, int64 r", f"{ONE_MORE} q = Identity(i) r = Identity(q)"),
    "a state": ("int64 i, int64 r", "r = Neg(s)"),
    "a state that is collected": ("int64 i, int64 s", ""),
    "a state that is collected, renamed": ("int64 i, int64 r", "r = Identity(s)"),
}


def make(given: str, body: str, count: int, after: str = "y = Identity(rows)") -> ModelProto:
    kind = "float[n] y" if "Div" in after else "int64[n] y"
    return parse_model(
        f"{HEAD} g (int64 x) => (int64 z, {kind}) <int64 m = {{{count}}}, bool go = {{1}}> {{ [loop] z, rows = Loop"
        f" <body = b (int64 i, bool c, int64 s) => (bool d, {given})"
        f" {{ d = Identity(c) {body} }}> (m, go, x) {after} }}"
    )


@pytest.mark.parametrize("count", [1, 4, 70, 25_000])
@pytest.mark.parametrize(("given", "body"), COUNTERS.values(), ids=COUNTERS)
def test_bounds_hold_what_onnx_runtime_makes_of_the_number_of_an_iteration(given: str, body: str, count: int) -> None:
    model = make(given, body, count)
    bounds = IntervalAnalysis(read(model)).run([Interval.box(np.array(2), np.array(3))])
    for optimised in (False, True):
        found = session(model, optimised=optimised).run(None, {"x": np.array(2)})
        for known, array in zip(bounds, found, strict=True):
            assert known is not None and known.shape == array.shape
            low, high = (end.numpy() for end in known.expand())
            assert (low <= array).all() and (array <= high).all()


def test_a_condition_about_the_number_does_not_bound_what_is_counted_on() -> None:
    model = parse_model(
        f"{HEAD} g (int64 x) => (int64 y, int64 z) <int64 m = {{100}}, bool go = {{1}}> {{ y, z = Loop"
        " <body = b (int64 i, bool c, int64 s, int64 t) => (bool d, int64 i, int64 s)"
        " { two = Constant<value_int = 2>() d = Less(s, two) }> (m, go, x, x) }"
    )
    bounds = IntervalAnalysis(read(model)).run([Interval.box(np.array(0), np.array(0))])
    for known, found in zip(bounds, session(model, optimised=True).run(None, {"x": np.array(0)}), strict=True):
        assert known is not None and known.extremes[0] <= found <= known.extremes[1]


@pytest.mark.parametrize("count", [5, 25_000])
def test_a_division_by_what_onnx_says_is_never_zero_is_not_proved(count: int) -> None:
    after = f"f = Cast<to = 1>(rows) k = Constant<value_float = {float(count)}>() g = Sub(f, k) y = Div(k, g)"
    model = make(*COUNTERS["collected"], count, after=after)
    assert rf.check(model, box=(0, 1), n_starts=2, prove_timeout=0, self_check=False).verdict != "holds"


def test_numbers_that_are_computed_with_stay_exact() -> None:
    model = make("int64 t, int64 r", f"{ONE_MORE} r = Add(i, i)", 4)
    (_, rows) = IntervalAnalysis(read(model)).run([Interval.box(np.array(2), np.array(2))])
    assert rows is not None and rows.lower.tolist() == rows.upper.tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("count", [0, -1, -5])
def test_a_loop_that_never_runs_collects_nothing(count: int) -> None:
    """A body that does not say the shape of what it collects leaves the loop as it is."""
    model = parse_model(
        f"{HEAD} g (float[1] x) => (float y) <int64 m = {{{count}}}, bool go = {{1}}, float zero = {{0}}> {{ z, rows ="
        " Loop <body = b (int64 i, bool c, float s) => (bool d, float t, float[k] r) { d = Identity(c) t = Identity(s)"
        " r = Identity(x) }> (m, go, zero) y = ReduceSum <keepdims = 0> (rows) }"
    )
    (expected,) = session(model, optimised=True).run(None, {"x": np.ones(1, np.float32)})
    assert expected == 0
    result = rf.check(model, box=(-1, 1), n_starts=2, self_check=False)
    assert result.verdict == "holds" and not any("not the same for all inputs" in notice for notice in result.notices)


def scan(given: str, body: str) -> ModelProto:
    return parse_model(
        f"{HEAD} g (float[2] z, float[4,2] w) => (float[2] y, float[4,2] k) {{ y, rows = Scan <num_scan_inputs = 1,"
        f" body = b (float[2] a, float[2] e) => ({given}) {{ {body} }}> (z, w) k = Exp(rows) }}"
    )


UNWRITTEN = {
    "a slice is collected": ("float[2] q, float[2] e", "q = Add(a, e)"),
    "a state is collected": ("float[2] q, float[2] a", "q = Add(a, e)"),
    "a state is handed on": ("float[2] a, float[2] q", "q = Add(a, e)"),
    "a state is collected after": ("float[2] q, float[2] q", "q = Add(a, e)"),
}


@pytest.mark.parametrize(("given", "body"), UNWRITTEN.values(), ids=UNWRITTEN)
def test_nothing_is_known_of_what_onnx_runtime_does_not_write_in_a_scan(given: str, body: str) -> None:
    """Memory that nobody has written may hold the right numbers, so no run shows it for sure."""
    model = scan(given, body)
    assert not is_well_defined(model.graph.node[0].attribute[1].g)
    assert black_boxes_of(read(model)), "nothing is proved of a network with one"
    renamed = scan(given.replace("float[2] e", "float[2] r").replace("float[2] a", "float[2] r"), body)
    assert is_well_defined(renamed.graph.node[0].attribute[1].g) == (given.count("q") == 1)


def test_a_branch_whose_outputs_are_one_tensor_is_refused() -> None:
    text = (
        "(float[2] x, bool c) => (float[2] y, float[2] z) { [choice] y, z = If <then_branch = t () => (float[2] u,"
        " float[2] u) { u = Neg(x) }, else_branch = e () => (float[2] v, float[2] w) { v = Abs(x) w = Neg(x) }> (c) }"
    )
    with pytest.raises(ModelError, match=r"'choice' \(If\): 'u' is two outputs of a branch.*put an Identity"):
        read(parse_model(f"{HEAD} g {text}"))
    fixed = text.replace(", bool c)", ")").replace("{ [choice]", "<bool c = {1}> { [choice]")
    with pytest.raises(ModelError, match=r"'choice' \(If\)"):
        read(parse_model(f"{HEAD} g {fixed}"))


@pytest.mark.parametrize(
    ("given", "positions"), [("int64 t, int64 i", {2}), ("int64 i, int64 s", {1, 2}), ("int64 s, int64 t", set())]
)
def test_positions_of_the_number(given: str, positions: set[int]) -> None:
    assert find_counting(make(given, ONE_MORE, 2).graph.node[0].attribute[0].g) == positions
