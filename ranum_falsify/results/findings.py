"""What CI systems show of runs: findings, each at a place; SARIF, GitHub and GitLab have them in forms of their own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from ranum_falsify.results.run_report import Files, ReportedOperator, RunReport, report_of
from ranum_falsify.results.text import reported_lines
from ranum_falsify.suite.record import InstanceRecord

_PROPERTY = "property"
"""The rule of a property that is not about operators."""
_ERROR = "error"
"""The rule of what could not be asked."""


@dataclass(frozen=True, kw_only=True)
class ReportedFinding:
    """What keeps an instance from passing.

    Attributes:
        kind: Whether an operator or a property is violated or open, or the instance ended in an error.
        rule: What it has in common with findings like it, such as `Div: b != 0`.
        about: The rule in words.
        reason: Why it is broken, as the end of a sentence; may be empty.
        lines: What is said, a title first.
        operator: The operator that it is about, None if it is about none.
        model: The file of the model; "" if it is in none.
        path: The file that it is shown at: of Python where the line is known and lies in the working folder, else
            the model; "" if there is none.
        line: The line of it, from 1; 0 for the file as a whole.
        files: The files of the counterexample, by input.
        fingerprint: What tells it from others, and is the same in the next run.
    """

    kind: Literal["violated", "open", "error"]
    rule: str
    about: str
    reason: str = ""
    lines: tuple[str, ...]
    operator: ReportedOperator | None = None
    model: str = ""
    path: str = ""
    line: int = 0
    files: Files
    fingerprint: str

    @property
    def message(self) -> str:
        """All that is said, in one line."""
        return "; ".join(self.lines)


def findings_of(record: InstanceRecord) -> Iterator[ReportedFinding]:
    """Yield what keeps an instance from passing: what is violated, then what is open by itself; or its error.

    Raises:
        UsageError: The report is none that this version writes.
    """
    report = report_of(record)
    if record.status == "error":
        yield _whole(record, report, "error", record.error)
    if report is None:
        return
    yield from (_of_operator(one, record, report) for one in report.violated)
    opened = [one for one in report.operators if one.verdict == "open" and not one.after]
    yield from (_of_operator(one, record, report) for one in opened)
    if report.verdict == "violated" and not report.violated:
        yield _whole(record, report, "violated", f"the property is false on an input: {record.instance.id}")
    elif report.verdict == "unknown" and not opened:
        ended = f", ended early: {report.ended_early}" if report.ended_early else ""
        yield _whole(record, report, "open", f"neither proved nor violated: {record.instance.id}{ended}")


def _of_operator(operator: ReportedOperator, record: InstanceRecord, report: RunReport) -> ReportedFinding:
    condition = operator.constraint or "valid"
    rule = f"{operator.op_type}: {condition}"
    title, *details = (line.strip() for line in reported_lines(operator))
    model = _file_of(operator.network, report)
    path, line = _place(operator, model)
    return ReportedFinding(
        kind="violated" if operator.verdict == "violated" else "open",
        rule=rule,
        about=f"{operator.op_type} is valid where {condition}",
        reason=operator.reason,
        lines=(title if operator.verdict == "violated" else f"{title} is neither proved nor violated", *details),
        operator=operator,
        model=model,
        path=path,
        line=line,
        files=operator.counterexample or {},
        fingerprint=_identify(record, operator.network, operator.node, rule),
    )


def _whole(
    record: InstanceRecord, report: RunReport | None, kind: Literal["violated", "open", "error"], text: str
) -> ReportedFinding:
    """Return a finding that is about no operator."""
    models = [] if report is None else [model.path for model in report.models.values() if model.in_file]
    path = models[0] if models else record.instance.model
    return ReportedFinding(
        kind=kind,
        rule=_ERROR if kind == "error" else _PROPERTY,
        about="The model could be asked" if kind == "error" else "A property of the model's outputs is true",
        lines=(text,),
        model=path,
        path=path,
        files={} if report is None else report.counterexample or {},
        fingerprint=_identify(record, _ERROR if kind == "error" else _PROPERTY),
    )


def _file_of(network: str, report: RunReport) -> str:
    """Return the file of a network, "" if it has none; a slice or a composition is of the network in its name."""
    known = report.models.get(network)
    if known is None and len(report.models) == 1:
        known = next(iter(report.models.values()))
    return known.path if known is not None and known.in_file else ""


def _place(operator: ReportedOperator, model: str) -> tuple[str, int]:
    """Return file and line that a finding is shown at: a model may come from where its Python is not."""
    source = operator.source
    if source is None or not source.file:
        return model, 0
    file = PurePath(source.file)
    if file.is_absolute() and file.is_relative_to(os.getcwd()):
        file = file.relative_to(os.getcwd())
    return (model, 0) if file.is_absolute() and model else (file.as_posix(), max(source.line, 1))


def _identify(record: InstanceRecord, *parts: str) -> str:
    text = "\0".join((record.instance.id, *parts))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
