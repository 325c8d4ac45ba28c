"""VNN-LIB: what is read, what it means, and how disjunctions become cases."""

from __future__ import annotations

import gc
import gzip
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.errors import PropertyError
from ranum_falsify.network import Graph
from ranum_falsify.properties.language.parse import parse, parse_text
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.reduce import reduce
from tests.properties.properties_kit import calls_of, failure, mutate, network, run


def reduced(text: str, networks: Mapping[str, Graph] | None = None) -> Problem:
    return reduce(parse_text(text, Path("q"), vnnlib=True), networks or {"N": vnnlib_network()})


SPEC = """; a comment; (assert (<= X_0 99))
(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(assert (<= X_0 1e-05))
(assert (>= X_0 -1.5E+3))
(assert (<= -2 X_1))
(assert (<= X_1 .5))
(assert (or
  (and (<= Y_0 Y_1) (>= Y_0 1.))
  (and (>= Y_1 (+ (* 2.0 Y_0) 3)))))
; a last comment, with ä and no line end"""


def vnnlib_network(inputs: int = 2, outputs: int = 2) -> Any:
    return network(f"(float[1,{inputs}] x) => (float[1,{outputs}] y) {{ y = Neg(x) }}")


def test_vnnlib_numbers_comments_and_disjunctions(write: Any) -> None:
    for name, data in (("a.vnnlib", SPEC.encode()), ("b.vnnlib.gz", gzip.compress(SPEC.encode()))):
        reduced = reduce(parse(write(data, name)), {"N": vnnlib_network()})
        (x,) = reduced.inputs
        assert x.lower.tolist() == [[-1500, -2]]
        assert x.upper[0, 1] == 0.5 and 0 < 1e-5 - float(x.upper[0, 0]) < 1e-12
        assert reduced.clause_names[1].startswith("not (Y_1 >= ")

        for point, expected in {
            (-1, -1): False,
            (-0.5, -1): True,
            (-2, -2): False,
            (-2, -1): True,
            (9, 9): True,
        }.items():
            assert reduced.holds({"X": np.array([point], np.float32)}, run) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("(assert (<= X_0 1e-05))", "(assert (<= X_7 1))"), ":6: unknown identifier 'X_7'"),
        (("(declare-const X_1 Real)", "(declare-const X_0 Real)"), ":3: identifier 'X_0' is declared twice"),
        (("(<= Y_0 Y_1)", "(<= Y_0 Y_9)"), ":11: unknown identifier 'Y_9'"),
        (("(<= Y_0 Y_1)", "(nonsense Y_0 Y_1)"), ":11: unknown identifier 'nonsense'"),
        (("(<= Y_0 Y_1)", "(let ((a Y_0)) (<= a Y_1))"), "'let' is not currently supported"),
        (("3)))))", "3))))"), "unexpected end of file"),
        (("(assert (or", "(assert [or"), ":10: unexpected character '['"),
    ],
)
def test_what_is_wrong_in_vnnlib_is_said_with_its_line(write: Any, change: tuple[str, str], message: str) -> None:
    assert change[0] in SPEC
    assert message in failure(write(SPEC.replace(*change), "a.vnnlib"))


def test_vnnlib_has_no_parameters(write: Any) -> None:
    assert "has no parameters" in failure(write(SPEC, "a.vnnlib"), {"eps": "1"})


def test_an_index_beyond_the_network_is_an_error(write: Any) -> None:
    with pytest.raises(PropertyError, match="index 1 is out of bounds"):
        reduce(parse(write(SPEC, "a.vnnlib")), {"N": vnnlib_network(1, 1)})


def many_assertions(count: int) -> str:
    lines = [f"(declare-const {name}_{i} Real)" for name in "XY" for i in range(count)]
    for i in range(count):
        lines += [f"(assert (<= X_{i} {0.5 + i * 1e-4}))", f"(assert (>= X_{i} {-i * 1e-4}))"]
    lines.append("(assert (or " + " ".join(f"(and (>= Y_{i} Y_9))" for i in range(9)) + "))")
    return "\n".join(lines)


