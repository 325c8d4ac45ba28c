"""The measurements of `bench_fix.py` on one model of the zoo, as plain values for its JSON file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lab.bench.clip_obstacles import find_obstacle, fix_random_numbers
from ranum_falsify.config import ProveConfig
from ranum_falsify.network.tensors import torch_threads
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.repair.abstraction.clipping import find_clips, list_clippable, narrow
from ranum_falsify.repair.abstraction.ranges import KeptRange
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.zoo.builder import Architecture
from ranum_falsify.zoo.detect import problem_of
from ranum_falsify.zoo.model import ZooModel

__all__ = ["SETS", "clips"]

SETS: Mapping[str, frozenset[str]] = {
    "all": frozenset({"input", "weight"}),
    "weights": frozenset({"weight"}),
    "inputs": frozenset({"input"}),
    "wide inputs": frozenset({"input"}),
}
"""Places where tensors may be narrowed; the wide inputs range over what RANUM takes for them."""

_WIDE, _WIDE_KEEP = (-50.0, 50.0), (0.1, 0.9)
"""RANUM's default ranges of float inputs, and of keep probabilities."""

_TRAINED: Mapping[str, Mapping[str, tuple[float, float]]] = {"2": {"W": (-12.01, 11.92), "b": (-7.21, 6.52)}}
"""RANUM's ranges of weights that it took from a trained model, hulls of those of a program's defects, rounded outward.

They are in its published results; where initial weights are constants, it takes [-10, 10] as the zoo does.
"""


def clips(model: ZooModel, name: str) -> dict[str, Any]:
    """Return what is clipped where only one set of tensors may be narrowed.

    Args:
        model: The model.
        name: One of :data:`SETS`.
    """
    with torch_threads(1):
        clock, began = time.process_time(), time.perf_counter()
        architecture = model.architecture()
        problem = problem_of(model, architecture)
        if name == "wide inputs":
            problem = _widen(problem, architecture, model)
        prepared = time.process_time() - clock
        clock, began = time.process_time(), time.perf_counter()
        places = list_clippable(problem)
        at = [tensor for tensor, place in places.items() if place in SETS[name]]
        found = find_clips(problem, at)
        used = {"cpu_s": time.process_time() - clock, "wall_s": time.perf_counter() - began, "prepare_s": prepared}
        record = {"tensors": len(places), "starts": _count_starts(architecture), **used}
        if found is None:
            return {**record, "clips": None, "why": _explain(model, at, name)}
        proved = Prover(narrow(problem, found), ProveConfig(prove_timeout=0.0)).analyse().holds
        return {**record, "proved": proved, "clips": [_clip(part) for part in found]}


def _clip(part: KeptRange) -> dict[str, Any]:
    return {
        "tensor": part.tensor,
        "kept": part.kept,
        "least": part.least,
        "lower": float(part.lower.min()),
        "upper": float(part.upper.max()),
        "uniform": part.is_uniform,
    }


def _count_starts(architecture: Architecture) -> int:
    """Return how many tensors no node computes, constants among them, which is what RANUM averages over."""
    graph = architecture.model.graph
    constants = [node for node in graph.node if node.op_type == "Constant"]
    return len(graph.input) + len(graph.initializer) + len(constants)


def _widen(problem: Problem, architecture: Architecture, model: ZooModel) -> Problem:
    """Return a problem with RANUM's ranges."""
    weights = {weight.name for weight in architecture.weights}
    call = problem.calls[0]
    tensors = dict(zip(call.variables, call.graph.input_names, strict=True))

    def widened(variable: InputVariable) -> InputVariable:
        name = tensors[variable.name]
        given = _TRAINED.get(model.id, {}).get(name or "")
        if given is None and (name in weights or variable.dtype.kind != "f"):
            return variable
        low, high = given or (_WIDE_KEEP if "keep" in variable.name else _WIDE)
        lower, upper = (np.broadcast_to(np.array(end, variable.dtype), variable.shape) for end in (low, high))
        return replace(variable, lower=lower, upper=upper)

    inputs = tuple(map(widened, problem.inputs))
    return replace(problem, inputs=inputs, regions=(inputs,))


def _explain(model: ZooModel, at: list[str], name: str) -> str:
    """Return why no ranges were found."""
    if not at:
        return "it has no weights"
    architecture = model.architecture()
    fixed = replace(architecture, model=fix_random_numbers(architecture.model))
    problem = problem_of(model, fixed)
    if name == "wide inputs":
        problem = _widen(problem, fixed, model)
    return find_obstacle(problem, at) or "no single values of them were found for which all operators are proved"
