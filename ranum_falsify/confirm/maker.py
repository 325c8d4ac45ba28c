"""From a property to unit tests for each operator that is not proved."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch
from dnnv.nn import Operation

from ranum_falsify.config import ConfirmConfig, ProveConfig, SearchConfig
from ranum_falsify.confirm.oracle import Oracle
from ranum_falsify.confirm.repeatable import repeatable
from ranum_falsify.confirm.search import TriggerSearch
from ranum_falsify.confirm.span import SpanProver
from ranum_falsify.confirm.unit_test import OperatorTests, UnitTest
from ranum_falsify.errors import PropertyError
from ranum_falsify.falsify.converter import convert
from ranum_falsify.falsify.device import device_of, settings
from ranum_falsify.falsify.memory import bytes_per_sample
from ranum_falsify.falsify.search import Budget, SearchContext
from ranum_falsify.properties.problem import Problem
from ranum_falsify.properties.targets import Target, targets_of
from ranum_falsify.prove.prover import Prover

__all__ = ["Question", "TestMaker"]


@dataclass(frozen=True)
class Question:
    """An operator that is not proved.

    Attributes:
        network: Name of its network.
        op: The operator.
        targets: Its conditions.
    """

    network: str
    op: Operation
    targets: tuple[Target, ...]


class TestMaker:
    """Makes unit tests; a context manager that holds the child processes which replay.

    Attributes:
        problem: The property, draws of random operators as inputs.
    """

    __test__ = False  # pytest takes classes of this name for its own

    def __init__(self, problem: Problem, config: ConfirmConfig) -> None:
        """Prepare.

        Raises:
            PropertyError: The property asks for something else than valid operands.
            DeviceError: The device does not exist.
        """
        self.problem = repeatable(problem)
        self._config = config
        self._device = device_of(config.device)
        graphs = {id(call.graph): call.graph for call in self.problem.calls}
        self._bytes = bytes_per_sample(graphs.values())
        self._oracle = Oracle(self.problem)
        modules = {key: convert(graph).to(self._device) for key, graph in graphs.items()}
        self._models = [modules[id(call.graph)] for call in self.problem.calls]
        self._spans = {id(call): SpanProver(call) for call in self.problem.calls}

    def __enter__(self) -> Self:
        self._oracle.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._oracle.__exit__(kind, error, traceback)

    def questions(self) -> list[Question]:
        """Return the operators that one interval analysis does not prove, in topological order.

        Raises:
            PropertyError: The configuration names a node that the networks lack.
        """
        proof = Prover(self.problem, ProveConfig(timeout=0.0)).analyse()
        wanted, found = self._config.nodes, list[Question]()
        for number, goal in enumerate(self.problem.goals):
            by_op: dict[int, list[Target]] = {}
            for target in targets_of(number, goal):
                by_op.setdefault(id(target.op), []).append(target)
            for targets in by_op.values():
                op = targets[0].op
                known = proof.operators.get((number, op.name))
                asked = op.name in wanted if wanted is not None else known is None or bool(known.open)
                if asked:
                    found.append(Question(goal.call.network, op, tuple(targets)))
        missing = set(wanted or ()) - {question.op.name for question in found}
        if missing:
            raise PropertyError(f"confirm: the property asks about no node {sorted(missing)[0]!r}")
        return found

    def tests_of(self, question: Question, tick: Callable[[int], None] = lambda run: None) -> OperatorTests:
        """Make the unit tests of one operator.

        Args:
            question: The operator.
            tick: Called before each run with its number.
        """
        tests, seconds = list[UnitTest](), list[float]()
        for run in range(self._config.runs):
            tick(run)
            began = time.monotonic()
            test = self._run(question, self._config.seed + run)
            seconds.append(time.monotonic() - began)
            if test is not None:
                tests.append(test)
        spec = question.targets[0].spec
        return OperatorTests(
            network=question.network,
            node=question.op.name,
            op_type=spec.op_type,
            condition=question.targets[0].constraint.describe(),
            output=next(name for name in question.op.output_names if name),
            runs=self._config.runs,
            tests=tuple(tests),
            seconds=tuple(seconds),
        )

    def _run(self, question: Question, seed: int) -> UnitTest | None:
        config, began = self._config, time.monotonic()
        budget = Budget(began + config.timeout, began)
        search = SearchConfig(seed=seed, timeout=config.timeout, device=config.device)
        with settings(seed, config.processors, self._device, self._bytes):
            context = SearchContext(
                self.problem, search, self._models, self._oracle.confirmer, budget, self._device, _silent
            )
            trigger = TriggerSearch(context, question.targets, self._oracle, descend=config.descend).run()
            if trigger is None:
                return None
            searched = time.monotonic()
            call = self.problem.goals[question.targets[0].goal].call
            with torch.no_grad():
                prover = self._spans[id(call)] if config.span else None
                span = prover.prove(trigger, question.targets, self.problem.inputs) if prover else None
        return UnitTest(
            seed=seed,
            feeds=trigger.feeds,
            kind=trigger.kind,
            tensor=trigger.tensor,
            index=trigger.index,
            alone=trigger.alone,
            flushed=trigger.flushed,
            span=span,
            seconds={
                "search": searched - began - budget.replay_seconds,
                "replay": budget.replay_seconds,
                "span": time.monotonic() - searched,
            },
        )


def _silent(progress: object) -> None:
    return None
