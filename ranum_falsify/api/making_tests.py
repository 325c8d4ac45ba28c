"""The unit tests of a property's operators, one after the other, and the files that they have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ranum_falsify.api.kernels import check_kernels
from ranum_falsify.api.loading import BoundProblem
from ranum_falsify.config import ConfirmConfig
from ranum_falsify.results.confirm_report import Standing, TestedOperator, TestedRun, as_json
from ranum_falsify.results.places import unique_names
from ranum_falsify.verify.prove.assumptions import assumptions_of
from ranum_falsify.verify.search.search import Progress
from ranum_falsify.witness.exposed import Watched, expose_operators, watch_operator
from ranum_falsify.witness.maker import Attempt, Question, TestMaker
from ranum_falsify.witness.pytest_file import Case, CheckedOperator, pytest_file
from ranum_falsify.witness.unit_test import Box, UnitTest, arrays_of

Store = Callable[[str, Mapping[str, np.ndarray]], bool]
"""Keeps the arrays of a unit test in a file of this name, and says whether it did."""


class UnitTestGenerator:
    """Makes the unit tests of all operators that are not proved.

    Args:
        loaded: The property.
        config: How to make the tests.
        name: What generated tests call the property.
        self_check: Whether the installed kernels are checked before anything is proved.
        store: Keeps a test at once, so that no two tests need to be in memory; None to keep them there.
    """

    def __init__(
        self,
        loaded: BoundProblem,
        config: ConfirmConfig,
        *,
        name: str,
        self_check: bool = True,
        store: Store | None = None,
    ) -> None:
        self._loaded = loaded
        self._config = config
        self._name = name
        self._self_check = self_check
        self._store = store
        self._questions: list[Question] = []
        self._labels: list[str] = []
        self._boxes: list[Mapping[str, Box]] = []
        self._runs: list[list[TestedRun]] = []
        self._started = False
        self.standing = Standing()

    @property
    def status(self) -> int:
        """Exit status: 0 where all is proved, 1 where something is triggered, else 3."""
        if not self._started:
            return 3  # interrupted before anything is known
        if not (self._questions or self.standing.untested):
            return 0
        return 1 if any(run.test is not None for runs in self._runs for run in runs) else 3

    @property
    def is_started(self) -> bool:
        """Whether it is known what is tested."""
        return self._started

    def work(self, progress: Callable[[Progress], None]) -> None:
        """Make the tests.

        Raises:
            PropertyError: The property asks for something else than valid operands.
            ReplayError: ONNX Runtime cannot run a model.
        """
        with TestMaker(self._loaded.problem, self._config) as maker:
            kernels = check_kernels().notices if self._self_check else ()
            self._questions = maker.questions()
            self.standing = self._stand(maker, kernels)
            self._started = True
            self._labels = unique_names((question.op.name for question in self._questions), set())
            total, done = len(self._questions) * self._config.runs, 0
            for question, label in zip(self._questions, self._labels, strict=True):
                self._runs.append([])
                self._boxes.append(maker.box(question))
                progress(Progress(stage="confirm", done=done / total, text=question.op.name))
                for made in maker.runs_of(question):
                    self._runs[-1].append(self._keep(made, label))
                    done += 1
                    progress(Progress(stage="confirm", done=done / total, text=question.op.name))

    def _stand(self, maker: TestMaker, kernels: Sequence[str]) -> Standing:
        proof = maker.proof
        runtimes = () if proof is None else proof.runtimes
        assumptions = assumptions_of(self._loaded.problem, runtimes)
        notices = (n for goal in maker.problem.goals for n in goal.call.graph.notices)
        return Standing(
            runtimes=runtimes,
            untested=maker.list_untested(self._questions),
            steep=() if proof is None else proof.steep,
            notices=tuple(dict.fromkeys((*kernels, *notices, *maker.notices))),
            assumptions=replace(assumptions, sources=self._loaded.sources),
        )

    def _keep(self, made: Attempt, label: str) -> TestedRun:
        run = TestedRun(seed=made.seed, seconds=made.seconds, test=made.test, file=None)
        if made.test is None or self._store is None:
            return run
        file = _file_of(label, made.seed)
        stored = self._store(file, arrays_of(made.test, self._boxes[-1]))
        return replace(run, test=_drop_arrays(made.test), file=file if stored else None)

    def interrupt(self, reason: str) -> None:
        """Note why the work ended early."""
        self.standing = replace(self.standing, interrupted=reason)

    def collect_tested(self) -> list[TestedOperator]:
        """Return the operators with their runs."""
        return [
            TestedOperator(
                network=question.network,
                node=question.op.name,
                op_type=question.targets[0].spec.op_type,
                condition=question.conditions,
                runs=self._runs[position] if position < len(self._runs) else (),
            )
            for position, question in enumerate(self._questions)
        ]

    def report(self, test_file: str | None, models: Sequence[str], seconds: float) -> dict[str, Any]:
        """Return the report; see `confirm_report.as_json`."""
        return as_json(
            self.collect_tested(),
            standing=self.standing,
            test_file=test_file,
            models=models,
            config=self._config,
            seconds=seconds,
        )

    # files ------------------------------------------------------------------------------------------------------

    def name_files(self) -> dict[str, Mapping[str, np.ndarray]]:
        """Name a file for each test that is in memory; return their arrays."""
        arrays: dict[str, Mapping[str, np.ndarray]] = {}
        for label, box, runs in zip(self._labels, self._boxes, self._runs, strict=False):
            for position, run in enumerate(runs):
                if run.test is not None:
                    file = _file_of(label, run.seed)
                    arrays[file] = arrays_of(run.test, box)
                    runs[position] = replace(run, file=file)
        return arrays

    def make_common_files(self) -> tuple[str | None, dict[str, bytes]]:
        """Return the name of the pytest file, and the content of what the tests have in common; None for no tests."""
        if not any(run.file for runs in self._runs for run in runs):
            return None, {}
        contents, models = self._make_models()
        test_file = f"test_{re.sub(r'[^A-Za-z0-9_]', '_', Path(self._name).stem)}.py"
        return test_file, contents | {test_file: self._make_pytest_file(models).encode()}

    def _make_models(self) -> tuple[dict[str, bytes], list[str]]:
        """Return the content of two files per network, and the name of each question's model."""
        contents: dict[str, bytes] = {}
        graphs = {id(question.call.graph): question.call for question in self._questions}
        several = len(graphs) > 1
        names = unique_names((call.network if several else "model" for call in graphs.values()), set())
        by_graph = dict(zip(graphs, names, strict=True))
        for key, call in graphs.items():
            parts = expose_operators(call.graph, [_watch(q) for q in self._questions if id(q.call.graph) == key])
            contents |= dict(zip((by_graph[key] + ".onnx", by_graph[key] + ".tensors"), parts, strict=True))
        return contents, [by_graph[id(question.call.graph)] for question in self._questions]

    def _make_pytest_file(self, models: Sequence[str]) -> str:
        operators, cases = [], []
        for question, label, model, runs in zip(self._questions, self._labels, models, self._runs, strict=False):
            made = [(run.file, run.test) for run in runs if run.file is not None and run.test is not None]
            if not made:
                continue
            watched = _watch(question)
            operators.append(
                CheckedOperator(label=label, model=model, valid_where=question.conditions, watched=watched)
            )
            cases += [_make_case(file, label, test, watched) for file, test in made]
        return pytest_file(self._name, operators, cases)


def _file_of(label: str, seed: int) -> str:
    return f"{label}.{seed}.npz"


def _watch(question: Question) -> Watched:
    return watch_operator(question.call.graph, question.op, question.targets)


def _drop_arrays(test: UnitTest) -> UnitTest:
    span = None if test.span is None else replace(test.span, lower={}, upper={})
    return replace(test, feeds={}, span=span)


def _make_case(file: str, label: str, test: UnitTest, watched: Watched) -> Case:
    return Case(
        file=file,
        operator=label,
        kind=test.kind,
        tensor=watched.names.get(test.tensor, test.tensor),
        index=test.index,
        flushed=test.flushed,
        hidden=test.oracle == "reference",
        has_span=test.span is not None,
        shown=test.shown,
    )
