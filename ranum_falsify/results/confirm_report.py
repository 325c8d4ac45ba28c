"""The report of `confirm`: lines for people, one object as JSON."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ranum_falsify.config import ConfirmConfig, Runtime
from ranum_falsify.results import plain
from ranum_falsify.results.assumptions import as_text, scope, steep_notice
from ranum_falsify.results.places import is_plain_name
from ranum_falsify.results.plain import versions
from ranum_falsify.results.run_report import FORMAT, grounds_of
from ranum_falsify.results.text import plural
from ranum_falsify.verify.prove.assumptions import Assumptions
from ranum_falsify.verify.search.result import KIND_NAMES
from ranum_falsify.witness.unit_test import UnitTest

_MOST_FILES = 3


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The verdict of the report, and its assumptions.

    Attributes:
        runtimes: Runtimes that a proof covers; none where none was tried.
        untested: Operators that are neither proved nor tested.
        steep: Operators whose derivatives may be infinite, where all are proved and the property does not ask.
        interrupted: Why it ended early: `Ctrl-C`, or "".
        notices: What users should know.
        assumptions: What it rests on.
    """

    runtimes: tuple[Runtime, ...] = ()
    untested: tuple[str, ...] = ()
    steep: tuple[str, ...] = ()
    interrupted: str = ""
    notices: tuple[str, ...] = ()
    assumptions: Assumptions | None = None

    def lines(self, *, verbose: bool) -> Iterator[str]:
        """Yield what it rests on; `verbose` is all of it."""
        if self.assumptions is not None:
            yield from as_text(self.assumptions, verbose=verbose)
        if self.steep:
            yield f"notice: {steep_notice(self.steep)}"
        yield from (f"notice: {notice}" for notice in self.notices)


@dataclass(frozen=True, kw_only=True)
class TestedRun:
    """One run.

    Attributes:
        seed: Its seed.
        seconds: How long it took.
        test: What it found, without arrays; None for nothing.
        file: Name of the test's file, None where none was written.
    """

    __test__ = False  # pytest takes classes of this name for its own

    seed: int
    seconds: float
    test: UnitTest | None
    file: str | None


@dataclass(frozen=True, kw_only=True)
class TestedOperator:
    """An operator and its runs.

    Attributes:
        network: The network as the property writes it.
        node: Name of the operator.
        op_type: ONNX operator.
        condition: What its operands must satisfy.
        runs: The runs, fewer than asked for where it was interrupted.
    """

    __test__ = False

    network: str
    node: str
    op_type: str
    condition: str
    runs: Sequence[TestedRun]

    @property
    def tests(self) -> list[UnitTest]:
        """What the runs found."""
        return [run.test for run in self.runs if run.test is not None]


# text -----------------------------------------------------------------------------------------------------------------


def lines(tested: TestedOperator, *, several: bool, verbosity: int) -> Iterator[str]:
    """Yield the lines on one operator.

    Args:
        tested: The operator.
        several: Whether the property has several networks, so that the network must be named.
        verbosity: 1 for a line per run.
    """
    name = f"{tested.network}: {tested.node}" if several else tested.node
    if not tested.runs:
        yield f"{name} ({tested.op_type}): not tested"
        return
    tests = tested.tests
    kinds = " or ".join(KIND_NAMES[kind] for kind in sorted({test.kind for test in tests}))
    parts = [f"{len(tests)} of {plural(len(tested.runs), 'run')} trigger {kinds}".rstrip()]
    parts += [text for text in (_spans(tests), _median(tested)) if text]
    yield f"{name} ({tested.op_type}): {'; '.join(parts)}"
    details = [f"valid where {tested.condition}"]
    behind, flushed = (sum(not test.alone for test in tests), sum(test.flushed for test in tests))
    if behind:
        details.append(f"{behind} after another invalid operator")
    if flushed:
        details.append(f"{flushed} only where denormal numbers are replaced by 0")
    details += _files(tested)
    yield f"  {'; '.join(details)}"
    if verbosity > 0:
        yield from (f"    {_run_line(run)}" for run in tested.runs)


