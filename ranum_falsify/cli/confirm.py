"""The command `confirm`: unit tests for the operators that are not proved, as files that need no ranum-falsify."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ranum_falsify.api.loading import BoundProblem
from ranum_falsify.api.making_tests import UnitTestGenerator
from ranum_falsify.api.training import TrainedOperator, TrainingWorkshop
from ranum_falsify.cli.commands import PROGRAM
from ranum_falsify.cli.files import check_json, check_writable, load_files, output_folder, show
from ranum_falsify.cli.options.models import ConfirmOptions
from ranum_falsify.cli.output import complain, show_progress, verdict_stands
from ranum_falsify.errors import UsageError
from ranum_falsify.escaping import json_text
from ranum_falsify.results.confirm_report import lines, list_files, summary
from ranum_falsify.results.plain import pick, versions
from ranum_falsify.results.run_report import FORMAT
from ranum_falsify.results.text import plural
from ranum_falsify.saving import Content, save_together
from ranum_falsify.verify.search.result import KIND_NAMES
from ranum_falsify.witness.training.running import describe_training
from ranum_falsify.witness.unit_test import write_arrays

_REPORT = "confirm.json"


def run(options: ConfirmOptions) -> int:
    """Run the command."""
    began = time.monotonic()
    check_json(options.json)
    if options.out is not None:
        output_folder("--out", options.out)
        check_writable("--out", options.out / _REPORT)
    loaded = load_files(options, options.dims)
    if options.training:
        return _run_training(options, loaded)
    if options.plot is not None:
        raise UsageError(f"--plot {options.plot}: there is nothing to draw; add --training")
    work = _Work(options, loaded, began)
    try:
        with show_progress(options.verbosity) as progress:
            work.generator.work(progress)
    except KeyboardInterrupt:
        work.generator.interrupt("Ctrl-C")  # what is finished counts
    except Exception:
        work.write()
        raise
    report = work.write()
    show(options.json, report, work.lines(report["test_file"]))
    return work.generator.status


class _Work:
    """The unit tests of all operators; each file is written at once, so that no two tests need to be in memory."""

    def __init__(self, options: ConfirmOptions, loaded: BoundProblem, began: float) -> None:
        self._options, self._loaded, self._began, self._full = options, loaded, began, False
        name = options.property_path.name
        self.generator = UnitTestGenerator(loaded, options, name=name, self_check=options.self_check, store=self._store)

    def _store(self, name: str, arrays: Mapping[str, np.ndarray]) -> bool:
        if self._options.out is None or self._full:
            return False
        self._full = True  # the others are not saved either; say so once
        with verdict_stands():
            save_together({self._options.out / name: lambda stream: write_arrays(stream, arrays)})
            self._full = False
        return not self._full

    def write(self) -> dict[str, Any]:
        """Write what the tests have in common; return the report."""
        seconds = time.monotonic() - self._began
        test_file, contents = self.generator.make_common_files()
        report = self.generator.report(test_file, sorted(contents.keys() - {test_file}), seconds)
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
        return self.generator.report(None, (), seconds)

    def lines(self, test_file: str | None) -> Iterator[str]:
        """Yield the report."""
        tested, standing, verbosity = self.generator.collect_tested(), self.generator.standing, self._options.verbosity
        several = len({call.network for call in self._loaded.problem.calls}) > 1
        for operator in tested if verbosity >= 0 else ():
            yield from lines(operator, several=several, verbosity=verbosity)
        started = self.generator.is_started
        yield summary(tested, standing) if started else "interrupted before any operator was tested"
        if test_file is not None and self._options.out is not None and verbosity >= 0:
            yield f"run them: python -m pytest {self._options.out / test_file}"
        yield from standing.lines(verbose=verbosity > 0)


def _list_earlier_files(folder: Path) -> set[str]:
    """Return the files in a folder that the report of an earlier run there names."""
    try:
        report = json.loads((folder / _REPORT).read_text(encoding="utf-8"))
        return {name for name in list_files(report) if (folder / name).is_file()}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()


_TRAINING_REPORT = "training.json"


def _run_training(options: ConfirmOptions, loaded: BoundProblem) -> int:
    if options.plot is not None:
        check_writable("--plot", options.plot)
    began, interrupted = time.monotonic(), ""
    trained: list[TrainedOperator] = []
    workshop = TrainingWorkshop(loaded, options, options)
    try:
        with show_progress(options.verbosity) as progress:
            trained.extend(workshop.work(progress))
    except KeyboardInterrupt:
        interrupted = "Ctrl-C"
    report = _report_training(trained, options, time.monotonic() - began, interrupted)
    with verdict_stands():
        _save(trained, options, report)
    show(options.json, report, _lines(trained, options, interrupted))
    if not trained:
        return 3 if interrupted else 0
    return 1 if any(operator.rehearsed is not None for operator in trained) else 3


# files --------------------------------------------------------------------------------------------------------------


def _save(trained: list[TrainedOperator], options: ConfirmOptions, report: dict[str, Any]) -> None:
    found = [operator for operator in trained if operator.rehearsed is not None]
    if options.plot is not None:
        if found:
            save_together({options.plot: found[0].plot()})
        else:
            complain([f"{PROGRAM}: --plot {options.plot}: there is no training run to draw"])
    if options.out is None:
        return
    contents: dict[Path, Content] = {}
    for operator in found:
        folder = output_folder("--out", options.out / operator.folder)
        files = operator.list_files(options.property_path.name)
        contents |= {folder / name: content for name, content in files.items()}
    save_together(contents | {options.out / _TRAINING_REPORT: json_text(report).encode()})


# text ---------------------------------------------------------------------------------------------------------------


def _lines(trained: list[TrainedOperator], options: ConfirmOptions, interrupted: str) -> Iterator[str]:
    for operator in trained if options.verbosity >= 0 else ():
        yield f"{operator.node} ({operator.op_type}): {_outcome(operator)}; {operator.seconds:.2g} s"
        yield f"  valid where {operator.condition}"
    found = [operator for operator in trained if operator.rehearsed is not None]
    ended = f" (ended early: {interrupted})" if interrupted else ""
    if not trained:
        yield f"nothing to train for{'' if interrupted else ': every operator is proved'}{ended}"
        return
    yield f"training leads into {len(found)} of {plural(len(trained), 'operator')}{ended}"
    if options.out is not None and found and options.verbosity >= 0:
        yield f"run them: python -m pytest --import-mode=importlib {options.out}"
    yield from (f"notice: {notice}" for notice in _notices(trained))


def _outcome(operator: TrainedOperator) -> str:
    rehearsed = operator.rehearsed
    if rehearsed is None:
        return "no training data found"
    if not rehearsed.found.strategy:
        return "fails with the weights in the file, before any training"
    steps = describe_training(rehearsed.recipe.optimiser, rehearsed.found.steps)
    kind = KIND_NAMES[rehearsed.found.trigger.kind]
    return f"{kind} after training ({steps}; by {rehearsed.found.strategy})"


def _notices(trained: list[TrainedOperator]) -> list[str]:
    return list(dict.fromkeys(notice for operator in trained for notice in operator.notices))


# JSON ---------------------------------------------------------------------------------------------------------------


def _report_training(
    trained: list[TrainedOperator], options: ConfirmOptions, seconds: float, interrupted: str
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "operators": [_operator(operator, options) for operator in trained],
        "found": sum(operator.rehearsed is not None for operator in trained),
        **pick(options, "optimizer learning_rate steps batches clamp seed"),
        "timeout": options.timeout if math.isfinite(options.timeout) else None,
        "random": not options.descend,
        "seconds": round(seconds, 6),
        "ended_early": interrupted or None,
        "notices": _notices(trained),
        "versions": versions(),
    }


def _operator(operator: TrainedOperator, options: ConfirmOptions) -> dict[str, Any]:
    found = None if operator.rehearsed is None else operator.rehearsed.found
    written = options.out is not None and found is not None
    names = "kind tensor index alone flushed"
    known = {} if found is None else {"steps": found.steps, **pick(found.trigger, names)}
    return {
        **pick(operator, "network node op_type"),
        "constraint": operator.condition,
        "outcome": "none" if found is None else "trained" if found.strategy else "untrained",
        "strategy": None if found is None else found.strategy or None,
        **{name: known.get(name) for name in ("kind", "steps", "tensor", "index", "alone", "flushed")},
        "seconds": round(operator.seconds, 6),
        "files": sorted(
            f"{operator.folder}/{name}" for name in (operator.list_files(options.property_path.name) if written else ())
        ),
    }
