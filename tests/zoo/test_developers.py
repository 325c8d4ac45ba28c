"""What developers did about their defects: known for each, and built where a graph can express it."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper

from ranum_falsify.zoo.catalogue import MODELS, model_of
from ranum_falsify.zoo.detect import analysis_of, draw_plausible_inputs, problem_of
from ranum_falsify.zoo.model import Defect, DeveloperGuard, ZooModel, guard_operands

DEFECTS = {defect.id: (model, defect) for model in MODELS for defect in model.defects}
CHANGED = [name for name, (_, d) in DEFECTS.items() if d.developer_fix is not None and d.developer_fix.changes_graph]


def pair_of(name: str) -> tuple[ZooModel, Defect]:
    return DEFECTS[name]


def test_all_defects_have_a_record() -> None:
    assert all(defect.developer_fix is not None for _, defect in DEFECTS.values())
    fixed = {
        name for name, (_, d) in DEFECTS.items() if d.developer_fix is not None and d.developer_fix.status == "fixed"
    }
    assert fixed == {"6", "7", "8", "9a", "9b", "28c", "28d"}
    assert fixed < set(CHANGED)


@pytest.mark.few(5)
@pytest.mark.parametrize("name", CHANGED)
def test_the_changed_model_runs_with_the_same_inputs_and_weights(name: str) -> None:
    model, defect = pair_of(name)
    original, changed = model.architecture(), model.developer_architecture(defect)
    assert changed is not None
    assert (changed.inputs, changed.weights) == (original.inputs, original.weights)
    before, after = ({t.name: numpy_helper.to_array(t) for t in a.model.graph.initializer} for a in (original, changed))
    assert all(np.array_equal(before[v.name], after[v.name]) for v in original.weights)
    session = onnxruntime.InferenceSession(changed.model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert all(np.isfinite(y).all() for y in session.run(None, draw_plausible_inputs(changed)))


def test_where_no_change_is_known_none_is_built() -> None:
    model, defect = pair_of("10")
    assert model.developer_architecture(defect) is None


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "still_open"),
    [("9a", set()), ("14", set()), ("31", set()), ("28c", {"div_gain"}), ("4", {"log"}), ("61", {"log"})],
)
def test_what_the_change_leaves_open(name: str, still_open: set[str]) -> None:
    model, defect = pair_of(name)
    changed = model.developer_architecture(defect)
    assert changed is not None
    opened = {flag.node for flag in analysis_of(model, problem_of(model, changed)).open}
    assert opened >= still_open and bool(opened) == bool(still_open)


def test_a_guard_stands_before_its_operator() -> None:
    architecture = model_of("3").architecture()
    guards = (DeveloperGuard(node="log", low=1e-6), DeveloperGuard(node="Mul", add=0.5))
    changed = guard_operands(architecture, guards).model
    nodes = {node.name: node for node in changed.graph.node}
    assert (nodes["guard_of_log"].op_type, list(nodes["guard_of_log"].input)[2]) == ("Clip", "")
    assert list(nodes["log"].input) == ["guard_of_log"] and nodes["guard_of_Mul"].op_type == "Add"
    assert "guard_of_log" not in {node.name for node in architecture.model.graph.node}
    with pytest.raises(ValueError, match="no node is called 'lag'"):
        guard_operands(architecture, (DeveloperGuard(node="lag", low=0.0),))
