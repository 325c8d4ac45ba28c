"""Boxes: every input constraint that bounds becomes one, rounded inward to the model's dtype."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from tests.properties.properties_kit import calls_of, network, problem

CONCLUSION = "N(x)[0, 0] <= 1"


def box(antecedent: str, head: str = "", **networks: Any) -> InputVariable:
    reduced = problem(f"Forall(x, Implies({antecedent}, {CONCLUSION}))", head, networks or None)
    assert not reduced.penalties, reduced.penalty_names
    (variable,) = reduced.inputs
    return variable


def bounds(antecedent: str, head: str = "") -> tuple[Any, Any]:
    variable = box(antecedent, head)
    return variable.lower.tolist(), variable.upper.tolist()


def filled(value: float) -> list[list[float]]:
    return [[value] * 3] * 2


@pytest.mark.parametrize(
    "antecedent",
    [
        "-1 <= x <= 2",
        "And(x >= -1, 2 >= x)",
        "-1 <= x <= 2.0000000001",
        "Not(" + "Or(" + ", ".join(f"x[{i}, {j}] < -1, x[{i}, {j}] > 2" for i in (0, 1) for j in (0, 1, 2)) + "))",
        "-3 <= 2 * x - 1 <= 3",
        "-2 <= -x <= 1",
        "0 <= (x + 1) / 3 <= 1",
        "And(-1 <= x[0] <= 2, -1 <= x[1] <= 2)",
        "And(-1 <= x[:, 0:2] <= 2, -1 <= x[:, -1] <= 2)",
        "And(np.full((2, 3), -1.0) <= x, x <= np.full(3, 2.0))",
        "And(-5 <= x <= 5, -1 <= x, x <= 2)",
        "-1 <= x.T <= 2",
        "-1 <= np.reshape(x, (6,)) <= 2",
        "np.logical_and(x >= -1, np.less_equal(x, 2))",
    ],
)
def test_bounds_are_found_however_they_are_written(antecedent: str) -> None:
    assert bounds(antecedent) == (filled(-1), filled(2))


def test_an_equation_fixes_an_element() -> None:
    lower, upper = bounds("And(0 <= x <= 1, x[1, 2] == 0.5)")
    assert lower[1][2] == upper[1][2] == 0.5 and upper[0] == [1, 1, 1]


def test_a_scaled_bound_holds_as_it_is_written() -> None:
    variable = box("0 <= (x - 0.485) / 0.229 <= 0.3")
    inside = (variable.upper.astype(np.float64) - 0.485) / 0.229
    beyond = (np.nextafter(variable.upper, np.float32(9)).astype(np.float64) - 0.485) / 0.229
    assert (inside <= 0.3).all() and (beyond > 0.3).all()
    assert ((variable.lower.astype(np.float64) - 0.485) / 0.229 >= 0).all()


def test_a_strict_bound_is_left_out() -> None:
    variable = box("0 < x < 1")
    assert variable.lower.min() > 0 and variable.upper.max() == np.nextafter(np.float32(1), np.float32(0))


def test_other_constraints_on_inputs_are_penalties() -> None:
    formula = f"Forall(x, Implies(And(0 <= x <= 1, np.sum(x) <= 2, x[0, 0] <= x[0, 1], x != 0.5), {CONCLUSION}))"
    reduced = problem(formula)
    assert len(reduced.penalties) == 3
    assert reduced.inputs[0].upper.tolist() == filled(1)


def test_alternatives_become_regions_within_their_hull() -> None:
    either = "Or(And(0 <= x <= 1, x[0, 0] <= 0.25), And(3 <= x <= 4))"
    reduced = problem(f"Forall(x, Implies(And({either}, -9 <= x <= 9), {CONCLUSION}))")
    assert reduced.inputs[0].lower.tolist() == filled(0) and reduced.inputs[0].upper.tolist() == filled(4)
    assert [region[0].lower.tolist() for region in reduced.regions] == [filled(0), filled(3)]
    assert [region[0].upper.tolist()[0] for region in reduced.regions] == [[0.25, 1, 1], [4, 4, 4]]
    assert not reduced.penalties and not reduced.cases
    between = {"x": np.full((2, 3), 2, np.float32)}
    assert not reduced.contains(between)


@settings(deadline=None)
@given(
    st.sampled_from(["float", "float16", "double", "int32", "uint8"]),
    st.floats(-300, 300, allow_nan=False),
    st.floats(0, 300, allow_nan=False),
)
def test_bounds_are_rounded_inward(kind: str, low: float, width: float) -> None:
    high = low + width
    dtype = np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))
    graph = network(f"({kind}[2] x) => (float[2] y) {{ y = Cast<to=1>(x) }}")
    text = f"Forall(x, Implies({low!r} <= x <= {high!r}, N(x)[0] <= 1))"
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        within = any(low <= value <= high for value in range(max(info.min, -302), min(info.max, 602) + 1))
        if not within:
            with pytest.raises(PropertyError, match=r"no |above"):
                problem(text, networks={"N": graph})
        assume(within)
    variable = problem(text, networks={"N": graph}).inputs[0]
    assert variable.dtype == variable.lower.dtype == variable.upper.dtype == dtype
    lower, upper = float(variable.lower[0]), float(variable.upper[0])
    if low <= lower and upper <= high:
        assert low <= lower <= upper <= high
        if dtype.kind == "f":
            assert np.nextafter(variable.upper[0], dtype.type(np.inf)).astype(np.float64) > high
            assert np.nextafter(variable.lower[0], dtype.type(-np.inf)).astype(np.float64) < low
    else:
        # No value of the dtype lies between the bounds: the nearest one.
        assert lower == upper and dtype.kind == "f"
        assert abs(lower - low) <= abs(float(np.spacing(dtype.type(low)))) * 1.01


def test_a_degenerate_interval_becomes_the_nearest_value() -> None:
    variable = box("x == 0.1")
    assert (variable.lower == np.float32(0.1)).all() and (variable.upper == np.float32(0.1)).all()


@pytest.mark.parametrize(
    ("antecedent", "message"),
    [
        ("x <= 1", "input 'x' has no lower bound; bound it, as in Forall(x, Implies(-1 <= x <= 1, ...))"),
        ("x >= 1", "input 'x' has no upper bound;"),
        ("x[0, 0] <= 1", "input 'x' has no lower and no upper bound; bound it"),
        ("And(0 <= x[0] <= 1, x[1] <= 1, x[1, 1] >= 0)", "no lower bound at [1, 0] (nor 1 other elements)"),
        ("0 <= x <= np.inf", "no upper bound"),
        ("1 <= x <= -1", "lower bound 1 of 'x' is above its upper bound -1 at [0, 0]; exchange them"),
        ("And(0 <= x <= 1, x[1, 2] >= 2)", "lower bound 2 of 'x' is above its upper bound 1 at [1, 2]"),
        ("And(0 < x, x < 0)", "is above its upper bound"),
        ("1e39 <= x <= 1e40", "no float32 value lies between the bounds 1e+39 and 1e+40 of 'x' at [0, 0]; widen them"),
        ("np.nan <= x <= 1", "NaN in a bound of 'x'"),
        ("And(0 <= x, x <= np.full(3, np.nan))", "NaN in a bound of 'x'"),
        ("0 <= x <= np.ones((3, 2))", "shapes (2, 3) and (3, 2) cannot be compared"),
        ("0 <= x[0, 7] <= 1", "index 7 is out of bounds"),
    ],
)
def test_bad_bounds_are_explained(antecedent: str, message: str) -> None:
    with pytest.raises(PropertyError) as caught:
        box(antecedent)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_bool_inputs_need_no_bounds() -> None:
    graph = network("(bool[2] b, float[2] x) => (float[2] y) { c = Cast<to=1>(b) y = Add(x, c) }")
    reduced = problem("Forall(b, Forall(x, Implies(0 <= x <= 1, N(b, x) <= 3)))", networks={"N": graph})
    assert [v.name for v in reduced.inputs] == ["b", "x"]
    assert reduced.inputs[0].lower.tolist() == [False, False] and reduced.inputs[0].upper.tolist() == [True, True]


def test_a_large_image_takes_no_more_steps_than_a_small_one() -> None:
    def work(size: int) -> int:
        shape = f"1,3,{size},{size}"
        graph = network(f"(float[{shape}] x) => (float[{shape}] y) {{ y = Neg(x) }}")
        head = f"centre = np.linspace(0, 1, {3 * size * size}).reshape({shape})"
        formula = "And(centre - 0.1 <= x <= centre + 0.1, 0 <= x / 255 <= 1)"
        found: list[Problem] = []
        calls = calls_of(lambda: found.append(problem(f"Forall(x, Implies({formula}, N(x) <= 1))", head, {"N": graph})))
        assert not found[0].penalties and math.prod(found[0].inputs[0].shape) == 3 * size * size
        return calls

    work(4)  # what is imported or cached at the first use
    assert work(224) < 1.5 * work(8)


def test_one_number_that_bounds_all_elements_is_stored_once() -> None:
    variable = box("And(-1 <= x <= 2.5, x <= 2)")
    for bound, value in ((variable.lower, -1), (variable.upper, 2)):
        assert bound.strides == (0, 0) and bound.shape == (2, 3) and not bound.flags.writeable
        assert (bound == value).all()


def test_bounds_of_elements_leave_those_of_others_alone() -> None:
    variable = box("And(-1 <= x <= 2, x[0, 1] <= 1, 0 <= x[1, 2], -3 <= x, x <= np.full((2, 3), 1.5))")
    assert variable.lower.tolist() == [[-1, -1, -1], [-1, -1, 0]]
    assert variable.upper.tolist() == [[1.5, 1, 1.5], [1.5, 1.5, 1.5]]


@pytest.mark.parametrize("kind", ["int64", "uint64", "int32"])
def test_boxes_of_integers_reach_to_the_ends_of_their_type(kind: str) -> None:
    limits = np.iinfo(kind)
    (x,) = problem(
        f"Forall(x, Implies({limits.min} <= x <= {limits.max}, no_invalid_input(N(x))))",
        networks={"N": network(f"({kind}[2] x) => ({kind}[2] y) {{ y = Identity(x) }}")},
    ).inputs
    assert x.lower.tolist() == [limits.min] * 2 and x.upper.tolist() == [limits.max] * 2


@pytest.mark.parametrize("bound", [-(2**63) + 1, 2**63 - 2, 2**53 + 1, -(2**53) - 1])
def test_integers_that_are_no_float64_numbers_are_refused(bound: int) -> None:
    graph = network("(int64[2] x) => (int64[2] y) { y = Identity(x) }")
    ends = sorted([bound, 0])
    with pytest.raises(PropertyError, match=f"property: {bound} is not a float64 number"):
        problem(f"Forall(x, Implies({ends[0]} <= x <= {ends[1]}, no_invalid_input(N(x))))", networks={"N": graph})
