"""The search starts between the thresholds of trees, where no slope leads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

import ranum_falsify as rf
from ranum_falsify.network import read
from ranum_falsify.verify.search.starts import Box, find_crossings, sample_crossings

LOW, HIGH = (0.5, 0.25, -0.75), (0.501, 0.251, -0.749)


def cell() -> onnx.ModelProto:
    """Return the logarithm of a tree over scaled features that is 0 in a small cell and 1 or more outside."""
    tests = [(f, "BRANCH_GT", v) for f, v in enumerate(LOW)] + [(f, "BRANCH_LT", v) for f, v in enumerate(HIGH)]
    count = len(tests)
    total, leaves = 2 * count + 1, list(range(count, 2 * count + 1))
    tests += [(0, "LEAF", 0.0)] * (count + 1)
    attributes: dict[str, Any] = {
        "nodes_treeids": [0] * total,
        "nodes_nodeids": list(range(total)),
        "nodes_featureids": [feature for feature, _, _ in tests],
        "nodes_modes": [mode for _, mode, _ in tests],
        "nodes_values": [value for _, _, value in tests],
        "nodes_truenodeids": [n + 1 if n < count else 0 for n in range(total)],
        "nodes_falsenodeids": [n + count + 1 if n < count else 0 for n in range(total)],
        "target_treeids": [0] * len(leaves),
        "target_nodeids": leaves,
        "target_ids": [0] * len(leaves),
        "target_weights": [float(n) for n in range(len(leaves))],
        "n_targets": 1,
    }
    domain = "ai.onnx.ml"
    nodes = [
        helper.make_node("Scaler", ["x"], ["s"], "scale", domain=domain, offset=[1.0, -2, 0], scale=[0.5, 0.25, 2]),
        helper.make_node("TreeEnsembleRegressor", ["s"], ["v"], "trees", domain=domain, **attributes),
        helper.make_node("Log", ["v"], ["y"], "log"),
    ]
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, k]) for n, k in (("x", 3), ("y", 1)))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 3)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets, ir_version=9)


def box_of(low: float, high: float) -> list[Box]:
    return [Box(torch.full((1, 3), low), torch.full((1, 3), high))]


def test_the_cell_of_a_tree_is_found() -> None:
    assert rf.check(cell(), box=(-8, 8), timeout=60).verdict == "violated"


def test_thresholds_are_found_behind_functions_of_the_inputs() -> None:
    crossings = find_crossings(read(cell()), box_of(-8.0, 8.0))
    places = {row: [16 * share - 8 for share in shares] for row, shares in crossings.items()}
    # A scaled feature is (x - offset) * scale.
    expected = {0: (2.0, 2.002), 1: (-1.0, -0.996), 2: (-0.375, -0.3745)}
    assert {row: pytest.approx(sorted(values), abs=1e-4) for row, values in places.items()} == expected


def test_points_stand_between_thresholds_and_at_them() -> None:
    boxes = box_of(0.0, 1.0)
    (points,) = sample_crossings({1: [0.5]}, boxes, 200, torch.Generator().manual_seed(0))
    assert set(np.unique(points[:, 0, 1].numpy())) == {0.0, 0.25, 0.5, 0.75}
    assert len(np.unique(points[:, 0, 0].numpy())) > 100
