"""Confirmation: only what ONNX Runtime shows on the original model counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np
import onnx
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.errors import ModelError, ReplayError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.construction import MOST_NODES
from ranum_falsify.network.model_file import free_first_dimension
from ranum_falsify.network.nesting import has_subgraphs
from ranum_falsify.network.tensorise import has_others
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.properties.formula.terms import NetworkCall, ValidityGoal
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.replay.replayer import Finding, Replay, Replayer

_STEERING = frozenset({"If", "Loop", "Scan"})
"""Operators with subgraphs, which fail where an operator in there does."""


class Confirmer:
    """Replays candidates on the networks of a problem; one child process per network, started at once.

    A context manager; leaving it ends the child processes.  With `flush`, they replace denormal numbers by 0, as many
    devices do.
    """

    def __init__(self, graphs: Sequence[Graph], *, threads: int = 1, flush: bool = False) -> None:
        self._graphs = list(graphs)
        self._replayers = {id(graph): Replayer(graph.model, threads=threads, flush=flush) for graph in graphs}
        self._threads = threads
        self._flush = flush
        self._derived: dict[tuple[str | int, ...], Replayer] = {}
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
        for replayer in (*self._replayers.values(), *self._derived.values()):
            replayer.close()

    @cached_property
    def flushing(self) -> Confirmer:
        """A confirmer that replaces denormal numbers by 0; its child processes start when they are needed."""
        return Confirmer(self._graphs, threads=self._threads, flush=True)

    def _derive(self, key: tuple[str | int, ...], make: Callable[[], onnx.ModelProto]) -> Replayer:
        """Return the replayer of a model that is made of those of the networks, once for each key."""
        if key not in self._derived:
            self._derived[key] = Replayer(make(), threads=self._threads, flush=self._flush)
        return self._derived[key]

    def run(self, graph: Graph, feeds: Mapping[str, np.ndarray]) -> Replay:
        """Run the graph's model with every intermediate exposed."""
        return self._replayers[id(graph)].run(feeds)

    def inline(self, call: NetworkCall, graph: Graph) -> None:
        """Record which graph the search runs for an application: its own, or with inlined branches."""
        self._inlined[id(call)] = graph
        self._writers[id(call.graph)] = _writers(graph) | self._writers[id(call.graph)]

    def findings(
        self, call: NetworkCall, feeds: Mapping[str, np.ndarray], *, inside: int = 0, follow: bool = True
    ) -> tuple[Finding, ...]:
        """Run an application's original model; report the operators in its subgraphs that fail under their own names.

        What runs in a subgraph shows in a model without subgraphs, of the same operators, and only if that gives the
        same outputs.  Loops whose length an input decides may unroll to `inside` nodes, so that they are looked into
        although the model as a whole shows nothing: a later operator may swallow what fails.  Without `follow`, what an
        input decides is not looked into at all; its node is reported.
        """
        found = self.run(call.graph, feeds).findings
        graph = self._inlined.get(id(call), call.graph)
        kept = () if follow else _writers(graph)
        steering = [f for f in found if f.op_type in _STEERING and f.output not in kept]
        if follow and (steering or inside) and has_subgraphs(graph):
            inner = self._follow(call.graph, feeds, MOST_NODES if steering else inside)
        else:
            inner = self._look_inside(call.graph, graph, feeds, shown=bool(steering))
        return tuple(finding for finding in found if not inner or finding not in steering) + inner

    def _look_inside(
        self, whole: Graph, graph: Graph, feeds: Mapping[str, np.ndarray], *, shown: bool
    ) -> tuple[Finding, ...]:
        """Return the operators of a graph that fail, those that its model has outside of subgraphs left out.

        Some of its subgraphs are unrolled, and some inputs constants; `shown` says that the model shows that a subgraph
        fails.
        """
        if not any(op.name in graph.origins for op in graph.nodes):
            return ()
        replayer = self._derive(("flat", id(graph)), graph.as_onnx)
        own = {name: feeds[name] for name in graph.input_names}
        found = _find_inner(replayer.run(own).findings, graph)
        if found and not shown and not _agree(self.run_default(whole, feeds), replayer.outputs(own)):
            return ()
        return found

    def _follow(self, graph: Graph, feeds: Mapping[str, np.ndarray], most: int) -> tuple[Finding, ...]:
        """Return the operators in subgraphs that fail where inputs decide what runs there."""
        if graph.read_again is None:
            return ()
        try:
            path = graph.read_again(replace(graph.options, example=feeds, unrolled=most))
            with Replayer(path.as_onnx(), threads=self._threads, flush=self._flush) as replayer:
                if not _agree(self.run_default(graph, feeds), replayer.outputs(feeds)):
                    return ()
                self._writers[id(graph)] |= _writers(path, inner=True)
                return _find_inner(replayer.run(feeds).findings, path)
        except (ModelError, ReplayError):
            return ()  # the model as a whole has shown what fails

    def run_default(self, graph: Graph, feeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Run the graph's model as users do; return its outputs that are arrays, by name."""
        return self._replayers[id(graph)].outputs(feeds)

    def outputs(self, graph: Graph, feeds: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Run the graph's model; return its outputs in order."""
        if graph.source is None or not has_others(graph.source.graph):
            return tuple(self.run_default(graph, feeds).values())
        # Outputs that are strings or maps there are numbers here.
        return tuple(self._derive(("numbers", id(graph)), graph.as_onnx).outputs(feeds).values())

    def outputs_of_batch(self, graph: Graph, feeds: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Run the graph's model, whose inputs have a dimension of 1 in front, on several samples along it.

        Raises:
            ReplayError: The model cannot have another size there.
        """
        replayer = self._derive(("batch", id(graph)), lambda: free_first_dimension(graph.model))
        return tuple(replayer.outputs(feeds).values())

    def outputs_between(self, graph: Graph, source: Operation, op: Operation, x: np.ndarray) -> list[np.ndarray]:
        """Run the part of a graph from one operation to another, elementwise, without optimisations and with them.

        The result of the first, on which it runs, may have another size in its first dimension.

        Raises:
            ReplayError: ONNX Runtime refuses, crashes or takes too long.
        """
        replayer = self._derive(
            ("part", id(source), id(op)), lambda: free_first_dimension(graph.cut_between(source, op).model)
        )
        return [next(iter(run({source.name: x}).values())) for run in (replayer.run_plain, replayer.outputs)]

    def find_revealing(self, graph: Graph, samples: Mapping[str, np.ndarray], seconds: float) -> list[int]:
        """Run the graph's model on many inputs `(count, *shape)`; see `Replayer.find_revealing`."""
        return self._replayers[id(graph)].find_revealing(samples, seconds)

    def apply(self, call: NetworkCall, arguments: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return the outputs of an application on concrete arguments."""
        return self.outputs(call.graph, dict(zip(call.graph.input_names, arguments, strict=True)))

    def operands(self, graph: Graph, op: Operation, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray | None]:
        """Return the operands that an operator reads on ONNX Runtime, in the order of its row; None where absent."""
        values = spec_of(op).operands_of(op)
        computed = list({id(v): v for v in values if isinstance(v, Operation)}.values())
        feeds = {name: feeds[name] for name in graph.input_names}
        replayer = self._derive(("operands", id(op)), lambda: graph.cut_after(computed).model)
        results = dict(zip(map(id, computed), replayer.run_plain(feeds).values(), strict=True))
        return [results[id(v)] if isinstance(v, Operation) else v for v in values]

    def operation(self, graph: Graph, tensor: str) -> Operation | None:
        """Return the operation that writes an ONNX tensor, None where it was folded or lies in a subgraph.

        Where inputs decide what runs in a subgraph, its operations are those of the last findings.
        """
        return self._writers[id(graph)].get(tensor)


def _find_inner(findings: Sequence[Finding], graph: Graph) -> tuple[Finding, ...]:
    """Return the findings about operators that lie in subgraphs of the model, by the names of their own outputs.

    What they write is named otherwise outside, where the name would lead to the operator that has the subgraph.
    """
    inner = {op.name: op for op in graph.nodes if op.name in graph.origins}
    return tuple(
        replace(finding, output=next(name for name in inner[finding.node].output_names if name))
        for finding in findings
        if finding.node in inner
    )


def _agree(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    """Tell whether two runs gave the same outputs, bit by bit but for their NaN."""
    pairs = zip(a.values(), b.values(), strict=True)
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind in "fV") for x, y in pairs)


def _writers(graph: Graph, *, inner: bool = False) -> dict[str, Operation]:
    """Return which operation writes a tensor, by its name; of `inner` ones only, those that lie in subgraphs."""
    nodes = (op for op in graph.nodes if not inner or op.name in graph.origins)
    return {name: op for op in nodes for name in op.output_names if name}


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
