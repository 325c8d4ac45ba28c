"""Bisection: exact zeros between points of opposite sign, inside the box, in any order of the variables."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.verify.search.bisection import Bisection, Observation, bisect
from ranum_falsify.verify.search.search import SearchContext
from ranum_falsify.verify.search.starts import Box
from tests.verify.search.search_kit import context, network, problem, valid_in_box


def divisor(search_context: SearchContext) -> Target:
    return next(t for t in search_context.targets() if not t.is_remote and t.spec.op_type in ("Div", "Reciprocal"))


def run(search_context: SearchContext, starts: Sequence[Tensor] | None = None) -> tuple[float, list[list[Tensor]]]:
    """Bisect until a margin is negative; return the least margin and every batch that was looked at."""
    (region,) = search_context.regions()
    seen: list[list[Tensor]] = []
    least = [float("inf")]

    def visit(margins: Tensor, inputs: Sequence[Tensor]) -> bool:
        assert margins.shape == (len(inputs[0]), 1)
        seen.append([x.clone() for x in inputs])
        least[0] = min(least[0], float(margins.min()))
        return least[0] < 0

    given = search_context.starts(region, 60, first=False) if starts is None else starts
    bisect(search_context, divisor(search_context), region, given, visit)
    for batch in seen:
        for x, box in zip(batch, region.boxes, strict=True):
            assert bool(((box.lower <= x) & (x <= box.upper)).all())
    return least[0], seen


@pytest.mark.parametrize("kind", ["float", "double", "float16"])
def test_finds_the_point_between_two_of_opposite_sign(kind: str) -> None:
    graph = network(
        f"({kind}[1] x) => ({kind}[1] y) {{ f = Constant<value_float = 0.3>() k = CastLike(f, x) d = Sub(x, k) "
        "y = Reciprocal(d) }"
    )
    least, seen = run(context(valid_in_box(graph, [(-1.0, 2.0)])))
    assert least < 0
    assert len(seen) < 75


def test_points_of_one_sign_are_left_alone() -> None:
    graph = network(
        "(float[2] x) => (float[2] y) { k = Constant<value = float {5}>() d = Sub(x, k) y = Reciprocal(d) }"
    )
    assert run(context(valid_in_box(graph, [(-1.0, 1.0)])))[1] == []


def test_ulps_around_the_crossing_are_tried() -> None:
    """Two products rarely cancel at the crossing itself, but do a few ulps away."""
    graph = network(
        "(float[1] x, float[1] w) => (float[1] y) { a = Constant<value_float = 3.0>() "
        "b = Constant<value_float = 7.0>() p = Mul(x, a) q = Mul(w, b) d = Sub(p, q) y = Reciprocal(d) }"
    )
    for seed in range(3):
        assert run(context(valid_in_box(graph, [(0.1, 1.3), (0.1, 1.3)]), seed=seed))[0] < 0


def test_variables_may_come_in_another_order_than_the_inputs() -> None:
    graph = network("(float[1] x, float[2] w) => (float[2] y) { d = Sub(x, w) y = Reciprocal(d) }")
    text = "Forall(w, Forall(x, Implies(And(0.1 <= w <= 1.1, 0.3 <= x <= 0.9), no_invalid_input(N(x, w)))))"
    assert run(context(problem(text, networks={"N": graph})))[0] < 0


def test_integers_take_either_end() -> None:
    graph = network(
        "(int64[8] x) => (float y) { f = Cast<to = 1>(x) s = ReduceSum<keepdims = 0>(f) y = Reciprocal(s) }"
    )
    reduced = valid_in_box(graph, [(-3, 3)])
    assert run(context(reduced))[0] < 0


def test_a_single_start_has_no_pair() -> None:
    graph = network("(float[1] x) => (float[1] y) { y = Reciprocal(x) }")
    assert run(context(valid_in_box(graph, [(-1.0, 1.0)])), [torch.full((1, 1), 0.5)])[1] == []


def test_linear_crossings_are_met_in_a_few_steps() -> None:
    box, counts = Box(torch.tensor([-1e3]), torch.tensor([1e3])), list[int]()
    for interpolates in (False, True):
        seen: list[float] = []

        def observe(points: Sequence[Tensor]) -> Observation:
            crossing = points[0].double() * 3 - 3 * 0.625
            return Observation(crossing.abs(), crossing)

        def visit(distances: Tensor, points: Sequence[Tensor], seen: list[float] = seen) -> bool:
            seen.append(float(distances.min()))
            return seen[-1] == 0

        Bisection(
            observe=observe,
            visit=visit,
            boxes=[box],
            generator=torch.Generator(),
            is_over=lambda: False,
            interpolates=interpolates,
        ).run_between([box.lower[None]], [box.upper[None]])
        assert seen[-1] == 0
        counts.append(len(seen))
    assert counts[1] < 10 < counts[0]


def test_neighbours_end_a_bisection() -> None:
    """No float is a third, so that nothing is met; points between neighbours would be looked at again and again."""
    box, seen = Box(torch.tensor([0.0]), torch.tensor([1.0])), list[Tensor]()

    def observe(points: Sequence[Tensor]) -> Observation:
        seen.append(points[0])
        crossing = points[0].double() * 3 - 1
        return Observation(crossing.abs(), crossing)

    Bisection(
        observe=observe,
        visit=lambda distances, points: False,
        boxes=[box],
        generator=torch.Generator(),
        is_over=lambda: False,
        shakes=0,
    ).run_between([box.lower[None]], [box.upper[None]])
    assert len(torch.cat(seen).unique()) == len(seen) < 40
