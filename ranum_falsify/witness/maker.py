"""Unit tests from a property, for each operator that is not proved."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from dnnv.nn import Operation

from ranum_falsify.config import ConfirmConfig, ProveConfig, SearchConfig
from ranum_falsify.errors import PropertyError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import spec_of
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.targets import Target, targets_of
from ranum_falsify.verify.prove.proof import Proof
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.verify.search.converter import TorchModel, convert
from ranum_falsify.verify.search.device import bytes_per_sample, device_of, settings
from ranum_falsify.verify.search.search import Budget, SearchContext
from ranum_falsify.witness.exposed import make_repeatable, notices_of
from ranum_falsify.witness.oracle import Holder, Oracle
from ranum_falsify.witness.search import TriggerSearch
from ranum_falsify.witness.span import SpanProver
from ranum_falsify.witness.unit_test import OperatorTests, Span, Trigger, UnitTest


class Unproved:
    """The operators that one interval analysis of a property, as it is asked, leaves open.

    Tests use networks whose random operators are inputs that range over likely draws.  Proofs do not: they cover all
    possible draws.  Operators of both correspond by the tensors that they write.

    Attributes:
        proof: What the analysis proves.
    """

    def __init__(self, problem: Problem) -> None:
        self.proof: Proof = Prover(problem, ProveConfig(prove_timeout=0.0)).analyse()
        self._proved: dict[tuple[int, str], Operation] = {}
        self._open: dict[tuple[int, str], Operation] = {}
        for number, goal in enumerate(problem.goals):
            for op in goal.call.graph.nodes:
                known = self.proof.operators.get((number, op.name))
                if known is not None:
                    table = self._open if known.open else self._proved
                    table.update(((number, name), op) for name in op.output_names if name)

    def is_proved(self, goal: int, op: Operation) -> bool:
        """Tell whether an operator is proved, or open only because of others.

        Args:
            goal: Position of the validity goal.
            op: The operator, of the network as asked or of that with draws as inputs.
        """
        return any((goal, name) in self._proved for name in op.output_names)

    def list_besides(self, tested: Collection[tuple[int, Operation]]) -> tuple[str, ...]:
        """Return the titles of the open operators that no test is about: random ones themselves.

        Args:
            tested: Operators that tests are about, each with the position of the validity goal.
        """
        known = {(goal, name) for goal, op in tested for name in op.output_names}
        left = [op for key, op in self._open.items() if key not in known]
        return tuple(dict.fromkeys(f"{op.name} ({spec_of(op).op_type})" for op in left))


_ATTEMPTS = 4
"""Number of triggers of one run around which a span is looked for."""

_SPAN_SHARE = 0.1
"""Share of a run's time after which it looks for no other trigger for the sake of a span."""


@dataclass(frozen=True)
class Question:
    """An operator that is not proved."""

    network: str
    call: NetworkCall
    op: Operation
    targets: tuple[Target, ...]

    @property
    def conditions(self) -> str:
        """The conditions as text for people."""
        return ", ".join(dict.fromkeys(target.constraint.describe() for target in self.targets))


@dataclass(frozen=True)
class Attempt:
    """One search for a unit test."""

    seed: int
    test: UnitTest | None
    seconds: float


