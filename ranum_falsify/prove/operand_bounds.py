"""Bounds of the operands of every node of a problem."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import torch

from ranum_falsify.config import ProveConfig
from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.explanation import range_of
from ranum_falsify.network import spec_of
from ranum_falsify.operators.support.conditions import name_bounds
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.prove.analyses import Analyses
from ranum_falsify.prove.applications import Applications, box_of

__all__ = ["OperandBounds", "operand_bounds", "operand_intervals"]

OperandBounds = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]
"""Least and greatest value of each operand, by network and node."""


def operand_bounds(problem: Problem, config: ProveConfig) -> OperandBounds:
    """Return the operand bounds of one interval analysis of each network as written, over the whole box.

    Args:
        problem: The property.
        config: The runtimes that the bounds cover.
    """
    found: dict[tuple[str, str], Mapping[str, tuple[float, float]]] = {}

    def observe(network: str, visited: Visited) -> None:
        found[network, visited.op.name] = {name: range_of(x) for name, x in _intervals(visited).items()}

    _observe(problem, config, observe)
    return found


def operand_intervals(
    problem: Problem, config: ProveConfig, nodes: Collection[tuple[str, str]]
) -> Mapping[tuple[str, str], Mapping[str, Interval]]:
    """Return the same of each element, for some nodes, by network and name; the names of operands are those of rows."""
    found: dict[tuple[str, str], Mapping[str, Interval]] = {}

    def observe(network: str, visited: Visited) -> None:
        if (network, visited.op.name) in nodes:
            found[network, visited.op.name] = _intervals(visited)

    _observe(problem, config, observe)
    return found


def _intervals(visited: Visited) -> Mapping[str, Interval]:
    bounds = name_bounds(spec_of(visited.op), visited)
    return {name: x for name, x in bounds.items() if isinstance(x, Interval)}


def _observe(problem: Problem, config: ProveConfig, observe: Callable[[str, Visited], None]) -> None:
    """Analyse each network as written over the whole box."""
    analyses = {id(call): IntervalAnalysis(call.graph, runtimes=config.runtimes) for call in problem.calls}
    graphs = {id(call): call.graph for call in problem.calls}
    known = Applications(
        problem, graphs, lambda call: Analyses(analyses[id(call)]), box_of(problem.inputs), lambda: None
    )
    with torch.no_grad():
        for call in problem.calls:
            inputs = known.inputs(call)
            if inputs is not None:
                analyses[id(call)].run(inputs, partial(observe, call.network))
