"""The measurements of `bench_repairs.py` on one model of the zoo, as plain values for its JSON file."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.config import RUNTIMES, FixConfig
from ranum_falsify.fix.measuring import OutputMeter
from ranum_falsify.fix.repair import Repair
from ranum_falsify.fix.repairing import Repairing
from ranum_falsify.fix.subject import RepairSubject
from ranum_falsify.network import Graph, read, spec_of
from ranum_falsify.network.tensors import to_torch, torch_threads
from ranum_falsify.operators.support.conditions import gradient_conditions, list_stated_conditions
from ranum_falsify.properties.language.parse import parse_dnnp
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.zoo.model import ZooModel

__all__ = ["WAYS", "repairs"]

WAYS = ("rewrite", "guard", "rewrite,guard")
"""What may be used; both only where rewrites alone are not enough."""

_NEAR = 1e-3
"""Inputs that bring an operand of a documented operator nearer to what is invalid do not count."""
_SAMPLES, _SECONDS = 1000, 4.0
_TIMEOUT = 300.0


def repairs(model: ZooModel, way: str) -> dict[str, Any]:
    """Return the best repair of a model, and what it costs.

    Args:
        model: The model.
        way: One of :data:`WAYS`.
    """
    architecture = model.architecture()
    phi = parse_dnnp(model.property_text(architecture), Path(f"{model.id}.py"))

    def load(proto: Any) -> Problem:
        return reduce(phi, {"N": read(proto)})

    began, clock = time.perf_counter(), time.process_time()
    with torch_threads(1):
        problem = load(architecture.model)
        subject = RepairSubject(problem, load, RUNTIMES, time.monotonic() + _TIMEOUT)
        config = FixConfig(by=tuple(way.split(",")), timeout=_TIMEOUT, samples=0, n_starts=10)
        found = Repairing(subject, config, lambda _: None).run()
        used = {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - clock}
        if not found.repairs:
            return {**used, "standing": None}
        nodes = [defect.node for defect in model.defects]
        return {**used, **_record(found.repairs[0], _meter(subject, nodes))}


def _meter(subject: RepairSubject, nodes: Collection[str]) -> OutputMeter:
    graph = subject.graph

    def is_far(inputs: Mapping[str, np.ndarray]) -> bool:
        return _distance(graph, [to_torch(inputs[name]) for name in graph.input_names], nodes) >= _NEAR

    return OutputMeter(subject, samples=_SAMPLES, seconds=_SECONDS, seed=0, keep=is_far)


def _distance(graph: Graph, inputs: Sequence[Tensor], nodes: Collection[str]) -> float:
    """Return how far the operands of some nodes are from what is invalid."""
    found = [float("inf")]

    def watch(op: Any, operands: Sequence[Any], results: Sequence[Tensor]) -> None:
        if op.name in nodes:
            named = spec_of(op).name_values(operands) | {"output": results[0]}
            for condition in (*list_stated_conditions(op), *gradient_conditions(op)):
                found.append(float(condition.margin(op, named).min()))

    with torch.no_grad():
        graph.evaluate(inputs, watch)
    return min(found)


def _record(repair: Repair, meter: OutputMeter) -> dict[str, Any]:
    change = meter.measure(repair.model)
    outputs = None
    if change is not None:
        outputs = {
            "samples": change.samples,
            "equal": change.equal,
            "largest": change.largest,
            "relative": change.relative,
        }
    return {
        "standing": repair.standing,
        "kinds": list(repair.kinds),
        "changes": [change.text for change in repair.changes],
        "kept": min((change.kept[1] for change in repair.changes), default=1.0),
        "mean_kept": min(repair.kept.values(), default=1.0),
        "keeps_gradient": repair.keeps_gradient,
        "operations": repair.operations,
        "outputs": outputs,
    }
