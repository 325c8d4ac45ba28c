"""Forests of so many nodes that their attributes are kept as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.errors import ModelError
from ranum_falsify.network import read
from ranum_falsify.network.fields import attribute_values
from ranum_falsify.verify.search.converter import convert
from tests.domain.test_shares import LEVELS, load

TREES, DEPTH, FEATURES = 5, 10, 6
INNER = 2**DEPTH - 1


def make(**changes: Any) -> onnx.ModelProto:
    """Return a forest whose nodes are not in the order of their numbers."""
    rng, count = np.random.default_rng(0), TREES * (2 * INNER + 1)
    tree = np.arange(count) // (2 * INNER + 1)
    number = np.concatenate([[0, *rng.permutation(np.arange(1, 2 * INNER + 1))] for _ in range(TREES)])
    branch = number < INNER
    leaves = np.flatnonzero(~branch)
    attributes: dict[str, Any] = {
        "nodes_treeids": tree.tolist(),
        "nodes_nodeids": number.tolist(),
        "nodes_featureids": np.where(branch, rng.integers(0, FEATURES, count), 0).tolist(),
        "nodes_values": np.where(branch, rng.uniform(-1, 1, count), 0).astype(np.float32).tolist(),
        "nodes_modes": ["BRANCH_LEQ" if inner else "LEAF" for inner in branch],
        "nodes_truenodeids": np.where(branch, 2 * number + 1, 0).tolist(),
        "nodes_falsenodeids": np.where(branch, 2 * number + 2, 0).tolist(),
        "target_treeids": tree[leaves].tolist(),
        "target_nodeids": number[leaves].tolist(),
        "target_ids": [0] * len(leaves),
        "target_weights": rng.uniform(0.1, 1, len(leaves)).astype(np.float32).tolist(),
    }
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **(attributes | changes)
    )
    graph = helper.make_graph(
        [node],
        "forest",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, FEATURES])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 1])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_results_and_bounds_are_those_of_onnx_runtime() -> None:
    model = make()
    values = attribute_values(model.graph.node[0].attribute)
    assert not isinstance(values["nodes_treeids"], tuple) and not isinstance(values["target_weights"], tuple)
    graph = read(model)
    rng, session, converted = np.random.default_rng(1), load(model, LEVELS[1]), convert(graph)
    for _ in range(20):
        x = rng.uniform(-1.2, 1.2, (3, FEATURES)).astype(np.float32)
        (y,) = (np.asarray(found) for found in session.run(None, {"x": x}))
        np.testing.assert_allclose(converted(torch.from_numpy(x))[0].numpy(), y, rtol=1e-6)
        (bounds,) = IntervalAnalysis(graph).run([Interval.box(x - np.float32(0.01), x + np.float32(0.01))])
        assert bounds is not None
        low, high = (end.numpy() for end in bounds.expand())
        assert bool(((low <= y) & (y <= high)).all())


@pytest.mark.parametrize(
    ("name", "place", "value", "says"),
    [
        ("nodes_nodeids", 7, 0, "two nodes of a tree have one number"),
        ("nodes_truenodeids", 0, 10**9, "a branch leads to a node that does not exist"),
        ("nodes_falsenodeids", 0, -1, "a branch leads to a node that does not exist"),
        ("target_nodeids", 0, 10**9, "a weight is that of a node that does not exist"),
        ("target_treeids", 0, TREES, "a weight is that of a node that does not exist"),
        ("nodes_modes", 0, "BRANCH_MOD", "no test is called"),
    ],
)
def test_what_contradicts_itself_is_refused(name: str, place: int, value: Any, says: str) -> None:
    model = make()
    (given,) = (helper.get_attribute_value(a) for a in model.graph.node[0].attribute if a.name == name)
    given = list(given)
    given[place] = value
    with pytest.raises(ModelError, match=says):
        read(make(**{name: given}), strict=True)


def test_sums_overflow_beside_operands_that_may_be_infinite() -> None:
    count = TREES * (INNER + 1)
    graph = read(make(aggregate_function="AVERAGE", target_weights=np.full(count, 3e38, np.float32).tolist()))
    low, high = np.zeros((3, FEATURES), np.float32), np.ones((3, FEATURES), np.float32)
    high[0, 0] = np.inf
    (y,) = IntervalAnalysis(graph).run([Interval.box(low, high)])
    assert y is not None and bool((y.upper == torch.inf).all())