def test_work_grows_with_the_number_of_assertions_and_no_faster(write: Any) -> None:
    def work(count: int) -> int:
        path, graph = write(many_assertions(count), "big.vnnlib"), vnnlib_network(count, count)
        return calls_of(lambda: reduce(parse(path), {"N": graph}))

    work(64)  # what is imported or cached at the first use
    assert work(1024) < 4.5 * work(256)


def test_thousands_of_assertions(write: Any) -> None:
    reduced = reduce(parse(write(many_assertions(3072), "big.vnnlib")), {"N": vnnlib_network(3072, 3072)})
    assert len(reduced.clauses) == 9 and not reduced.penalties
    np.testing.assert_allclose(reduced.inputs[0].upper[0], 0.5 + np.arange(3072) * 1e-4, rtol=1e-6)


def test_mutated_files_raise_nothing_else(write: Any) -> None:
    rng = random.Random(0)
    for text, networks in ((SPEC, {"N": vnnlib_network()}), (SECOND, second_networks())):
        for _ in range(200):
            try:
                reduce(parse(write(mutate(text, rng), "p.vnnlib")), networks)
            except PropertyError as error:
                assert "\n" not in str(error)


# -------------------------------------------------------------------------------------------------------- version 2

SECOND = """(vnnlib-version <2.0>)
(declare-network f
    (declare-input A float32 [1,2])
    (declare-input s real [])
    (declare-output B float32 [2] "name in the model"))
(declare-network g
    (equal-to f)
    (declare-input C float32 [1, 2])
    (declare-input t Real [])
    (declare-output D float32 [2]))
(declare-network h
    (isomorphic-to f)
    (declare-input E float32 [1,2]) (declare-input u real [])
    (declare-output F float32 [2]))
(assert (and (>= A[0,0] 0) (<= A[0,0] 1) (== A[0,1] 0.5) (<= 0 s) (<= s[] 1)))
(assert (and (>= C[0, 0] 2) (<= C[0, 0] 3) (== C[0, 1] 0.5) (== t 1)))
(assert (and (>= E[0,0] 0) (<= E[0,0] 0) (== E[0,1] 0) (== u 0)))
(assert (or (> (+ B[0] (* 2 D[1]) (- F[0])) 7.5) (!= B[1] 0.5)))
"""


def second_networks() -> dict[str, Graph]:
    text = (
        "(float[1,2] x, float z) => (float[2] y) { s = Add(x, z) a = Constant<value_ints = [0]>() y = Squeeze(s, a) }"
    )
    return {"f": network(text), "h": network(text)}


def test_networks_with_several_tensors() -> None:
    problem = reduced(SECOND, second_networks())
    assert {v.name: v.shape for v in problem.inputs} == {
        **{name: (1, 2) for name in "ACE"},
        **{name: () for name in "stu"},
    }
    assert [call.network for call in problem.calls] == ["f", "f", "h"]
    point = {
        "A": np.array([[1, 0.5]], np.float32),
        "s": np.array(0, np.float32),
        "C": np.array([[2, 0.5]], np.float32),
        "t": np.array(1, np.float32),
        "E": np.zeros((1, 2), np.float32),
        "u": np.array(0, np.float32),
    }
    assert problem.holds(point, run)  # 1 + 2 * 1.5 - 0 is not above 7.5
    assert not problem.holds({**point, "s": np.array(1, np.float32)}, run)  # the second element of B is 1.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("<2.0>", "<3.0>"), ":1: VNN-LIB 3.0 is not supported"),
        (("(equal-to f)", "(equal-to k)"), ":7: equal-to names a network that is declared before"),
        (("(declare-input C", "(declare-input A"), ":8: identifier 'A' is declared twice"),
        (("(declare-network h", "(declare-network f"), ":11: network 'f' is declared twice"),
        (("A float32", "A floot32"), ":3: element type 'floot32' is not supported; did you mean float32?"),
        (("(declare-output F", "(declare-hidden F"), ":14: hidden tensors are not supported"),
        (("C[0, 1]", "C[0, 2]"), ":16: 'C[0, 2]' is no element: C has shape [1, 2]"),
        (("C[0, 1]", "C[1]"), "is no element"),
        (("C[0, 1]", "K[0, 1]"), "unknown identifier 'K[0, 1]'"),
        (("(assert (and (>= A", "(declare-const X_0 Real) (assert (and (>= A"), "cannot stand in one query"),
        (('"name in the model"', "7"), ":5: a tensor is declared as (declare-output X float32 [1,2])"),
        (("(== t 1)", "t"), "a formula is needed in place of 't'"),
        (("(!= B[1] 0.5)", "(!= B[1])"), "'!=' has 1 operands"),
    ],
)
def test_what_is_wrong_in_version_2_is_said_with_its_line(write: Any, change: tuple[str, str], message: str) -> None:
    assert change[0] in SECOND
    assert message in failure(write(SECOND.replace(*change, 1), "p.vnnlib"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("A float32 [1,2]", "A float32 [2,1]"), "A is declared float32 [2, 1], but is float32 [1, 2] in the model"),
        (("E float32", "E float64"), "E is declared float64 [1, 2], but is float32 [1, 2] in the model"),
        (("F float32 [2]", "F float32 [2,1]"), "F is declared float32 [2, 1], but is float32 [2] in the model"),
    ],
)
def test_declarations_that_do_not_fit_the_model(change: tuple[str, str], message: str) -> None:
    indices = {"A[0,0]": "A[0,0]", "A[0,1]": "A[1,0]", "F[0]": "F[0,0]"}
    text = SECOND.replace(*change, 1)
    for old, new in indices.items():
        if old[0] == change[0][0]:
            text = text.replace(old, new)
    with pytest.raises(PropertyError) as caught:
        reduced(text, second_networks())
    assert message in str(caught.value)


