"""The documented mechanism of every defect, driven by hand: it fails on ONNX Runtime, and the safe twin does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ranum_falsify.zoo.catalogue import FUZZED, MODELS
from ranum_falsify.zoo.model import Defect, ZooModel
from tests.zoo.triggers import SMALLEST_NORMAL, Trigger, all_triggers, ancestors, follows, run

TRIGGERS = all_triggers()
DEFECTS = {defect.id: (model, defect) for model in (*MODELS, *FUZZED) for defect in model.defects}
ARGUMENTS = ("model", "defect", "trigger")


def cases(**fields: bool) -> list[Any]:
    """Return the defects that have these values, each with its trigger."""
    chosen = [i for i in DEFECTS if i in TRIGGERS and all(getattr(DEFECTS[i][1], k) == v for k, v in fields.items())]
    return [pytest.param(*DEFECTS[i], TRIGGERS[i], id=i) for i in chosen]


each_defect = pytest.mark.parametrize(ARGUMENTS, cases())


def test_every_defect_has_a_trigger() -> None:
    assert set(TRIGGERS) == set(DEFECTS)


@pytest.mark.parametrize(ARGUMENTS, cases(gradient=True))
def test_the_operand_of_a_steep_operator_vanishes(
    model: ZooModel, defect: Defect, trigger: Trigger, tmp_path: Path
) -> None:
    architecture = model.architecture()
    seen = run(architecture, trigger.feeds(architecture), defect.node, tmp_path)
    assert not seen.culprits
    assert 0 <= seen.operands[0] < SMALLEST_NORMAL


@pytest.mark.few(15)
@pytest.mark.parametrize(ARGUMENTS, cases(gradient=False))
def test_the_defective_operator_fails_first(model: ZooModel, defect: Defect, trigger: Trigger, tmp_path: Path) -> None:
    architecture = model.architecture()
    seen = run(architecture, trigger.feeds(architecture), defect.node, tmp_path)
    behind = [c for c in seen.culprits if defect.node in ancestors(architecture.model.graph, c)]
    assert [c for c in seen.culprits if c not in behind] == [defect.node, *trigger.also]


@pytest.mark.few(30)
@each_defect
def test_a_path_leads_there(model: ZooModel, defect: Defect, trigger: Trigger) -> None:
    graph = model.architecture().model.graph
    assert follows(graph, trigger.path, defect.node)
    assert trigger.path[-1] == defect.operator


@pytest.mark.few(15)
@each_defect
def test_the_safe_twin_takes_the_same_values(model: ZooModel, defect: Defect, trigger: Trigger, tmp_path: Path) -> None:
    architecture = model.architecture(safe=True)
    nodes = [node.name for node in architecture.model.graph.node]
    node = defect.node if defect.node in nodes else nodes[-1]
    seen = run(architecture, trigger.feeds(architecture), node, tmp_path)
    assert not seen.culprits
    if defect.gradient and node == defect.node:
        assert seen.operands[0] >= SMALLEST_NORMAL


@pytest.mark.parametrize(
    ("values", "said"),
    [({"z": 0.0}, "neither inputs nor weights: z"), ({"x": 2.0}, r"x: 2 to 2 leaves \[0, 1\]")],
    ids=["name", "range"],
)
def test_values_that_do_not_fit_are_refused(values: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Trigger(values=values, path=()).feeds(DEFECTS["3"][0].architecture())


def test_a_path_that_does_not_exist_is_seen() -> None:
    graph = DEFECTS["3"][0].architecture().model.graph
    assert follows(graph, ("MatMul", "Add", "Softmax", "Log"), "log")
    assert not follows(graph, ("Add", "Softmax", "Log"), "log")
    assert not follows(graph, ("MatMul", "Softmax", "Log"), "log")
