"""The subject of a repair: a model, the property that it is to keep, and the nodes that are places for guards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import onnx
from dnnv.nn import Operation

from ranum_falsify.config import ProveConfig, Runtime
from ranum_falsify.domain import Interval
from ranum_falsify.errors import ModelError, PropertyError, UsageError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph
from ranum_falsify.network.order import operands_in
from ranum_falsify.network.shaped import NodeOrigin
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.rewrite.model import name_nodes
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.prove.checked import branches_of
from ranum_falsify.verify.prove.explaining import open_inside, operand_intervals
from ranum_falsify.verify.prove.optimised_graph import ValidWhenOptimised
from ranum_falsify.verify.prove.proof import Proof
from ranum_falsify.verify.prove.prover import Prover


@dataclass(frozen=True)
class GuardSite:
    """A node of a model.

    Attributes:
        name: What it is called.
        operations: The names of the operations of the graph that it stands for: one for each iteration of a loop.
        origin: Where it lies, if that is in a subgraph.
    """

    name: str
    operations: tuple[str, ...]
    origin: NodeOrigin | None = None


class GuardSites:
    """All nodes of a graph, and of the branches that an input chooses between.

    Attributes:
        operations: The operations by name, in topological order, those of branches after the node that has them.
    """

    def __init__(self, graph: Graph) -> None:
        self._owners = dict[str, str]()
        self.operations = dict(self._list(graph, None))
        self._order = {name: number for number, name in enumerate(self.operations)}
        several: dict[NodeOrigin, list[str]] = {}
        for name in self.operations:
            if name in graph.origins:
                several.setdefault(graph.origins[name], []).append(name)
        self._sites = {name: GuardSite(name, (name,)) for name in self.operations}
        for origin, names in several.items():
            self._sites.update(dict.fromkeys(names, GuardSite(origin.name, tuple(names), origin)))
        self._before: dict[str, frozenset[str]] = {}

    def _list(self, graph: Graph, owner: str | None) -> Iterator[tuple[str, Operation]]:
        for op in graph.nodes:
            yield op.name, op
            if owner is not None:
                self._owners[op.name] = owner
            for branch in branches_of(op):
                yield from self._list(branch, op.name)

    def site_of(self, operation: str) -> GuardSite:
        """Return the node that stands for an operation."""
        return self._sites[operation]

    def outermost(self, operation: str) -> str:
        """Return the operation of the graph itself that an operation in a branch belongs to, or that it is."""
        while operation in self._owners:
            operation = self._owners[operation]
        return operation

    def title_of(self, operation: str) -> str:
        """Return what an operation is called in reports: one in a branch is named by its path."""
        in_branch = operation in self._owners
        return self._sites[operation].name if in_branch and operation in self._sites else operation

    def find(self, title: str) -> list[str]:
        """Return the operations of a name, or of the node of this name; none where there are none."""
        named = [name for name in self.operations if self.title_of(name) == title]
        return named or [name for name, site in self._sites.items() if site.name == title]

    def place(self, site: GuardSite) -> int:
        """Return where a node comes in topological order."""
        return self._order[site.operations[0]]

    def before(self, operation: str) -> frozenset[str]:
        """Return the names of all operations that one depends on, its own and those in its branches included."""
        if operation not in self._before:
            found = {op.name for op in _dependencies(self.operations[operation])} if operation in self._order else set()
            for name in [name for name in found if name in self.operations]:
                found.update(self._inside(name))
            owner = self._owners.get(operation)
            self._before[operation] = frozenset(found | (self.before(owner) if owner is not None else set()))
        return self._before[operation]

    def _inside(self, operation: str) -> Iterator[str]:
        for branch in branches_of(self.operations[operation]):
            for op in branch.nodes:
                yield op.name
                yield from self._inside(op.name)

    def nearest_before(self, operation: str, most: int) -> list[str]:
        """Return the operations that one depends on, the nearest first, at most so many."""
        if operation not in self.operations:
            return []
        found = _dependencies(self.operations[operation], most)
        return [op.name for op in found[1 : most + 1] if op.name in self.operations]


def _dependencies(op: Operation, most: int | None = None) -> list[Operation]:
    """Return an operation and those that it depends on in its graph, the nearest first; about so many."""
    found = [op]
    seen = {id(op)}
    for known in found:  # which grows
        if most is not None and len(found) > most:
            break
        for operand in operands_in(known):
            if id(operand) not in seen:
                seen.add(id(operand))
                found.append(operand)
    return found


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