class TestMaker(Holder):
    """Makes unit tests; a context manager that holds the child processes for replay.

    Attributes:
        problem: The property, with the draws of random operators as inputs.
    """

    __test__ = False  # pytest takes classes of this name for its own

    def __init__(self, problem: Problem, config: ConfirmConfig) -> None:
        """Prepare.

        Raises:
            PropertyError: The property asks for something other than valid operands.
            DeviceError: The device does not exist.
        """
        self._asked = problem
        self.problem = make_repeatable(problem)
        self._config = config
        self._device = device_of(config.device)
        graphs = {id(call.graph): call.graph for call in self.problem.calls}
        self._bytes = bytes_per_sample(graphs.values())
        self._oracle = self._held = Oracle(self.problem)
        modules = {key: convert(graph).to(self._device) for key, graph in graphs.items()}
        self._models = [modules[id(call.graph)] for call in self.problem.calls]
        self._spans = {id(call): SpanProver(call) for call in self.problem.calls}

    def questions(self) -> list[Question]:
        """Return the operators that one interval analysis of the property leaves unproved, in topological order.

        Raises:
            PropertyError: The configuration names a node that the networks lack.
        """
        wanted, found = self._config.nodes, list[Question]()
        for number, goal in enumerate(self.problem.goals):
            by_op: dict[int, list[Target]] = {}
            for target in targets_of(number, goal):
                by_op.setdefault(id(target.op), []).append(target)
            for targets in by_op.values():
                op = targets[0].op
                if op.name in wanted if wanted is not None else not self._unproved.is_proved(number, op):
                    found.append(Question(goal.call.network, goal.call, op, tuple(targets)))
        missing = set(wanted or ()) - {question.op.name for question in found}
        if missing:
            raise PropertyError(f"confirm: the property asks about no node {sorted(missing)[0]!r}")
        return found

    def model_of(self, question: Question) -> TorchModel:
        """Return the network of a question as a module."""
        return next(m for c, m in zip(self.problem.calls, self._models, strict=True) if c is question.call)

    def list_untested(self, questions: Sequence[Question]) -> tuple[str, ...]:
        """Return the titles of the operators that are neither proved nor the subject of a question."""
        if self._config.nodes is not None:
            return ()
        return self._unproved.list_besides([(question.targets[0].goal, question.op) for question in questions])

    @property
    def proof(self) -> Proof | None:
        """What is proved about the property as asked; None if the configuration says which operators to test."""
        return None if self._config.nodes is not None else self._unproved.proof

    @property
    def notices(self) -> tuple[str, ...]:
        """What users should know about the draws and about the proof."""
        return (*notices_of(self._asked), *(self.proof.notices if self.proof is not None else ()))

    @cached_property
    def _unproved(self) -> Unproved:
        return Unproved(self._asked)

    def box(self, question: Question) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
        """Return the ranges of the inputs of a question's network, by ONNX name; expressions are left out."""
        ranges = {v.name: (v.lower, v.upper) for v in self.problem.inputs}
        names = zip(question.call.graph.input_names, question.call.variables, strict=True)
        return {name: ranges[variable] for name, variable in names if variable is not None}

    def runs_of(self, question: Question) -> Iterator[Attempt]:
        """Make the unit tests of one operator; yield each as soon as it is made, so that none waits in memory."""
        for seed in range(self._config.seed, self._config.seed + self._config.runs):
            began = time.monotonic()
            test = self.make_test(question, seed, self._config.timeout)
            yield Attempt(seed, test, time.monotonic() - began)

    def tests_of(self, question: Question, tick: Callable[[int], None] = lambda run: None) -> OperatorTests:
        """Make the unit tests of one operator.

        Args:
            question: The operator.
            tick: Called before each run with its number.
        """
        tests, seconds = list[UnitTest](), list[float]()
        tick(0)
        for run in self.runs_of(question):
            seconds.append(run.seconds)
            if run.test is not None:
                tests.append(run.test)
            if len(seconds) < self._config.runs:
                tick(len(seconds))
        spec = question.targets[0].spec
        return OperatorTests(
            network=question.network,
            node=question.op.name,
            op_type=spec.op_type,
            condition=question.conditions,
            output=next(name for name in question.op.output_names if name),
            runs=self._config.runs,
            tests=tuple(tests),
            seconds=tuple(seconds),
        )

    def make_test(self, question: Question, seed: int, seconds: float) -> UnitTest | None:
        """Make one unit test of an operator, within so many seconds; as many are for its span."""
        config, began = self._config, time.monotonic()
        budget = Budget(Deadline.after(seconds), began)
        search = SearchConfig(seed=seed, timeout=seconds, device=config.device)
        with settings(seed, config.processors, self._device, self._bytes):
            context = SearchContext(
                self.problem, search, self._models, self._oracle.confirmer, budget, self._device, lambda progress: None
            )
            trigger, span, proving = self._trigger(context, question)
        if trigger is None:
            return None
        shown = self._oracle.find_shown(question.call, trigger)
        return UnitTest(
            **vars(trigger),
            seed=seed,
            span=span,
            shown=shown,
            seconds={
                "search": time.monotonic() - began - budget.replay_seconds - proving,
                "replay": budget.replay_seconds,
                "span": proving,
            },
        )

    def _trigger(self, context: SearchContext, question: Question) -> tuple[Trigger | None, Span | None, float]:
        """Return a trigger, if possible one with a span, and the seconds spent on spans."""
        prover = self._spans[id(question.call)] if self._config.span else None
        first, proving = None, 0.0
        late = Deadline(context.budget.began + _SPAN_SHARE * self._config.timeout)
        for _ in range(_ATTEMPTS):
            trigger = TriggerSearch(context, question.targets, self._oracle, descend=self._config.descend).run()
            if trigger is None or prover is None:
                return first or trigger, None, proving
            began = time.monotonic()
            with torch.no_grad():
                ends = Deadline.after(self._config.timeout)
                span = prover.prove(trigger, question.targets, self.problem.inputs, deadline=ends)
            proving += time.monotonic() - began
            if span is not None:
                return trigger, span, proving
            first = first or trigger
            if late.has_passed:
                break
        return first, None, proving
