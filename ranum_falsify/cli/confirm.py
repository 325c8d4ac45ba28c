"""The command `confirm`: unit tests for the operators that are not proved, as files that need no ranum-falsify."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ranum_falsify.api.kernels import check_kernels
from ranum_falsify.api.loading import Loaded
from ranum_falsify.cli.files import check_writable, is_stream, output_folder, write_json
from ranum_falsify.cli.options import PROGRAM, ConfirmOptions
from ranum_falsify.cli.output import say
from ranum_falsify.cli.progress import ProgressDisplay
from ranum_falsify.cli.reading import check_files, load_files
from ranum_falsify.cli.streams import complain, verdict_stands
from ranum_falsify.confirm.arrays import arrays_of, write_arrays
from ranum_falsify.confirm.exposed import Watched, expose_operators, watch_operator
from ranum_falsify.confirm.maker import Attempt, Question, TestMaker
from ranum_falsify.confirm.pytest_file import Case, CheckedOperator, pytest_file
from ranum_falsify.confirm.unit_test import UnitTest
from ranum_falsify.escaping import json_text
from ranum_falsify.prove.assumptions import assumptions_of
from ranum_falsify.report.confirm_report import Standing, TestedOperator, TestedRun, as_json, lines, list_files, summary
from ranum_falsify.report.names import unique_names
from ranum_falsify.saving import save_together
from ranum_falsify.search.search import Progress

__all__ = ["run"]

_REPORT = "confirm.json"


def run(options: ConfirmOptions) -> int:
    """Run the command.

    Raises:
        RanumFalsifyError: The user's input is invalid.
    """
    began = time.monotonic()
    check_files(options.property_path, options.networks)
    if options.json is not None and options.json != "-" and not is_stream(Path(options.json)):
        check_writable("--json", Path(options.json))
    if options.out is not None:
        output_folder("--out", options.out)
        check_writable("--out", options.out / _REPORT)
    loaded = load_files(
        options.property_path,
        options.networks,
        parameters=options.parameters,
        dims=options.dims,
        dtype=options.dtype,
        memory=options.memory,
    )
    work = _Work(options, loaded)
    try:
        work.do()
    except KeyboardInterrupt:
        work.finish(time.monotonic() - began, interrupted="Ctrl-C")  # what is finished counts
    except Exception:
        work.write(time.monotonic() - began)
        raise
    else:
        work.finish(time.monotonic() - began)
    return work.status


class _Work:
    """The runs of all operators, and the files that they leave."""

    def __init__(self, options: ConfirmOptions, loaded: Loaded) -> None:
        self._options = options
        self._loaded = loaded
        self._taken: set[str] = set()
        self._questions: list[Question] = []
        self._labels: list[str] = []
        self._runs: list[list[TestedRun]] = []
        self._standing = Standing()
        self._asked = False
        self._full = False

    @property
    def status(self) -> int:
        """Exit status."""
        if not self._asked:
            return 3  # interrupted before anything is known
        if not (self._questions or self._standing.untested):
            return 0
        return 1 if any(run.test is not None for runs in self._runs for run in runs) else 3

    def do(self) -> None:
        """Make the tests; each file is written at once, so that no two tests need to be in memory."""
        options = self._options
        with ProgressDisplay(options.verbosity) as progress, TestMaker(self._loaded.problem, options.config) as maker:
            kernels = check_kernels().notices if options.self_check else ()
            self._questions = maker.questions()
            self._standing = self._stands(maker, kernels)
            self._asked = True
            self._labels = unique_names((question.op.name for question in self._questions), self._taken)
            total = len(self._questions) * options.config.runs
            for question, label in zip(self._questions, self._labels, strict=True):
                self._runs.append([])
                done = (len(self._runs) - 1) * options.config.runs
                progress(Progress(stage="confirm", done=done / total, text=question.op.name))
                for made in maker.runs_of(question):
                    self._runs[-1].append(self._keep(made, label, maker, question))
                    done += 1
                    progress(Progress(stage="confirm", done=done / total, text=question.op.name))

    def _stands(self, maker: TestMaker, kernels: Sequence[str]) -> Standing:
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

    def _keep(self, made: Attempt, label: str, maker: TestMaker, question: Question) -> TestedRun:
        if made.test is None:
            return TestedRun(seed=made.seed, seconds=made.seconds, test=None, file=None)
        file = None
        if self._options.out is not None and not self._full:
            name = f"{label}.{made.seed}.npz"
            arrays = arrays_of(made.test, maker.box(question))
            with verdict_stands():
                save_together({self._options.out / name: lambda stream: write_arrays(stream, arrays)})
                file = name
            self._full = file is None  # the others are not saved either; say so once
        return TestedRun(seed=made.seed, seconds=made.seconds, test=_drop_arrays(made.test), file=file)

    def finish(self, seconds: float, interrupted: str = "") -> None:
        """Write what the tests have in common, and report."""
        self._standing = replace(self._standing, interrupted=interrupted)
        report = self.write(seconds)
        if self._options.json is not None:
            with verdict_stands():
                write_json(self._options.json, report)
        if self._options.json != "-":
            with verdict_stands():
                self._print(report["test_file"])

    def write(self, seconds: float) -> dict[str, Any]:
        """Write what the tests have in common; return the report."""
        contents: dict[str, bytes] = {}
        test_file = None
        if self._options.out is not None and any(run.file for runs in self._runs for run in runs):
            contents, models = self._models()
            test_file = f"test_{re.sub(r'[^A-Za-z0-9_]', '_', self._options.property_path.stem)}.py"
            contents[test_file] = self._pytest_file(models).encode()
        report = self._report(test_file, sorted(contents.keys() - {test_file}), seconds)
        if self._options.out is None:
            return report
        with verdict_stands():
            older = _list_earlier_files(self._options.out) - list_files(report)
            contents[_REPORT] = json_text(report).encode()
            save_together({self._options.out / name: content for name, content in contents.items()})
            if older:
                named = ", ".join(str(self._options.out / name) for name in sorted(older))
                complain([f"{PROGRAM}: {named}: left by an earlier run; delete what you do not need"])
            return report
        return self._report(None, (), seconds)

    def _report(self, test_file: str | None, models: Sequence[str], seconds: float) -> dict[str, Any]:
        return as_json(
            self._collect_tested(),
            standing=self._standing,
            test_file=test_file,
            models=models,
            config=self._options.config,
            seconds=seconds,
        )

    def _collect_tested(self) -> list[TestedOperator]:
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

    def _print(self, test_file: str | None) -> None:
        tested = self._collect_tested()
        several = len({call.network for call in self._loaded.problem.calls}) > 1
        verbosity = self._options.verbosity
        if verbosity >= 0:
            for operator in tested:
                say(lines(operator, several=several, verbosity=verbosity))
        say([summary(tested, self._standing) if self._asked else "interrupted before any operator was tested"])
        if test_file is not None and self._options.out is not None and verbosity >= 0:
            say([f"run them: python -m pytest {self._options.out / test_file}"])
        say(self._standing.lines(verbose=verbosity > 0))

    # files ------------------------------------------------------------------------------------------------------

    def _models(self) -> tuple[dict[str, bytes], list[str]]:
        """Return the content of a model file per network, and the name of each question's."""
        contents: dict[str, bytes] = {}
        graphs = {id(question.call.graph): question.call for question in self._questions}
        several = len(graphs) > 1
        names = unique_names((call.network if several else "model" for call in graphs.values()), set())
        by_graph = dict(zip(graphs, (f"{name}.onnx" for name in names), strict=True))
        for key, call in graphs.items():
            model = expose_operators(call.graph, [_watch(q) for q in self._questions if id(q.call.graph) == key])
            contents[by_graph[key]] = model.SerializeToString(deterministic=True)
        return contents, [by_graph[id(question.call.graph)] for question in self._questions]

    def _pytest_file(self, models: Sequence[str]) -> str:
        operators, cases = [], []
        for question, label, model, runs in zip(self._questions, self._labels, models, self._runs, strict=False):
            made = [(run.file, run.test) for run in runs if run.file is not None and run.test is not None]
            if made:
                operators.append(
                    CheckedOperator(label=label, model=model, valid_where=question.conditions, watched=_watch(question))
                )
            cases += [_case(file, label, test) for file, test in made]
        return pytest_file(self._options.property_path.name, operators, cases)


def _list_earlier_files(folder: Path) -> set[str]:
    """Return the files in a folder that the report of an earlier run there names."""
    try:
        report = json.loads((folder / _REPORT).read_text(encoding="utf-8"))
        return {name for name in list_files(report) if (folder / name).is_file()}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()


def _watch(question: Question) -> Watched:
    return watch_operator(question.call.graph, question.op, question.targets)


def _drop_arrays(test: UnitTest) -> UnitTest:
    span = None if test.span is None else replace(test.span, lower={}, upper={})
    return replace(test, feeds={}, span=span)


def _case(file: str, label: str, test: UnitTest) -> Case:
    return Case(
        file=file,
        operator=label,
        kind=test.kind,
        tensor=test.tensor,
        index=test.index,
        flushed=test.flushed,
        hidden=test.oracle == "reference",
        has_span=test.span is not None,
    )
