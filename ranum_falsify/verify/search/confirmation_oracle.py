"""The oracle that confirms concrete inputs: ONNX Runtime, or PyTorch where the question is about it alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
from dnnv.nn import Operation
from dnnv.nn.operations import Input

from ranum_falsify.errors import ReplayError
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.order import topological_order
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.prove.applications import find_before
from ranum_falsify.verify.replay.broken import find_broken, steep_in_torch, steep_point
from ranum_falsify.verify.replay.confirmer import is_in_question
from ranum_falsify.verify.replay.replayer import Finding
from ranum_falsify.verify.search.operator_status import describe_failing, describe_shown, describe_steep
from ranum_falsify.verify.search.result import KIND_NAMES, Counterexample, OperatorResult, Oracle
from ranum_falsify.verify.search.search import SearchContext
from ranum_falsify.verify.search.torch_replay import find_failing_in_torch, runtimes_of

_MASK = 1 << 20


class ConfirmationOracle:
    """Says what concrete inputs show, of the targets that are searched for."""

    def __init__(self, context: SearchContext, targets: Sequence[Target]) -> None:
        self._context = context
        self._targets = targets
        self._elsewhere: dict[tuple[int, str], str] = {}
        self._not_run: dict[int, str] = {}  # by position of the goal, why

    @property
    def is_torch(self) -> bool:
        """Whether PyTorch decides."""
        return self._context.config.judge == "torch"

    def list_shown(
        self, number: int, example: Counterexample, violated: Target | None, *, inside: int = 0
    ) -> list[OperatorResult]:
        """Return the operators in question that are invalid, where the search found some target violated.

        Raises:
            ReplayError: ONNX Runtime refuses, crashes or takes too long.
        """
        return self._trace(number, list(self._show(number, example, violated, inside=inside)))

    def _show(
        self, number: int, example: Counterexample, violated: Target | None, *, inside: int
    ) -> Iterator[OperatorResult]:
        failing = find_failing_in_torch(self._graph(number), example.feeds) if self.is_torch else None
        pairs = self._list_findings(number, example, inside=inside, is_needed=failing is None)
        if failing is None:
            for name, finding in pairs:
                yield describe_shown(finding, name, self._find_broken(number, name, finding, violated), example)
            return
        findings = dict(pairs)
        for name in findings.keys() - failing.keys():
            self._note_elsewhere(number, name, findings[name])
        for target in self._list_targets(number, failing):
            name = target.op.name
            oracle = findings[name].oracle if name in findings else None
            found = describe_failing(failing[name], name, example, runtimes_of(name, oracle, failing))
            refuted = self._context.refute(found)
            if refuted is None:
                yield found
            else:
                self._elsewhere[number, found.node] = refuted

    def _trace(self, number: int, shown: Sequence[OperatorResult]) -> list[OperatorResult]:
        """Return operators with those that make their infinite operands, of operators that fail at the same inputs."""
        if len(shown) < 2:
            return list(shown)
        problem = self._context.problem
        graphs = {id(call): self._context.model_of(call).graph for call in problem.calls}
        call, names = problem.goals[number].call, {one.node for one in shown}
        failing = {op.name: op for op in graphs[id(call)].nodes if op.name in names}
        writers = {name: op for op in graphs[id(call)].nodes for name in op.output_names}
        failed = {id(op) for op in failing.values()}
        before = find_before(problem, graphs, {id(call): failed}, {})[id(call)]

        def list_makers(one: OperatorResult) -> Iterator[str]:
            op = failing.get(one.node)
            read = {} if op is None else spec_of(op).name_values(spec_of(op).operands_of(op))
            for name, ends in one.operands.items():
                made = read.get(name, writers.get(name))
                if isinstance(made, Operation) and any(map(math.isinf, ends)) and not _reads_infinity(made):
                    yield from before[id(made)]
                    yield from [made.name] if id(made) in failed else ()

        return [replace(one, after=tuple(dict.fromkeys(list_makers(one)))) for one in shown]

    def _list_findings(
        self, number: int, example: Counterexample, *, inside: int, is_needed: bool
    ) -> list[tuple[str, Finding]]:
        """Return what ONNX Runtime shows; nothing where it cannot run the network, if PyTorch answers alone."""
        if number in self._not_run and not is_needed:
            return []
        try:
            return list(self._find(number, example, inside=inside))
        except ReplayError as error:
            if is_needed:
                raise
            self._not_run[number] = f"ONNX Runtime was not asked beside PyTorch: {str(error).partition('; ')[0]}"
            return []

    def _find(self, number: int, example: Counterexample, *, inside: int) -> Iterator[tuple[str, Finding]]:
        """Yield what ONNX Runtime shows, by the name of the operator."""
        goal, confirmer = self._context.problem.goals[number], self._context.confirmer
        for finding in confirmer.findings(goal.call, example.feeds, inside=inside):
            if is_in_question(goal, finding, confirmer):
                op = confirmer.operation(goal.call.graph, finding.output)
                yield finding.node or finding.output if op is None else op.name, finding

    def _list_targets(self, number: int, names: Collection[str]) -> list[Target]:
        """Return a target for each of these operators."""
        return list({t.op.name: t for t in self._targets if t.goal == number and t.op.name in names}.values())

    def _find_broken(self, number: int, name: str, finding: Finding, violated: Target | None) -> Constraint | None:
        """Return the condition that an operator breaks; if that cannot be told, the one that the search broke."""
        op = self._context.confirmer.operation(self._context.problem.goals[number].call.graph, finding.output)
        broken = None if op is None else find_broken(op, finding)
        if broken is not None:
            return broken
        targets = [t for t in self._targets if t.goal == number and t.op.name == name]
        targets.sort(key=lambda target: (target.is_remote, target is not violated))
        return targets[0].constraint if targets else None

    def differentiate(self, target: Target, example: Counterexample) -> OperatorResult | None:
        """Return the operator of a target if its derivative is not finite on inputs."""
        graph, op = self._graph(target.goal), target.op
        if self.is_torch:
            operands = steep_in_torch(graph, op, example.feeds)
            oracle: Oracle = "autograd-torch"
        else:
            found = steep_point(self._context.confirmer, graph, op, example.feeds)
            operands, oracle = (None, "autograd") if found is None else (found.operands, found.oracle)
        return None if operands is None else describe_steep(op, operands, oracle, target.constraint, example)

    def _graph(self, number: int) -> Graph:
        return self._context.model_of(self._context.problem.goals[number].call).graph

    def _note_elsewhere(self, number: int, name: str, finding: Finding) -> None:
        self._elsewhere[number, name] = (
            f"{name} ({finding.op_type}) gives {KIND_NAMES[finding.kind]} on ONNX Runtime, where PyTorch does not: "
            "not counted, because the answer is about torch"
        )

    def notices(self, found: Collection[tuple[int, str]]) -> tuple[str, ...]:
        """Return what users should know: operators that fail elsewhere alone, or why ONNX Runtime did not run."""
        alone = (text for key, text in self._elsewhere.items() if key not in found)
        return (*alone, *dict.fromkeys(self._not_run.values()))


def _reads_infinity(op: Operation) -> bool:
    """Tell whether a stored infinity, as of a mask, may be what an operation writes; weights are larger than masks."""
    nodes = [one for one in topological_order([op]) if not isinstance(one, Input)]
    stored = [x for one in nodes for x in spec_of(one).operands_of(one) if isinstance(x, np.ndarray)]
    return any(x.dtype.kind == "f" and x.size <= _MASK and bool(np.isinf(x).any()) for x in stored)
