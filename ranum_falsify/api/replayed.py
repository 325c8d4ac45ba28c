"""Replay of concrete inputs, and the lines that report it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
from dnnv.nn import Operation

from ranum_falsify.api.loading import BoundProblem
from ranum_falsify.api.models import Runnable
from ranum_falsify.config import Reach, Runtime
from ranum_falsify.errors import UsageError
from ranum_falsify.network import Graph
from ranum_falsify.network.construction import MOST_NODES
from ranum_falsify.network.messages import show_number
from ranum_falsify.network.model_file import free_model
from ranum_falsify.network.string_inputs import string_inputs
from ranum_falsify.properties.formula.terms import NetworkCall, ValidityGoal
from ranum_falsify.results.arrays import check_arrays
from ranum_falsify.results.text import describe_iterations, describe_kind, finding_lines, group_iterations
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.replay.broken import find_broken, steep_in_torch, steep_point
from ranum_falsify.verify.replay.confirmer import Confirmer, is_in_question
from ranum_falsify.verify.replay.replayer import Finding, Replayer
from ranum_falsify.verify.search.operator_status import describe_failing, describe_shown, describe_steep
from ranum_falsify.verify.search.result import Oracle
from ranum_falsify.verify.search.torch_replay import TorchFailure, find_failing_in_torch, runtimes_of

_OF_TORCH = ("torch", "module", "autograd-torch")
"""Oracles that are PyTorch."""


@dataclass(frozen=True, kw_only=True)
class ReplayCase:
    """Concrete inputs, and what they showed.

    Attributes:
        network: The network as the property writes it; "" for a property that is not about validity.
        load: Returns the arrays by ONNX input, or by variable where `network` is "".
        violations: The operators that they violated, as descriptions of counterexamples have them.
        title: What to call it beside others.
    """

    network: str
    load: Callable[[], Mapping[str, np.ndarray]]
    violations: Sequence[Mapping[str, object]] = ()
    title: str = ""

    @property
    def gradients(self) -> list[str]:
        """The nodes whose derivatives were not finite."""
        return [str(violation["node"]) for violation in self.violations if violation.get("kind") == "gradient"]

    @property
    def names_inner(self) -> bool:
        """Whether a node may lie in a subgraph, by its name."""
        return any("/" in str(violation.get("node")) for violation in self.violations)

    @property
    def shown_by_torch(self) -> dict[str, str]:
        """The nodes that PyTorch showed, with their operators."""
        return {str(v["node"]): str(v["op_type"]) for v in self.violations if v.get("oracle") in _OF_TORCH}


@dataclass(frozen=True)
class ReplayOutcome:
    """What one counterexample showed: whether it violates, the lines about it, its title, and what failed."""

    violated: bool
    lines: Sequence[str]
    title: str = ""
    findings: Sequence[Finding] = ()


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """How to replay.

    Attributes:
        threads: Threads of ONNX Runtime.
        reading: Makes the context in which models are read.
        outputs_alone: Whether only violations count that an output shows.
    """

    threads: int
    reading: Callable[[], AbstractContextManager[None]]
    outputs_alone: bool = False

    def counts(self, reach: Reach) -> bool:
        """Tell whether a violation of this reach counts."""
        return not self.outputs_alone or reach == "output"

    def replay_model(self, runnable: Runnable, case: ReplayCase) -> ReplayOutcome:
        """Replay on a model as it is; initializers may be among the arrays."""
        arrays = case.load()
        with self.reading():
            model = runnable.load()
        feeds = check_arrays(model, arrays, runnable.label)
        inputs = {value.name for value in model.graph.input}
        free = [name for name in feeds if name not in inputs]
        whole = model if runnable.path is None or string_inputs(model) else runnable.path
        source = free_model(model, free) if free else whole
        with Replayer(source, threads=self.threads) as replayer:
            findings = replayer.run(feeds).findings
        with self.reading():
            graph = None if free else runnable.read_for(feeds)
        return self.show(findings, case, None if graph is None else TorchReplay(graph, feeds))

    def replay_graph(self, graph: Graph, case: ReplayCase) -> ReplayOutcome:
        """Replay on a network that was read: a part, a conversion, or where derivatives, PyTorch or subgraphs count."""
        arrays = case.load()
        if case.gradients:
            return self._replay_gradients(graph, case, arrays)
        feeds = check_arrays(graph.model, arrays, Runnable(case.network).label)
        with Confirmer([graph], threads=self.threads) as confirmer:
            call = NetworkCall(network=case.network, graph=graph, arguments=())
            found = confirmer.findings(call, feeds, inside=MOST_NODES)
            operations = {one.output: confirmer.operation(graph, one.output) for one in found}
        return self.show(found, case, TorchReplay(graph, feeds, operations))

    def _replay_gradients(self, graph: Graph, case: ReplayCase, arrays: Mapping[str, np.ndarray]) -> ReplayOutcome:
        """Differentiate the nodes in question at the operands that ONNX Runtime computes, or PyTorch."""
        operations = {op.name: op for op in graph.nodes}
        lines: list[str] = []
        gone = sorted(set(case.gradients) - set(operations))
        if gone:
            raise UsageError(f"{case.network}: there is no node {gone[0]!r}; give the model that was searched")
        with Confirmer([graph], threads=self.threads) as confirmer:
            for name in case.gradients:
                op = operations[name]
                oracle: Oracle = "autograd-torch"
                operands = steep_in_torch(graph, op, arrays) if name in case.shown_by_torch else None
                if operands is None:
                    found = steep_point(confirmer, graph, op, arrays)
                    if found is None:
                        continue
                    operands, oracle = found.operands, found.oracle
                lines += finding_lines(describe_steep(op, operands, oracle))
        return ReplayOutcome(bool(lines), lines, case.title)

    def replay_formula(self, loaded: BoundProblem, case: ReplayCase) -> ReplayOutcome:
        """Evaluate a property with the outputs of ONNX Runtime."""
        problem, arrays = loaded.problem, case.load()
        outputs: list[str] = []
        for variable in problem.inputs:
            array = arrays.get(variable.name)
            if array is None or array.shape != variable.shape or array.dtype != variable.dtype:
                raise UsageError(
                    f"input {variable.name!r} of the property is {variable.dtype} {list(variable.shape)}, "
                    f"the counterexample has {'none' if array is None else f'{array.dtype} {list(array.shape)}'}"
                )
        with Confirmer([call.graph for call in problem.calls], threads=self.threads) as confirmer:

            def name(call: NetworkCall, arguments: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
                return dict(zip(call.graph.input_names, arguments, strict=True))

            def run(call: NetworkCall, arguments: tuple[np.ndarray, ...]) -> Sequence[np.ndarray]:
                values = confirmer.outputs(call.graph, name(call, arguments))
                outputs.extend(_describe_outputs(call, values))
                return values

            def is_valid(goal: ValidityGoal, arguments: tuple[np.ndarray, ...]) -> bool:
                found = confirmer.findings(goal.call, name(goal.call, arguments), inside=MOST_NODES)
                return not any(
                    self.counts(finding.reach) and is_in_question(goal, finding, confirmer) for finding in found
                )

            violated = not problem.holds(arrays, run, is_valid)
        verdict = f"  the property is {'false' if violated else 'true'} on these inputs"
        return ReplayOutcome(violated, [verdict, *outputs], case.title)

    def show(self, findings: Sequence[Finding], case: ReplayCase, beside: TorchReplay | None) -> ReplayOutcome:
        """Return what inputs showed."""
        counted = [finding for finding in findings if self.counts(finding.reach)]
        lines: list[str] = []
        alike = ((_name(one), (one.op_type, one.kind, one.reach, one.optimisations), one) for one in counted)
        for finding, others in group_iterations(alike):
            broken = None if beside is None else beside.find_broken(finding)
            failing = describe_shown(finding, _name(finding), broken)
            runtimes = () if beside is None else beside.runtimes(finding)
            lines += finding_lines(replace(failing, runtimes=runtimes), values=finding.values)
            lines += [f"    {describe_iterations(others)}"] if others else []
        if len(counted) < len(findings):
            lines.append(f"  {len(findings) - len(counted)} that no output shows left out")
        alone = {} if beside is None else beside.find_torch_alone(findings)
        of_torch = {node: op for node, op in case.shown_by_torch.items() if node in alone}
        shown = {node: op for node, op in of_torch.items() if self.counts(alone[node].reach)}
        for node, op_type in shown.items():
            lines += finding_lines(describe_failing(replace(alone[node], op_type=op_type), node))
        seen = {finding.op_type for finding in findings}
        for violation in case.violations:
            if violation.get("op_type") not in seen and violation.get("node") not in of_torch:
                lines.append(f"  not seen again: {violation.get('node')} ({violation.get('op_type')})")
        lines += [
            f"  only on PyTorch, and so not counted: {node} ({failure.op_type}) gives "
            f"{describe_kind(failure.kind, ('torch',))}"
            for node, failure in alone.items()
            if node not in of_torch
        ]
        return ReplayOutcome(bool(counted or shown), lines, case.title, counted)


class TorchReplay:
    """What PyTorch shows on the inputs that ONNX Runtime ran on.

    Args:
        graph: The network.
        feeds: One array per input.
        inner: By the tensor that it writes, operations in subgraphs of it.
    """

    def __init__(
        self, graph: Graph, feeds: Mapping[str, np.ndarray], inner: Mapping[str, Operation | None] | None = None
    ) -> None:
        own = {name: op for op in graph.nodes for name in op.output_names if name}
        self._nodes = {op.name for op in graph.nodes}
        self._writers: Mapping[str, Operation | None] = {**(inner or {}), **own}
        self._failing = find_failing_in_torch(graph, feeds)

    def find_broken(self, finding: Finding) -> Constraint | None:
        """Return the condition that an operator breaks on ONNX Runtime; None if that cannot be told."""
        op = self._writers.get(finding.output)
        return None if op is None else find_broken(op, finding)

    def runtimes(self, finding: Finding) -> tuple[Runtime, ...]:
        """Return the runtimes on which an operator fails; none if they cannot be compared."""
        op = self._writers.get(finding.output)
        if op is None or op.name not in self._nodes or self._failing is None:
            return ()
        return runtimes_of(op.name, finding.oracle, self._failing)

    def find_torch_alone(self, findings: Sequence[Finding]) -> Mapping[str, TorchFailure]:
        """Return the operators that fail on PyTorch alone, by name."""
        known = {op.name for finding in findings if (op := self._writers.get(finding.output)) is not None}
        return {
            node: failure
            for node, failure in (self._failing or {}).items()
            if node not in known and not any(name.startswith(f"{node}/") for name in known)
        }


def _describe_outputs(call: NetworkCall, values: Sequence[np.ndarray]) -> Iterator[str]:
    for name, value in zip(call.graph.output_names, values, strict=True):
        if 0 < value.size <= 10:
            text = ", ".join(map(show_number, value.reshape(-1).tolist()))
        else:
            text = f"shape {list(value.shape)}"
        yield f"    {call.network}: {name} = {text}"


def _name(finding: Finding) -> str:
    """Return the node's name as graphs have it."""
    return finding.node or f"{finding.op_type}_{finding.output}"
