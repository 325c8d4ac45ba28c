"""At least one element of a mask is true: however that is written, each element that may be so is a region."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.problem.problem import Problem
from tests.properties.properties_kit import network, problem

Array = np.ndarray[Any, Any]


def reduced(condition: str, kind: str = "bool") -> Problem:
    networks = {"N": network(f"({kind}[2,3] x) => (float[2,3] y) {{ y = Cast<to=1>(x) }}")}
    return problem(f"Forall(x, Implies(And(0 <= x <= 1, {condition}), N(x)[0, 0] <= 1))", networks=networks)


def regions(condition: str, kind: str = "bool") -> list[tuple[Array, Array]]:
    return [(region[0].lower, region[0].upper) for region in reduced(condition, kind).regions]


@pytest.mark.parametrize(
    "condition",
    [
        "np.any(x == 1)",
        "np.any(x > 0)",
        "np.sum(x) >= 1",
        "np.sum(x) > 0",
        "Not(np.sum(x) < 1)",
        "np.mean(x) > 0",
        "np.mean(x) >= 0.1",
        "np.max(x) >= 1",
        "np.max(x) == 1",
        "np.min(1 - x) <= 0",
        "np.sum(1 - x) < 6",
    ],
)
@pytest.mark.parametrize("kind", ["bool", "int64"])
def test_one_element_is_true(condition: str, kind: str) -> None:
    found = regions(condition, kind)
    assert [tuple(int(n) for n in np.argwhere(low.reshape(-1))[:, 0]) for low, _ in found] == [(i,) for i in range(6)]
    assert all((high == 1).all() for _, high in found)


def test_one_element_of_each_row_is_true() -> None:
    found = regions("np.max(x, axis=1) >= 1")
    chosen = {tuple(map(tuple, np.argwhere(low).tolist())) for low, _ in found}
    assert chosen == {((0, i), (1, j)) for i, j in itertools.product(range(3), repeat=2)}


def test_sums_that_are_two() -> None:
    assert len(regions("np.sum(x) == 2")) == 6 * 6 - 6  # one element is 1 and another one 0


@pytest.mark.parametrize(
    "condition", ["np.sum(x) >= 0", "np.sum(x) >= -3", "np.max(x) >= 0", "np.sum(x) != 3", "np.sum(x * 0.5) >= 0.1"]
)
def test_what_leaves_every_element_free_is_one_box(condition: str) -> None:
    assert {(low.min(), high.max()) for low, high in regions(condition)} == {(0, 1)}


def test_no_element_can_be_so_large() -> None:
    with pytest.raises(PropertyError, match=r"no input satisfies \(numpy\.sum\(x\) >= 7\)"):
        reduced("np.sum(x) >= 7", "int64")


@pytest.mark.parametrize("condition", ["np.sum(x) >= 3", "np.mean(x) < 0.5", "np.max(x, axis=0) > 0", "np.any(x != 1)"])
def test_every_point_that_satisfies_it_lies_in_a_region(condition: str) -> None:
    asked = reduced(condition)
    for values in itertools.product([False, True], repeat=6):
        point = np.array(values).reshape(2, 3)
        inside = any(bool(((r[0].lower <= point) & (point <= r[0].upper)).all()) for r in asked.regions)
        assert inside or not np.all(eval(condition, {"np": np, "x": point}))