# ------------------------------------------------------------------------------------------------- several tensors


def test_version_1_counts_through_all_inputs_and_outputs() -> None:
    names = [f"X_{i}" for i in range(4)] + [f"Y_{i}" for i in range(3)]
    text = "".join(f"(declare-const {name} Real)" for name in names)
    text += "".join(f"(assert (<= X_{i} {i + 1})) (assert (>= X_{i} {i}))" for i in range(4))
    text += "(assert (>= (+ Y_0 Y_2 X_3) 7))"
    graph = network("(float[2] x, float[2] z) => (float[2] y, float[1] w) { y = Neg(x) w = ReduceMax<keepdims=1>(z) }")
    problem = reduced(text, {"N": graph})
    assert [v.lower.tolist() for v in problem.inputs] == [[0, 1], [2, 3]]
    names = [v.name for v in problem.inputs]
    point = {names[0]: np.array([1, 1], np.float32), names[1]: np.array([2, 4], np.float32)}
    assert not problem.holds(point, run)  # -1 + 4 + 4 is 7
    assert problem.holds({**point, names[1]: np.array([2, 3.5], np.float32)}, run)


# ----------------------------------------------------------------------------------------------------------- cases

DECLARATIONS = "".join(f"(declare-const {name} Real)" for name in ("X_0", "X_1", "Y_0", "Y_1"))
WITHIN = "".join(f"(assert (<= -2 X_{i})) (assert (<= X_{i} 2))" for i in range(2))
Point = dict[str, float]
Truth = tuple[str, Callable[[Point], bool]]

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "=": lambda a, b: a == b,
}


@st.composite
def _comparisons(draw: st.DrawFn) -> Truth:
    kind = draw(st.sampled_from(sorted(_COMPARE)))
    name, other = (draw(st.sampled_from(["X_0", "X_1", "Y_0", "Y_1"])) for _ in range(2))
    number = draw(st.integers(-2, 2))
    if draw(st.booleans()):
        return f"({kind} {name} {number})", lambda p: _COMPARE[kind](p[name], number)
    if draw(st.booleans()):
        return f"({kind} {number} {name})", lambda p: _COMPARE[kind](number, p[name])
    return f"({kind} (+ {name} 1) (* 2 {other}))", lambda p: _COMPARE[kind](p[name] + 1, 2 * p[other])


def _join(word: str, decide: Callable[..., bool]) -> Callable[[list[Truth]], Truth]:
    def join(parts: list[Truth]) -> Truth:
        return f"({word} {' '.join(text for text, _ in parts)})", lambda p: decide(truth(p) for _, truth in parts)

    return join


def _deny(part: Truth) -> Truth:
    return f"(not {part[0]})", lambda p: not part[1](p)


