"""How the operands of a problem's node came to their bounds."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ranum_falsify.config import ProveConfig
from ranum_falsify.domain import IntervalAnalysis
from ranum_falsify.domain.explanation import OperandHistory, explain
from ranum_falsify.errors import PropertyError, name_near
from ranum_falsify.network import spec_of
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.prove.analyses import Analyses
from ranum_falsify.prove.applications import Applications, box_of

__all__ = ["histories"]


def histories(problem: Problem, node: str, config: ProveConfig) -> Mapping[str, tuple[OperandHistory, ...]]:
    """Return the history of each operand of a node, over the first of the property's boxes.

    Args:
        problem: The property.
        node: Name of the node.
        config: The runtimes that the bounds cover.

    Returns:
        The histories by `<network>: <node> (<operator>)`, one entry for each application of a network with this node.

    Raises:
        PropertyError: No network has this node, or it comes after a tensor whose shape depends on the input.
    """
    analyses = {id(call): IntervalAnalysis(call.graph, runtimes=config.runtimes, keep=True) for call in problem.calls}
    graphs = {id(call): call.graph for call in problem.calls}
    written = {key: Analyses(analysis) for key, analysis in analyses.items()}
    known = Applications(problem, graphs, lambda call: written[id(call)], box_of(problem.regions[0]), lambda: None)
    found = {}
    with torch.no_grad():
        for call in problem.calls:
            for op in call.graph.nodes:
                inputs = known.inputs(call) if op.name == node else None
                if inputs is not None:
                    analyses[id(call)].run(inputs)
                    title = f"{call.network}: {op.name} ({spec_of(op).op_type})"
                    found[title] = explain(analyses[id(call)], op)
    if not found:
        near = name_near(node, (op.name for call in problem.calls for op in call.graph.nodes))
        raise PropertyError(f"--explain {node}: no network of the property has this node; {near}")
    return found
