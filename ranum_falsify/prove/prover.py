"""From a problem to a proof: one interval analysis of each application over each region."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from ranum_falsify.config import ProveConfig
from ranum_falsify.domain import IntervalAnalysis
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.properties.margin_bounds import margin_bounds
from ranum_falsify.properties.problem import NetworkCall, Problem
from ranum_falsify.properties.targets import operators_of
from ranum_falsify.prove.applications import Applications, Box, box_of
from ranum_falsify.prove.proof import OperatorProof, Proof

__all__ = ["Prover"]


class Prover:
    """Proves what it can of one problem.

    Args:
        problem: What must hold.
        config: How to prove.
        graphs: What runs for each application, by `id` of the application, where that is not its own graph.
        tick: Called at every operator; may raise to end the proof.
    """

    def __init__(
        self,
        problem: Problem,
        config: ProveConfig,
        graphs: Mapping[int, Graph] | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.problem = problem
        self.config = config
        self.graphs = {id(call): (graphs or {}).get(id(call), call.graph) for call in problem.calls}
        self._tick = tick
        self._analyses: dict[int, IntervalAnalysis] = {}
        self.proof = Proof(runtimes=config.runtimes)

    def analyse(self) -> Proof:
        """Prove by interval analysis alone, at about the cost of an inference."""
        with torch.no_grad():
            regions = [self.applications(box_of(variables)) for variables in self.problem.regions]
            self.proof = Proof(
                holds=all(self.holds(region) for region in regions),
                operators=_joined([self.operators(region) for region in regions]),
                runtimes=self.config.runtimes,
            )
        return self.proof

    def applications(self, box: Box) -> Applications:
        """Return what is known of the applications over a box."""
        return Applications(self.problem, self.graphs, self._analysis_of, box, self._tick)

    def holds(self, region: Applications) -> bool:
        """Tell whether the property holds on the box of a region."""
        if self.problem.is_pure_validity:
            return all(region.is_valid(goal) for goal in self.problem.goals)
        frame = region.sure()
        clauses = margin_bounds(self.problem.clause_circuit, frame)[0]
        if bool((clauses >= 0).all()):
            return True
        return bool((margin_bounds(self.problem.penalty_circuit, frame)[1] < 0).any())

    def operators(self, region: Applications) -> dict[tuple[int, str], OperatorProof]:
        """Return what is known of every operator in question on the box of a region."""
        return {
            (number, op.name): OperatorProof(
                network=goal.call.network,
                node=op.name,
                op_type=spec_of(op).op_type,
                open=region.open_conditions(goal, op),
                after=region.before[id(goal.call)][id(op)],
            )
            for number, goal in enumerate(self.problem.goals)
            for op in operators_of(goal, self.graphs[id(goal.call)])
        }

    def _analysis_of(self, call: NetworkCall) -> IntervalAnalysis:
        graph = self.graphs[id(call)]
        if id(graph) not in self._analyses:
            self._analyses[id(graph)] = IntervalAnalysis(graph, runtimes=self.config.runtimes)
        return self._analyses[id(graph)]


def _joined(regions: list[dict[tuple[int, str], OperatorProof]]) -> dict[tuple[int, str], OperatorProof]:
    """Return what holds on all regions."""
    result = regions[0]
    for region in regions[1:]:
        for key, other in region.items():
            mine = result[key]
            result[key] = OperatorProof(
                network=mine.network,
                node=mine.node,
                op_type=mine.op_type,
                open=tuple(dict.fromkeys((*mine.open, *other.open))),
                after=tuple(dict.fromkeys((*mine.after, *other.after))),
            )
    return result
