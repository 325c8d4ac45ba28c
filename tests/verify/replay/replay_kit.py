"""Replays in this process, on real ONNX Runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ranum_falsify.verify.replay.operator_facts import operator_facts
from ranum_falsify.verify.replay.replayer import Finding, Replay
from ranum_falsify.verify.replay.worker import Levels, Operators, Setting

__all__ = ["OPERATORS", "model", "one", "replay"]

OPERATORS = Operators(**operator_facts())


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    """A model whose inputs have the types and shapes of the arrays given."""
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()
    ]
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    wanted = [onnx.ValueInfoProto(name=n) for n in outputs]
    graph = helper.make_graph(list(nodes), "test", given, wanted, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def replay(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 21,
) -> Replay:
    """One replay in this process, which costs less than a child for each case."""
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        path = Path(folder, "model.onnx")
        onnx.save_model(model(nodes, inputs, outputs, constants, opset), path)
        result = Levels(str(path), Setting(folder, OPERATORS, 1, scratch=folder)).run(inputs)
    findings = tuple(Finding(**finding) for finding in result["findings"])
    return Replay(**{**result, "findings": findings})


def one(op_type: str, *operands: Any, outputs: int = 1, opset: int = 21, **attributes: Any) -> tuple[Finding, ...]:
    """Findings of one operator on operands that all are inputs."""
    names = [f"i{k}" for k in range(len(operands))]
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op_type, names, results, **attributes)
    return replay([node], dict(zip(names, operands, strict=True)), results, opset=opset).findings