def summary(operators: Sequence[TestedOperator], standing: Standing) -> str:
    """Return how much was triggered, on one line."""
    untested = f"; neither proved nor tested: {', '.join(standing.untested)}" if standing.untested else ""
    ended = f" (ended early: {standing.interrupted})" if standing.interrupted else ""
    proved = not (operators or untested)
    about = scope(standing.runtimes if proved else (), forward=bool(standing.steep), assumptions=standing.assumptions)
    return f"{_count(operators, proved=proved)}{about}{untested}{ended}"


def _count(operators: Sequence[TestedOperator], *, proved: bool) -> str:
    if not operators:
        return f"nothing to test{': every operator is proved' if proved else ''}"
    triggered = sum(bool(tested.tests) for tested in operators)
    runs, found = sum(len(t.runs) for t in operators), sum(len(t.tests) for t in operators)
    return f"triggered: {triggered} of {plural(len(operators), 'operator')}, {found} of {plural(runs, 'run')}"


def _median(tested: TestedOperator) -> str:
    return f"median {statistics.median(run.seconds for run in tested.runs):.2g} s"


def _spans(tests: Sequence[UnitTest]) -> str:
    radii = sorted(test.span.radius for test in tests if test.span is not None)
    if not radii:
        return ""
    ends = list(dict.fromkeys((_power(radii[0]), _power(radii[-1]))))
    return f"{plural(len(radii), 'span')} proved (radius {' to '.join(ends)})"


def _power(radius: float) -> str:
    return f"2^{math.log2(radius):g}" if radius else "0"


def _files(tested: TestedOperator) -> list[str]:
    files = [run.file for run in tested.runs if run.file is not None]
    if not files:
        return []
    return [", ".join(files) if len(files) <= _MOST_FILES else f"{files[0]} ... {files[-1]}"]


def _run_line(run: TestedRun) -> str:
    start, test = f"seed {run.seed}: {run.seconds:.2g} s", run.test
    if test is None:
        return f"{start}, nothing"
    span = "no span" if test.span is None else f"span of radius {_power(test.span.radius)}"
    return f"{start}, {KIND_NAMES[test.kind]} at {test.tensor}[{', '.join(map(str, test.index))}], {span}"


# JSON -----------------------------------------------------------------------------------------------------------------


def as_json(
    operators: Sequence[TestedOperator],
    *,
    standing: Standing,
    test_file: str | None,
    models: Sequence[str],
    config: ConfirmConfig,
    seconds: float,
) -> dict[str, Any]:
    """Return the report."""
    return {
        "format": FORMAT,
        "operators": [_operator(tested) for tested in operators],
        "untested": list(standing.untested),
        "triggered": sum(bool(tested.tests) for tested in operators),
        "test_file": test_file,
        "models": list(models),
        **plain.pick(config, "runs seed"),
        "timeout": config.timeout if math.isfinite(config.timeout) else None,
        "random": not config.descend,
        "seconds": round(seconds, 6),
        "ended_early": standing.interrupted or None,
        **plain.pick(standing, "runtimes steep notices"),
        "assumptions": plain.as_json(grounds_of(standing.assumptions)),
        "versions": versions(),
    }


def list_files(report: Mapping[str, Any]) -> set[str]:
    """Return the files that a report names, all in its folder."""
    names = {report["test_file"], *report["models"], *(file for op in report["operators"] for file in op["files"])}
    return {name for name in names if name is not None and is_plain_name(name)}


def _operator(tested: TestedOperator) -> dict[str, Any]:
    tests = tested.tests
    return plain.pick(tested, "network node op_type") | {
        "constraint": tested.condition,
        "runs": len(tested.runs),
        "triggered": len(tests),
        "alone": sum(test.alone for test in tests),
        "flushed": sum(test.flushed for test in tests),
        "spans": sum(test.span is not None for test in tests),
        "kinds": dict(sorted(Counter(test.kind for test in tests).items())),
        "seconds": [round(run.seconds, 6) for run in tested.runs],
        "files": [run.file for run in tested.runs if run.file is not None],
        "tests": [_test(run, run.test) for run in tested.runs if run.test is not None],
    }


def _test(run: TestedRun, test: UnitTest) -> dict[str, Any]:
    span = test.span
    return plain.pick(run, "seed file") | {
        **plain.pick(test, "kind tensor index alone flushed oracle shown"),
        "span": None if span is None else plain.pick(span, "radius fixed runtimes") | {"fixed": round(span.fixed, 6)},
        "seconds": {stage: round(value, 6) for stage, value in test.seconds.items()},
    }
