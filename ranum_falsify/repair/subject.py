"""The subject of a repair: a model, and the property that it is to keep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import onnx

from ranum_falsify.config import ProveConfig, Runtime
from ranum_falsify.domain import Interval
from ranum_falsify.errors import ModelError, PropertyError, UsageError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.repair.sites import GuardSites
from ranum_falsify.rewrite.model import name_nodes
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.prove.operand_bounds import open_inside, operand_intervals
from ranum_falsify.verify.prove.optimised_graph import ValidWhenOptimised
from ranum_falsify.verify.prove.proof import Proof
from ranum_falsify.verify.prove.prover import Prover

Reload = Callable[[onnx.ModelProto], Problem]
"""Reads a model as the original was read, and reduces the property over it."""


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """What is proved of a model.

    Attributes:
        open: The operators with conditions of their own that are not proved, in topological order, with these; those in
            branches in place of the node that has the branches.
        dependent: Those that are not proved only because of others.
        holds: Whether the property does.
        problem: The property over the model.
    """

    open: Mapping[str, tuple[Constraint, ...]]
    dependent: tuple[str, ...]
    holds: bool
    problem: Problem

    @property
    def unproved(self) -> tuple[str, ...]:
        """All operators that are not proved."""
        return (*self.open, *self.dependent)

    @property
    def guardable(self) -> Mapping[str, tuple[Constraint, ...]]:
        """The operators that are open as they are written, with the conditions on that."""
        written = {
            node: tuple(c for c in conditions if not isinstance(c, ValidWhenOptimised))
            for node, conditions in self.open.items()
        }
        return {node: conditions for node, conditions in written.items() if conditions}


class RepairSubject:
    """A model with a property about the validity of its operators.

    Attributes:
        problem: The property over the model.
        call: The application of the model.
        model: The model, its nodes named as the graph names them.
        deadline: When to stop.
        sites: The nodes of the model, as places for guards.
    """

    def __init__(self, problem: Problem, reload: Reload, runtimes: tuple[Runtime, ...], deadline: Deadline) -> None:
        """Prepare.

        Raises:
            UsageError: The property is about outputs, or not about one whole network that is applied once.
        """
        if not problem.is_pure_validity or not problem.goals:
            raise UsageError("fix: the property is about outputs; give one that asks no_invalid_input alone")
        if len(problem.calls) != 1 or problem.calls[0].graph.read_again is None:
            raise UsageError("fix: the property is not about one whole network, applied once; give one that is")
        self.problem = problem
        self.call: NetworkCall = problem.calls[0]
        self.model = name_nodes(self.call.graph)
        self.deadline = deadline
        self.runtimes = runtimes
        self._reload = reload
        self._config = ProveConfig(runtime=runtimes)
        self.sites = GuardSites(self.call.graph)

    @property
    def graph(self) -> Graph:
        """The model as a graph."""
        return self.call.graph

    def derive(self, assessment: Assessment) -> RepairSubject:
        """Return a changed model, with the same property."""
        derived = RepairSubject(assessment.problem, self._reload, self.runtimes, self.deadline)
        derived.original = assessment
        return derived

    @cached_property
    def original(self) -> Assessment:
        """What is proved of the model as it is."""
        return self._assess(self.problem, refine=False)

    def assess(self, model: onnx.ModelProto, *, refine: bool = False) -> Assessment | None:
        """Prove what can be proved of a changed model, from its file's content.

        Args:
            model: The model.
            refine: Whether to try linear bounds and splitting on what one interval analysis leaves open.

        Returns:
            None where it cannot be read, or the property does not fit it.

        Raises:
            OutOfTime: The time is up.
        """
        self.deadline.check()
        try:
            problem = self._reload(model)
        except (ModelError, PropertyError):
            return None
        return self._assess(problem, refine=refine)

    def _assess(self, problem: Problem, *, refine: bool) -> Assessment:
        prover = Prover(problem, self._config, tick=self.deadline.check)
        proof = prover.analyse()
        if refine and not proof.holds:
            proof = prover.refine(self.deadline.share(1 / 4).within(self._config.prove_timeout))
        return _assessment(problem, proof, self._config)

    def bounds_of(self, nodes: Collection[str]) -> Mapping[str, Mapping[str, Interval]]:
        """Return bounds of the operands of nodes of the original model, by node and name of the operand in its row."""
        keys = {(self.call.network, node) for node in nodes}
        found = operand_intervals(self.problem, self._config, keys)
        return {node: operands for (_, node), operands in found.items()}


def _assessment(problem: Problem, proof: Proof, config: ProveConfig) -> Assessment:
    found: dict[str, tuple[Constraint, ...]] = {}
    dependent: dict[str, None] = {}
    for operator in proof.operators.values():
        if operator.open:
            found[operator.node] = (*found.get(operator.node, ()), *operator.open)
        elif operator.after:
            dependent[operator.node] = None
    inside = open_inside(problem, config, found)
    listed: dict[str, tuple[Constraint, ...]] = {}
    for node, conditions in found.items():
        listed |= inside.get(node) or {node: tuple(dict.fromkeys(conditions))}
    return Assessment(
        open=listed,
        dependent=tuple(node for node in dependent if node not in found),
        holds=proof.holds,
        problem=problem,
    )
