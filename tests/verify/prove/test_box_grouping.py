"""Proofs of many boxes by the hulls of some say what proofs of each box say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ranum_falsify.config import ProveConfig, SearchConfig
from ranum_falsify.network import Graph
from ranum_falsify.properties.language.parse import parse_text
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.prove.proof import Proof
from ranum_falsify.verify.prove.prover import Prover
from tests.properties.properties_kit import network, problem

DECLARATIONS = "".join(f"(declare-const {name} Real)" for name in ("X_0", "X_1", "Y_0", "Y_1"))


def polynomial(dtype: str = "float") -> Graph:
    """Return x * x - x, element by element."""
    return network(f"({dtype}[1,2] x) => ({dtype}[1,2] y) {{ s = Mul(x, x) y = Sub(s, x) }}")


def query(parts: list[str], graph: Graph) -> Problem:
    """Return the problem that no part has a solution."""
    return reduce(parse_text(f"{DECLARATIONS}(assert (or {' '.join(parts)}))", Path("q"), vnnlib=True), {"N": graph})


def part(low: Any, high: Any, condition: str) -> str:
    bounds = " ".join(f"(>= X_{i} {a}) (<= X_{i} {b})" for i, (a, b) in enumerate(zip(low, high, strict=True)))
    return f"(and {bounds} {condition})"


def squares(count: int, limit: float, *, width: float = 0.5, gap: float = 0.5) -> list[str]:
    """Return parts in which an output is at most a limit, in boxes side by side that begin at 1."""
    starts = 1 + (width + gap) * np.arange(count)
    return [part((a, 1), (a + width, 2), f"(<= Y_0 {limit - i / 2**10})") for i, a in enumerate(starts)]


def analyse(reduced: Problem) -> Proof:
    return Prover(reduced, ProveConfig()).analyse()


def each_alone(reduced: Problem) -> list[Problem]:
    """Return a problem of each region."""
    pairs = [(case, region) for case in reduced.each_case for region in case.regions]
    return [replace(case, inputs=region, regions=(region,)) for case, region in pairs]


def count_analyses(reduced: Problem) -> float:
    """Return how many boxes and hulls are analysed until the problem is proved, as the prover ticks at operators."""
    ticks = [0, 0]
    for number, one in enumerate((each_alone(reduced)[0], reduced)):

        def tick(number: int = number) -> None:
            ticks[number] += 1

        assert Prover(one, ProveConfig(), tick=tick).analyse().holds
    return ticks[1] / ticks[0]


# the law -----------------------------------------------------------------------------------------------------------


def draw_part(rng: np.random.Generator, form: int) -> str:
    """Return a box, often with sides in common with others, and a condition that some of its points are near."""
    low = rng.integers(-4, 5, 2)
    high = low + rng.choice([0, 0, 1, 2], 2)
    middle = (low + high) / 2
    near = middle * middle - middle + rng.choice([-8, -2, -1, 0, 2], 2)
    forms = [
        f"(<= Y_0 {near[0]})",
        f"(>= Y_1 {near[1]})",
        f"(<= Y_0 {near[0]}) (< Y_1 {near[1]})",
        f"(or (<= Y_0 {near[0]}) (and (<= Y_1 {near[1]}) (<= X_0 {middle[0]})))",
        f"(<= (+ Y_0 {near[1]}) (- Y_1 2.0))",
        f"(<= Y_0 {near[0]}) (<= (+ X_0 X_1) {low.sum() + rng.integers(-1, 2)})",
    ]
    return part(low, high, forms[form])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float", "double", "int32"])
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**31), count=st.integers(32, 48), forms=st.sets(st.integers(0, 5), min_size=1))
def test_regions_hold_together_where_each_holds_alone(dtype: str, seed: int, count: int, forms: set[int]) -> None:
    rng = np.random.default_rng(seed)
    reduced = query([draw_part(rng, int(rng.choice(sorted(forms)))) for _ in range(count)], polynomial(dtype))
    alone = each_alone(reduced)
    together = analyse(reduced)
    # Linear bounds may decide more of them.
    assert together.held_regions >= {number for number, one in enumerate(alone) if analyse(one).holds}
    assert together.holds == (len(together.held_regions) == len(alone))
    for number in together.held_regions:
        (x,) = alone[number].inputs
        for point in (x.lower, x.upper, (x.lower / 2 + x.upper / 2).astype(x.dtype)):
            assert alone[number].holds({x.name: point}, lambda call, arrays: (arrays[0] * arrays[0] - arrays[0],))


# how many analyses -------------------------------------------------------------------------------------------------


def test_a_hull_decides_thousands_of_boxes() -> None:
    # The box that is watched is analysed, too.
    assert count_analyses(query(squares(2000, -1.0), polynomial())) == 2


def test_hulls_that_decide_nothing_are_few() -> None:
    # The product and the difference are bounded apart, which is too little on a hull; integers have no linear bounds.
    parts = [part((a, 1), (a + 1, 2), f"(<= Y_0 {a * a - a - 1 - 1e-3})") for a in range(1, 101)]
    assert 100 <= count_analyses(query(parts, polynomial("int32"))) <= 113


@pytest.mark.few(1)
@pytest.mark.parametrize("count", [100, 600], ids=["after single boxes", "before them"])
def test_linear_bounds_decide_boxes_in_batches(count: int) -> None:
    sides = [(11 + number % 100, number // 100) for number in range(count)]
    parts = [part((a, b), (a + 1, b + 1), f"(<= Y_0 {a * a - a - 0.5})") for a, b in sides]
    reduced = query(parts, polynomial())
    assert not any(analyse(one).holds for one in each_alone(reduced)[:50]), "intervals say too little of x * x - x"
    assert analyse(reduced).holds
    false = query([*parts, part((5, 1), (6, 2), "(<= Y_0 20.0)")], polynomial())
    assert analyse(false).held_regions == set(range(count))


def test_the_same_box_is_analysed_once() -> None:
    parts = [
        part((a, 1), (a + 1, 2), f"({kind} {limit})")
        for a in range(1, 101)
        for kind, limit in (("<= Y_0", a * a - a - 1 - 1e-3), (">= Y_0", a * a + a + 1 + 1e-3))
    ]
    assert 100 <= count_analyses(query(parts, polynomial("int32"))) <= 113


def test_few_boxes_and_those_with_little_in_common_are_proved_one_by_one() -> None:
    assert count_analyses(query(squares(31, -1.0), polynomial())) == 31
    unlike = [part((a, 1), (a + 1, 2), f"(<= (* {a}.0 Y_0) -1.0)") for a in range(1, 101)]
    assert count_analyses(query(unlike, polynomial())) == 100


# extremes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "most"), [("float", 3.4028234663852886e38), ("double", 1.7976931348623157e308)])
def test_hulls_of_the_greatest_numbers(dtype: str, most: float) -> None:
    graph = network(f"({dtype}[1,2] x) => ({dtype}[1,2] y) {{ y = Abs(x) }}")
    ends = [-most, -1.0, -0.0, 0.0, 5e-324, 1.0, most]
    parts = [part((a, 1), (b, 2), f"(< Y_0 {limit}.0)") for limit in (-1, 0) for a in ends for b in ends if a <= b]
    assert analyse(query(parts, graph)).holds
    reduced = query([*parts, part((-most, 1), (1, 1), "(<= Y_0 0.5)")], graph)
    assert analyse(reduced).held_regions == set(range(len(parts)))


# violations and validity -------------------------------------------------------------------------------------------


def test_a_violated_box_among_hundreds_is_found() -> None:
    parts = squares(300, -1.0)
    parts[217] = part((500, 1), (501, 2), "(<= Y_0 249600.0)")  # y is 249500 at 500
    reduced = query(parts, polynomial())
    config = SearchConfig(n_starts=20, n_steps=40, timeout=60.0, processors=1)
    answer = falsify(reduced, config)
    assert answer.verdict == "violated" and answer.counterexample is not None
    x = answer.counterexample.inputs["X"]
    assert 500 <= x[0, 0] <= 501 and x[0, 0] * x[0, 0] - x[0, 0] <= 249600


def validity_over(graph: Graph, bounds: list[tuple[float, float]]) -> Problem:
    either = ", ".join(f"{low} <= x <= {high}" for low, high in bounds)
    return problem(f"Forall(x, Implies(Or({either}), no_invalid_input(N(x))))", networks={"N": graph})


def operators(proof: Proof) -> Mapping[str, bool]:
    return {o.node: o.proved for o in proof.operators.values()}


def test_operators_valid_on_every_box_are_proved_although_no_hull_shows_it() -> None:
    graph = network("(float[2] x) => (float[2] y) { d = Reciprocal(x) y = Sqrt(d) }")
    boxes = [(1.0 + i, 1.5 + i) for i in range(40)]
    assert operators(analyse(validity_over(graph, boxes))) == {"Reciprocal_d": True, "Sqrt_y": True}
    divided = network("(float[2] x) => (float[2] y) { y = Reciprocal(x) }")
    both = [(sign * a - 0.25, sign * a + 0.25) for a in range(1, 31) for sign in (-1, 1)]
    proof = analyse(validity_over(divided, both))
    assert proof.holds and operators(proof) == {"Reciprocal_y": True}
    proof = analyse(validity_over(divided, [*both, (-0.25, 0.25)]))
    assert not proof.holds and operators(proof) == {"Reciprocal_y": False}
    assert proof.held_regions == set(range(60))


@pytest.mark.parametrize("shape", ["1,2", "2"])
def test_many_conditions_on_one_point_are_decided(shape: str) -> None:
    """No input of the hull can be cut, and each condition is one of its own."""
    graph = network(f"(float[{shape}] x) => (float[{shape}] y) {{ s = Mul(x, x) y = Sub(s, x) }}")
    reduced = query([part((0.5, 0.5), (0.5, 0.5), f"(<= Y_0 {-0.2 - i / 1024})") for i in range(44)], graph)
    assert falsify(reduced, SearchConfig(n_starts=4, timeout=60.0)).verdict == "violated"


def test_inputs_without_dimensions_are_bounded_in_batches() -> None:
    graph = network("(float x) => (float y) { s = Mul(x, x) y = Sub(s, x) }")
    parts = [f"(and (>= X_0 {a}) (<= X_0 {a + 1}) (<= Y_0 {a * a - a - 0.5}))" for a in range(11, 51)]
    text = f"(declare-const X_0 Real)(declare-const Y_0 Real)(assert (or {' '.join(parts)}))"
    assert analyse(reduce(parse_text(text, Path("q"), vnnlib=True), {"N": graph})).holds


def test_what_is_one_number_on_every_box_is_bounded_in_batches() -> None:
    """A step that is condensed to a constant has no inputs to descend to."""
    graph = network(
        "(float[1,2] x) => (float[1,2] y) { s = Sign(x) m = ReduceMean <axes = [1]> (s) q = Sqrt(m) y = Add(x, q) }"
    )
    parts = [part((a, 1), (a + 1, 2), f"(<= Y_0 {a + 1})") for a in range(11, 51)]
    assert falsify(query(parts, graph), SearchConfig(n_starts=4, timeout=60.0)).verdict == "violated"


def test_operators_that_boxes_prove_are_proved_where_the_hull_holds_for_another_reason() -> None:
    sides = [f"And({s * a - 0.25} <= x, x <= {s * a + 0.25})" for a in range(1, 31) for s in (1, -1)]
    text = f"Forall(x, Implies(Or({', '.join(sides)}), Or(no_invalid_input(N(x)), x[0, 0] + x[0, 1] <= 500)))"
    proof = analyse(problem(text, networks={"N": network("(float[1,2] x) => (float[1,2] y) { y = Reciprocal(x) }")}))
    assert proof.holds and operators(proof) == {"Reciprocal_y": True}


def test_outputs_that_are_integers_are_cut_not_bounded_by_lines() -> None:
    graph = network("(int32[1,2] x) => (int32[1,2] y) { s = Mul(x, x) y = Sub(s, x) }")
    reduced = query([part((11, 11), (12, 12), "(<= Y_0 109)")], graph)
    assert falsify(reduced, SearchConfig(n_starts=4, timeout=60.0)).verdict == "holds"
