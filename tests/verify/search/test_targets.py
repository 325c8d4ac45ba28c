"""Targets: which operators and conditions a validity goal is about, and what is observed of them."""

from __future__ import annotations

import pytest
import torch

from ranum_falsify.network import Graph
from ranum_falsify.properties.formula.terms import NetworkCall, ValidityGoal
from ranum_falsify.properties.problem.targets import Target, targets_of
from ranum_falsify.validity import Finite
from ranum_falsify.verify.search.batching import BatchedModel
from ranum_falsify.verify.search.converter import convert
from tests.verify.search.search_kit import network

MANY = network(
    "(float[2] x) => (float[2] y, float[2] z) { n = Neg(x) l = Log(n) s = Sqrt(x) y = Div(l, s) z = Softmax(x) }"
)


def goal(graph: Graph, **options: object) -> ValidityGoal:
    return ValidityGoal(call=NetworkCall(network="N", graph=graph, arguments=()), **options)  # type: ignore[arg-type]


def types(targets: list[Target], *, remote: bool = False) -> list[str]:
    return [target.spec.op_type for target in targets if target.is_remote == remote]


def test_every_condition_of_every_operator_in_topological_order() -> None:
    targets = targets_of(3, goal(MANY))
    assert {target.goal for target in targets} == {3}
    positions = [[id(op) for op in MANY.nodes].index(id(target.op)) for target in targets]
    assert positions == sorted(positions)
    assert {"Log", "Sqrt", "Div"} <= set(types(targets))


def test_operators_that_move_values_have_no_overflow_target() -> None:
    graph = network("(float[2] x) => (float[2] y, int64[2] z) { a = Identity(x) y = Exp(a) z = Cast<to = 7>(a) }")
    finite = [target for target in targets_of(0, goal(graph)) if isinstance(target.constraint, Finite)]
    assert all(target.is_remote for target in finite)
    assert "Identity" not in {target.spec.op_type for target in finite}
    assert "Cast" not in {target.spec.op_type for target in finite}


def test_only_nodes_and_both() -> None:
    names = {type(op).__name__: op.name for op in MANY.nodes}
    assert set(types(targets_of(0, goal(MANY, only=("Log", "Div"))))) == {"Log", "Div"}
    assert set(types(targets_of(0, goal(MANY, nodes=(names["Sqrt"],))))) == {"Sqrt"}
    assert targets_of(0, goal(MANY, only=("Log",), nodes=(names["Sqrt"],))) == []


def test_gradient_adds_targets_of_its_own() -> None:
    plain, more = targets_of(0, goal(MANY)), targets_of(0, goal(MANY, gradient=True))
    assert not any(target.is_gradient for target in plain)
    added = [target for target in more if target.is_gradient]
    assert [target.spec.op_type for target in added if target.spec.op_type == "Sqrt"] == ["Sqrt"]
    assert len(more) == len(plain) + len(added)


def test_conditions_on_infinite_operands_are_remote_without_an_infinite_constant() -> None:
    text = (
        "(float[2] x) => (float[2] y) {{ o = Constant<value_float = 0.0>() k = {0}(o) b = Greater(x, x) "
        "w = Where(b, x, k) y = Softmax(w) }}"
    )
    without, masked = (targets_of(0, goal(network(text.format(value)))) for value in ("Neg", "Log"))
    assert "Softmax" not in types(without)
    assert "Softmax" in types(masked)


@pytest.mark.parametrize("batch", [1, 5])
def test_margins_are_negative_exactly_where_violated(batch: int) -> None:
    graph = network("(float[1,3] x) => (float[1,3] y) { y = Log(x) }")
    targets = [target for target in targets_of(0, goal(graph)) if not target.is_remote]
    model = BatchedModel(convert(graph), list(enumerate(targets)))
    x = torch.linspace(0.5, 2.0, batch)[:, None, None].repeat(1, 1, 3)
    for value, violated in ((0.0, True), (-1.0, True), (1e-38, False), (torch.nan, False), (torch.inf, False)):
        x[0, 0, 1] = value
        _, margins = model.run([x], outputs=False)
        assert margins is not None and margins.shape == (batch, 1)
        assert bool(margins[0, 0] < 0) == violated, value
        assert bool((margins[1:] > 0).all())
