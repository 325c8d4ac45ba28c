"""Bounds of the operands of every node of a problem."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ranum_falsify.config import ProveConfig
from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.explanation import range_of
from ranum_falsify.network import spec_of
from ranum_falsify.operators.support.conditions import name_bounds
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.prove.analyses import Analyses
from ranum_falsify.prove.applications import Applications, box_of

__all__ = ["OperandBounds", "operand_bounds"]

OperandBounds = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]
"""Least and greatest value of each operand, by network and node."""


def operand_bounds(problem: Problem, config: ProveConfig) -> OperandBounds:
    """Return the operand bounds of one interval analysis of each network as written, over the whole box.

    Args:
        problem: The property.
        config: The runtimes that the bounds cover.
    """
    analyses = {id(call): IntervalAnalysis(call.graph, runtimes=config.runtimes) for call in problem.calls}
    graphs = {id(call): call.graph for call in problem.calls}
    known = Applications(
        problem, graphs, lambda call: Analyses(analyses[id(call)]), box_of(problem.inputs), lambda: None
    )
    found: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    with torch.no_grad():
        for call in problem.calls:
            inputs = known.inputs(call)
            if inputs is None:
                continue

            def observe(visited: Visited, network: str = call.network) -> None:
                operands = name_bounds(spec_of(visited.op), visited)
                found[network, visited.op.name] = {
                    name: range_of(bounds) for name, bounds in operands.items() if isinstance(bounds, Interval)
                }

            analyses[id(call)].run(inputs, observe)
    return found
