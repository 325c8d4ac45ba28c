"""The oracle for concrete inputs: an operator is invalid by ONNX Runtime, or by autograd at ONNX Runtime's values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np
from dnnv.nn import Operation
from onnx import TensorProto

from ranum_falsify.errors import ReplayError
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.naming import tensor_name
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.verify.replay.broken import steep_point
from ranum_falsify.verify.replay.confirmer import Confirmer, feeds_of, meets_conditions
from ranum_falsify.witness.exposed import runs_as_written
from ranum_falsify.witness.unit_test import Trigger

_MOVE = 8
"""Units in the last place by which inputs are moved."""


class Holder:
    """A context manager that holds another one, in the end the child processes for replay."""

    _held: AbstractContextManager[object]

    def __enter__(self) -> Self:
        self._held.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.__exit__(*error)


class Oracle(Holder):
    """Replays candidates; a context manager that starts and ends the child processes."""

    def __init__(self, problem: Problem, *, threads: int = 1) -> None:
        self._problem = problem
        graphs = list({id(call.graph): call.graph for call in problem.calls}.values())
        self.confirmer = self._held = Confirmer(graphs, threads=threads)
        self._before: dict[int, set[str]] = {}

    def judge(self, targets: Sequence[Target], env: Mapping[str, np.ndarray]) -> Trigger | None:
        """Return how inputs make an operator invalid; None if they leave it valid, or if the property excludes them.

        Args:
            targets: The conditions of one operator.
            env: One array per variable.

        Raises:
            ReplayError: ONNX Runtime refuses, crashes or takes too long.
        """
        op, call = targets[0].op, self._problem.goals[targets[0].goal].call
        if not meets_conditions(self._problem, env, self.confirmer):
            return None
        feeds = feeds_of(self._problem, call, env, self.confirmer)
        # Unit tests run without graph optimisations, and see a branch as one node.
        found = self.confirmer.findings(call, feeds, follow=False)
        findings = [f for f in found if f.optimisations != "default"]
        before = self._names_before(call.graph, op)
        alone = before.isdisjoint(finding.output for finding in findings)
        for finding in findings:
            is_own = finding.output in op.output_names
            if finding.kind in ("error", "crash") and not (is_own and spec_of(op).divides):
                return None  # ONNX Runtime refuses these inputs, so that there is nothing to test
            if is_own:
                return Trigger(
                    feeds=feeds,
                    kind=finding.kind,
                    tensor=finding.output,
                    index=finding.index,
                    alone=alone,
                    oracle=finding.oracle,
                )
        if alone and any(target.is_gradient for target in targets):
            return self._judge_gradient(targets, call, feeds)
        return None

    def find_shown(self, call: NetworkCall, trigger: Trigger) -> tuple[str, ...]:
        """Return the outputs that show a failure where users run the model, at ONNX Runtime's default level.

        They are not finite on the trigger's inputs, and on inputs beside them: kernels of processors differ by some
        units in the last place, and a test must not hang on these.
        """
        if trigger.kind in ("error", "crash") or not runs_as_written(call.graph):
            return ()
        try:
            runs = [self.confirmer.run_default(call.graph, f) for f in (trigger.feeds, *_move(trigger.feeds))]
        except ReplayError:
            return ()
        # NumPy has no bfloat16, which users could look at.
        outputs = [x for x in call.graph.model.graph.output if x.type.tensor_type.elem_type != TensorProto.BFLOAT16]
        return tuple(x.name for x in outputs if not any(_is_finite(run.get(x.name)) for run in runs))

    def _judge_gradient(
        self, targets: Sequence[Target], call: NetworkCall, feeds: Mapping[str, np.ndarray]
    ) -> Trigger | None:
        op, spec = targets[0].op, targets[0].spec
        found = steep_point(self.confirmer, call.graph, op, feeds)
        if found is None:
            return None
        named = {name: x for name, x in spec.name_values(found.operands).items() if x is not None}
        read = next(x for x in spec.operands_of(op) if isinstance(x, Operation))
        for target in targets:
            violated = target.constraint.is_violated(op, named) if target.is_gradient else np.zeros(1, bool)
            if violated.any():
                return Trigger(
                    feeds=feeds,
                    kind="gradient",
                    tensor=tensor_name(read),
                    index=tuple(int(i) for i in np.argwhere(violated)[0]),
                    alone=True,
                    oracle=found.oracle,
                )
        return None

    def _names_before(self, graph: Graph, op: Operation) -> set[str]:
        """Return the tensors that an operator depends on."""
        if id(op) not in self._before:
            reached = {id(op)}
            for other in reversed(graph.order):
                if id(other) in reached:
                    reached.update(graph.reads[id(other)])
            reached.discard(id(op))
            self._before[id(op)] = {
                name for other in graph.nodes if id(other) in reached for name in other.output_names
            }
        return self._before[id(op)]


def _move(feeds: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Yield inputs beside others; what is no number of floating point stays, and so does 0."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        yield {
            name: np.asarray(x * (1 + _MOVE * np.finfo(x.dtype).eps * rng.choice((-1, 1), x.shape)), x.dtype)
            if x.dtype.kind == "f"
            else x
            for name, x in feeds.items()
        }


def _is_finite(output: np.ndarray | None) -> bool:
    return output is None or output.dtype.kind != "f" or bool(np.isfinite(output).all())
