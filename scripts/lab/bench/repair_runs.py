"""The measurements of `bench_repairs.py` on one model of the zoo, as plain values for its JSON file."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor

from ranum_falsify.config import RUNTIMES, FixConfig
from ranum_falsify.network import Graph, read, spec_of
from ranum_falsify.network.tensors import to_torch, torch_threads
from ranum_falsify.operators.support.conditions import gradient_conditions, list_stated_conditions
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.language.parse import parse_dnnp
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.repair.measuring import OutputMeter, count_operations
from ranum_falsify.repair.repair import Change, Repair, rank
from ranum_falsify.repair.repairing import Repairing
from ranum_falsify.repair.subject import RepairSubject
from ranum_falsify.zoo.model import Defect, DeveloperGuard, ZooModel

__all__ = ["WAYS", "repairs"]

WAYS = ("rewrite", "guard", "best")
"""What is recorded: the best repair by rewrites alone, by guards alone, and of all."""

_NEAR = 1e-3
"""Inputs that bring an operand of a documented operator nearer to what is invalid do not count."""
_SAMPLES = 1000
_TIMEOUT = 300.0


def repairs(model: ZooModel, seconds: float) -> dict[str, Any]:
    """Return the best repairs of a model, those of its developers, and what they cost.

    Args:
        model: The model.
        seconds: How long inputs may be drawn on which models are compared.
    """
    architecture = model.architecture()
    phi = parse_dnnp(model.property_text(architecture), Path(f"{model.id}.py"))

    def load(proto: Any) -> Problem:
        return reduce(phi, {"N": read(proto)})

    began, clock = time.perf_counter(), time.process_time()
    with torch_threads(1):
        subject = RepairSubject(load(architecture.model), load, RUNTIMES, Deadline.after(_TIMEOUT))
        config = FixConfig(by=("rewrite", "guard"), timeout=_TIMEOUT, samples=0, n_starts=10)
        found = Repairing(subject, config, lambda _: None).run()
        used = {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - clock}
        meter = _meter(subject, [defect.node for defect in model.defects], seconds)
        ranked = rank(replace(repair, outputs=meter.measure(repair.model)) for repair in found.repairs)
        kinds = {"rewrite": ("rewrite",), "guard": ("guard",)}
        best = {way: [r for r in ranked if r.kinds == kinds.get(way, r.kinds)][:1] for way in WAYS}
        theirs = {defect.id: _measure_theirs(model, defect, subject, meter) for defect in model.defects}
        return {
            **used,
            "ways": {way: _record(repairs[0]) if repairs else None for way, repairs in best.items()},
            "developers": {
                name: None if repair is None else {**_record(repair), "better": _better(ranked[0], repair)}
                for name, repair in theirs.items()
            },
        }


def _measure_theirs(model: ZooModel, defect: Defect, subject: RepairSubject, meter: OutputMeter) -> Repair | None:
    """Return the change of the developers as if it were a repair of ours; None where none can be built."""
    fix, theirs = defect.developer_fix, model.developer_architecture(defect)
    if fix is None or theirs is None:
        return None
    subject.deadline = Deadline.after(_TIMEOUT)
    assessment = subject.assess(theirs.model, refine=True)
    assert assessment is not None, "changes of developers keep inputs and weights"
    graph = assessment.problem.calls[0].graph
    kept = [_kept(subject, guard) for guard in fix.guards]
    changes = [
        Change(
            kind="guard",
            place="operand",
            node=guard.node,
            tensor=guard.node,
            text=_describe(guard),
            kept=shares,
            keeps_gradient=guard.add is not None,
        )
        for guard, shares in zip(fix.guards, kept, strict=True)
    ]
    return Repair(
        changes=changes or [Change(kind="rewrite", place="graph", node=defect.node, text=fix.detail)],
        model=theirs.model,
        standing="proved" if assessment.holds else "not falsified",
        left=assessment.unproved,
        outputs=meter.measure(_name_outputs(theirs.model, subject.graph.output_names)),
        operations=count_operations(graph) - count_operations(subject.graph),
    )


def _name_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return a model whose outputs have other names."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    old = [value.name for value in made.graph.output]
    new = {name: f"{name} of theirs" for name in set(names) - set(old)} | dict(zip(old, names, strict=True))
    for value in made.graph.output:
        value.name = new[value.name]
    for node in made.graph.node:
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new.get(name, name) for name in node.output]
    return made


def _describe(guard: DeveloperGuard) -> str:
    if guard.add is not None:
        return f"{guard.node}: x + {guard.add:g}"
    ends = [f"{sign} {end:g}" for sign, end in ((">=", guard.low), ("<=", guard.high)) if end is not None]
    return f"{guard.node}: x clipped to {' and '.join(ends)}"


def _kept(subject: RepairSubject, guard: DeveloperGuard) -> tuple[float, float]:
    """Return the share of the valid range that a guard of developers leaves: the mean over elements, and the least."""
    if guard.add is not None:
        return 1.0, 1.0
    op = subject.sites.operations[guard.node]
    name, bounds = next(iter(subject.bounds_of([guard.node])[guard.node].items()))
    low, high = bounds.lower.double(), bounds.upper.double()
    for invalid in (r for c in list_stated_conditions(op) for r in c.invalid_ranges(bounds.dtype) or ()):
        if invalid.operand == name:
            low = low.clamp_min(invalid.upper) if invalid.lower == -math.inf else low
            high = high.clamp_max(invalid.lower) if invalid.upper == math.inf else high
    inside = low if guard.low is None else low.clamp_min(guard.low)
    outside = high if guard.high is None else high.clamp_max(guard.high)
    width = high - low
    shares = torch.where(width > 0, (outside - inside).clamp_min(0) / width.clamp_min(5e-324), 1.0).clamp(0, 1)
    return float(shares.mean()), float(shares.min())


def _better(ours: Repair, theirs: Repair) -> str:
    """Return whose repair is better, by the order in which `fix` ranks repairs: ours, theirs, or none."""
    first, last = rank((ours, theirs))[0], rank((theirs, ours))[0]
    return "none" if first is not last else "ours" if first is ours else "theirs"


def _meter(subject: RepairSubject, nodes: Collection[str], seconds: float) -> OutputMeter:
    graph = subject.graph

    def is_far(inputs: Mapping[str, np.ndarray]) -> bool:
        return _distance(graph, [to_torch(inputs[name]) for name in graph.input_names], nodes) >= _NEAR

    return OutputMeter(subject, samples=_SAMPLES, seconds=seconds, seed=0, keep=is_far)


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


def _record(repair: Repair) -> dict[str, Any]:
    change = repair.outputs
    outputs = None
    if change is not None:
        outputs = {
            "samples": change.samples,
            "equal": change.equal,
            "largest": change.largest,
            "relative": change.relative,
            "away": change.away,
            "errors": change.errors,
        }
    return {
        "standing": repair.standing,
        "kinds": list(repair.kinds),
        "changes": [change.text for change in repair.changes],
        "left": list(repair.left),
        "kept": min((change.kept[1] for change in repair.changes), default=1.0),
        "mean_kept": min(repair.kept.values(), default=1.0),
        "keeps_gradient": repair.keeps_gradient,
        "operations": repair.operations,
        "outputs": outputs,
    }