FORMULAS = st.recursive(
    _comparisons(),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(_join("and", all)),
        st.lists(inner, min_size=1, max_size=3).map(_join("or", any)),
        inner.map(_deny),
    ),
    max_leaves=12,
)
GRID = [(a / 2, b / 2) for a in range(-5, 6) for b in range(-5, 6)]


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(FORMULAS, min_size=1, max_size=3))
def test_a_query_means_what_it_says_whatever_its_cases(parts: list[Truth]) -> None:
    text = DECLARATIONS + WITHIN + "".join(f"(assert {part})" for part, _ in parts)
    try:
        problem = reduced(text)
    except PropertyError as error:
        assert any(
            word in str(error) for word in ("does not depend", "does not mention", "no input", "always", "above its")
        )
        return
    for a, b in GRID:
        point = {"X_0": a, "X_1": b, "Y_0": -a, "Y_1": -b}
        expected = abs(a) <= 2 and abs(b) <= 2 and all(truth(point) for _, truth in parts)
        env = {"X": np.array([[a, b]], np.float32)}
        assert problem.holds(env, run) == (not expected), (text, point)
        assert problem.contains(env) or not expected
        for case in problem.cases:
            assert problem.contains(env) or not case.contains(env)


def boxes(count: int, goal: str) -> str:
    """A disjunction of boxes of width 1 along X_0, each with a condition on an output."""
    parts = [f"(and (>= X_0 {2 * i}) (<= X_0 {2 * i + 1}) (= X_1 0.1) {goal.format(i=i)})" for i in range(count)]
    return f"{DECLARATIONS}(assert (or {' '.join(parts)}))"


def test_boxes_of_a_disjunction_become_cases_of_one_element_each() -> None:
    problem = reduced(boxes(70, "(<= Y_0 -{i})"))
    assert len(problem.cases) == len(problem.regions) == 70
    assert problem.inputs[0].upper.tolist()[0][0] == 139
    # 0.1 is no float32 number; the nearest one counts.
    assert not problem.holds({"X": np.array([[5, 0.1]], np.float32)}, run)
    assert problem.holds({"X": np.array([[1.5, 0.1]], np.float32)}, run)


def test_boxes_with_one_condition_in_common_are_one_case() -> None:
    problem = reduced(boxes(3, "") + "(assert (<= Y_0 -1))")
    assert not problem.cases and len(problem.regions) == 3


def test_more_cases_than_can_be_told_apart_stay_a_condition() -> None:
    count = 40
    names = "".join(f"(declare-const {name}_{i} Real)" for name in "XY" for i in range(count))
    either = "".join(
        f"(assert (or (and (>= X_{i} 0) (<= X_{i} 1)) (and (>= X_{i} 3) (<= X_{i} 4))))" for i in range(count)
    )
    problem = reduced(f"{names}{either}(assert (>= Y_0 1))", {"N": vnnlib_network(count, count)})
    assert problem.inputs[0].lower.tolist() == [[0] * count] and problem.inputs[0].upper.tolist() == [[4] * count]
    assert 1 < len(problem.regions) < 5000 and problem.penalties
    inside = np.full((1, count), 3.5, np.float32)
    assert problem.holds({"X": inside}, run)
    assert not problem.holds({"X": inside}, lambda call, arrays: (arrays[0],))
    between = inside.copy()
    between[0, -1] = 2
    assert problem.holds({"X": between}, lambda call, arrays: (arrays[0],))


def test_a_box_of_a_disjunction_takes_few_calls() -> None:
    def work(count: int) -> int:
        return calls_of(lambda: reduced(boxes(count, "(<= Y_0 -{i})")))

    work(64)  # what is imported or cached at the first use
    assert work(512) - work(256) < 256 * 1000


@pytest.mark.slow
def test_no_collector_looks_at_boxes_while_they_are_read() -> None:
    text, seen = boxes(2000, "(<= Y_0 -{i})"), []
    gc.callbacks.append(lambda phase, info: seen.append(info["generation"]))
    try:
        gc.collect()
        seen.clear()
        problem = reduced(text)
    finally:
        gc.callbacks.pop()
    assert len(problem.regions) == 2000 and seen.count(2) <= 2 and gc.isenabled()
