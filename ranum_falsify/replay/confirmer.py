"""Confirmation: only what ONNX Runtime shows on the original model counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Self

import numpy as np
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.lowering import has_others
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.properties.formula.applications import NetworkCall, ValidityGoal
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.replay.replayer import Finding, Replay, Replayer

__all__ = ["Confirmer", "feeds_of", "is_in_question", "meets_conditions"]


class Confirmer:
    """Replays candidates on the networks of a problem; one child process per network, started at once.

    A context manager; leaving it ends the child processes.

    Args:
        graphs: The networks.
        threads: ONNX Runtime's intra-operator threads.
        flush: Whether it replaces denormal numbers by 0, as many devices do.
    """

    def __init__(self, graphs: Sequence[Graph], *, threads: int = 1, flush: bool = False) -> None:
        self._graphs = list(graphs)
        self._replayers = {id(graph): Replayer(graph.model, threads=threads, flush=flush) for graph in graphs}
        self._threads = threads
        self._flush = flush
        self._operands: dict[int, Replayer] = {}
        self._writers = {id(graph): _writers(graph) for graph in graphs}
        self._inlined: dict[int, Graph] = {}

    def __enter__(self) -> Self:
        """Start the child processes, which boot while the search begins."""
        for replayer in self._replayers.values():
            replayer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the child processes."""
        if "flushing" in self.__dict__:
            self.flushing.__exit__(kind, error, traceback)
        for replayer in (*self._replayers.values(), *self._operands.values()):
            replayer.close()

    @cached_property
    def flushing(self) -> Confirmer:
        """A confirmer that replaces denormal numbers by 0; its child processes start when they are needed."""
        return Confirmer(self._graphs, threads=self._threads, flush=True)

    def run(self, graph: Graph, feeds: Mapping[str, np.ndarray]) -> Replay:
        """Run the graph's model with every intermediate exposed."""
        return self._replayers[id(graph)].run(feeds)

    def inline(self, call: NetworkCall, graph: Graph) -> None:
        """Record which graph the search runs for an application: its own, or with inlined branches."""
        self._inlined[id(call)] = graph
        self._writers[id(call.graph)] = _writers(graph) | self._writers[id(call.graph)]

    def findings(self, call: NetworkCall, feeds: Mapping[str, np.ndarray]) -> tuple[Finding, ...]:
        """Run an application's original model; for a branch that fails, report the operators in it that fail."""
        found = self.run(call.graph, feeds).findings
        graph = self._inlined.get(id(call))
        if graph is None or all(finding.op_type != "If" for finding in found):
            return found
        if id(graph) not in self._replayers:
            self._replayers[id(graph)] = Replayer(graph.as_onnx(), threads=self._threads, flush=self._flush)
        outer = {op.name for op in call.graph.nodes}
        inner = {op.name: op for op in graph.nodes if op.name not in outer}
        inside = [
            # An output is named otherwise outside the branch, where the name would lead to the If.
            replace(finding, output=next(name for name in inner[finding.node].output_names if name))
            for finding in self.run(graph, {name: feeds[name] for name in graph.input_names}).findings
            if finding.node in inner
        ]
        return tuple(finding for finding in found if not inside or finding.op_type != "If") + tuple(inside)

    def outputs(self, graph: Graph, feeds: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Run the graph's model; return its outputs in order."""
        if graph.source is None or not has_others(graph.source.graph):
            return tuple(self._replayers[id(graph)].outputs(feeds).values())
        # Outputs that are strings or maps there are numbers here.
        if id(graph) not in self._operands:
            self._operands[id(graph)] = Replayer(graph.as_onnx(), threads=self._threads, flush=self._flush)
        return tuple(self._operands[id(graph)].outputs(feeds).values())

    def apply(self, call: NetworkCall, arguments: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return the outputs of an application on concrete arguments."""
        return self.outputs(call.graph, dict(zip(call.graph.input_names, arguments, strict=True)))

    def operands(self, graph: Graph, op: Operation, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray | None]:
        """Return the operands that an operator reads on ONNX Runtime, in the order of its row; None where absent."""
        values = spec_of(op).operands_of(op)
        computed = list({id(v): v for v in values if isinstance(v, Operation)}.values())
        feeds = {name: feeds[name] for name in graph.input_names}
        if id(op) not in self._operands:
            model = graph.cut_after(computed).model
            self._operands[id(op)] = Replayer(model, threads=self._threads, flush=self._flush)
        results = dict(zip(map(id, computed), self._operands[id(op)].run_plain(feeds).values(), strict=True))
        return [results[id(v)] if isinstance(v, Operation) else v for v in values]

    def operation(self, graph: Graph, tensor: str) -> Operation | None:
        """Return the operation that writes an ONNX tensor, None where it was folded or lies in a subgraph."""
        return self._writers[id(graph)].get(tensor)


def _writers(graph: Graph) -> dict[str, Operation]:
    return {name: op for op in graph.nodes for name in op.output_names if name}


def is_in_question(goal: ValidityGoal, finding: Finding, confirmer: Confirmer) -> bool:
    """Tell whether a finding violates a validity goal, given the operators and nodes that the goal asks about."""
    op = confirmer.operation(goal.call.graph, finding.output)
    name = finding.node if op is None else op.name
    return (goal.only is None or finding.op_type in goal.only) and (goal.nodes is None or name in goal.nodes)


def meets_conditions(problem: Problem, env: Mapping[str, np.ndarray], confirmer: Confirmer) -> bool:
    """Tell whether concrete inputs lie in the box and, on ONNX Runtime, satisfy all side conditions."""
    if not problem.penalty_names:
        return problem.contains(env)
    # If no goal held, the property would be false exactly there.
    return not problem.holds(env, confirmer.apply, lambda goal, arguments: False)


def feeds_of(
    problem: Problem, call: NetworkCall, env: Mapping[str, np.ndarray], confirmer: Confirmer
) -> dict[str, np.ndarray]:
    """Return the feeds of a network call, by ONNX input name, at concrete values of the variables."""
    tensors = {name: to_torch(array)[None] for name, array in env.items()}
    arguments = problem.arguments(call, tensors, _OnnxEvaluator(confirmer))
    return {name: to_numpy(x[0]) for name, x in zip(call.graph.input_names, arguments, strict=True)}


class _OnnxEvaluator:
    """Evaluates networks inside arguments (`N(M(x))`) on ONNX Runtime."""

    def __init__(self, confirmer: Confirmer) -> None:
        self._confirmer = confirmer

    def outputs(self, call: NetworkCall, arguments: tuple[Tensor, ...]) -> list[Tensor]:
        """See `Evaluator.outputs`."""
        return [to_torch(y)[None] for y in self._confirmer.apply(call, [to_numpy(x[0]) for x in arguments])]

    def validity(self, goal: ValidityGoal, arguments: tuple[Tensor, ...]) -> Tensor:
        """Never asked: an argument is not a formula."""
        raise AssertionError("a validity goal inside an argument")
