"""Findings for CI systems, each at a place: in SARIF 2.1.0, and as GitHub and GitLab show them beside lines."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal
from urllib.parse import quote

from ranum_falsify.escaping import escape
from ranum_falsify.results.plain import pick
from ranum_falsify.results.run_report import Files, ReportedOperator, RunReport, report_of
from ranum_falsify.results.text import reported_lines
from ranum_falsify.suite.record import InstanceRecord
from ranum_falsify.version import __version__

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


_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_NAME = "ranum-falsify"


def as_sarif(records: Iterable[InstanceRecord]) -> dict[str, Any]:
    """Return the log of one run of this program.

    Proved and open operators have no result. What went wrong, and what users should know, are notifications.
    """
    log = _Log()
    for record in records:
        log.add(record, report_of(record))
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [log.run()]}


class _Log:
    """What a run of SARIF holds, gathered instance by instance."""

    def __init__(self) -> None:
        self._rules: dict[str, tuple[int, dict[str, Any]]] = {}
        self._artifacts: list[dict[str, Any]] = []
        self._positions: dict[str, int] = {}  # of artifacts, by URI
        self._results: list[dict[str, Any]] = []
        self._notifications: list[dict[str, Any]] = []
        self._has_errors = False

    def run(self) -> dict[str, Any]:
        """Return the run."""
        invocation = {
            "executionSuccessful": not self._has_errors,
            "toolExecutionNotifications": self._notifications,
        }
        driver = {"name": _NAME, "version": __version__, "rules": [rule for _, rule in self._rules.values()]}
        return {
            "tool": {"driver": driver},
            "invocations": [invocation],
            "artifacts": self._artifacts,
            "results": self._results,
            "columnKind": "unicodeCodePoints",
        }

    def add(self, record: InstanceRecord, report: RunReport | None) -> None:
        """Add what an instance came to."""
        if record.status == "error":
            self._has_errors = True
            self._notify("error", f"{record.instance.id}: {record.error}")
        if report is None:
            return
        for model in report.models.values():
            if model.in_file:
                self._index(model.path, roles=["analysisTarget"], hashes={"sha-256": model.sha256})
        for notice in report.notices:
            self._notify("note", f"{record.instance.id}: {notice}")
        self._results += [self._result(one, record) for one in findings_of(record) if one.kind == "violated"]

    def _result(self, finding: ReportedFinding, record: InstanceRecord) -> dict[str, Any]:
        operator = finding.operator
        facts: dict[str, Any] = {"instance": record.instance.id}
        if operator is not None:
            facts |= pick(operator, "reach optimisations runtimes")
        return {
            **self._rule(finding),
            "level": "error",
            "message": _message(finding.message),
            "locations": self._locations(finding),
            "attachments": self._attachments(finding.files),
            "partialFingerprints": {"operator/v1": finding.fingerprint},
            "properties": {name: value for name, value in facts.items() if value is not None},
        }

    def _locations(self, finding: ReportedFinding) -> list[dict[str, Any]]:
        location: dict[str, Any] = {}
        if finding.operator is not None:
            node = finding.operator.node
            logical = {"name": node, "fullyQualifiedName": f"{finding.model}::{node}", "kind": "element"}
            location["logicalLocations"] = [{key: escape(text) for key, text in logical.items()}]
        if finding.path:
            uri = _uri(finding.path)
            location["physicalLocation"] = {"artifactLocation": {"uri": uri, "index": self._index(finding.path)}}
            if finding.line:
                location["physicalLocation"]["region"] = {"startLine": finding.line}
        return [location] if location else []

    def _attachments(self, files: Files) -> list[dict[str, Any]]:
        return [
            {
                "description": {"text": escape(f"counterexample, input {name}")},
                "artifactLocation": {"uri": _uri(file)},
            }
            for name, file in files.items()
        ]

    def _index(self, path: str, **facts: Any) -> int:
        uri = _uri(path)
        position = self._positions.setdefault(uri, len(self._artifacts))
        if position == len(self._artifacts):
            self._artifacts.append({"location": {"uri": uri}})
        self._artifacts[position] |= facts
        return position

    def _rule(self, finding: ReportedFinding) -> dict[str, Any]:
        identity, short = escape(finding.rule), finding.about
        rule = {
            "id": identity,
            "shortDescription": {"text": escape(short)},
            "fullDescription": {"text": escape(f"{short}; else: {finding.reason}" if finding.reason else short)},
            "defaultConfiguration": {"level": "error"},
        }
        position, _ = self._rules.setdefault(identity, (len(self._rules), rule))
        return {"ruleId": identity, "ruleIndex": position}

    def _notify(self, level: str, text: str) -> None:
        self._notifications.append({"level": level, "message": _message(text)})


def _message(text: str) -> dict[str, str]:
    """Return a message that shows a text as it is: braces are placeholders else, and a name may look like a link."""
    return {"text": escape(text).replace("{", "{{").replace("}", "}}").replace("](", "] (")}


def _uri(path: str) -> str:
    """Return a file as a URI: relative where the path is."""
    pure = PurePath(path)
    return ("file://" if pure.is_absolute() else "") + quote(pure.as_posix().encode("utf-8", "surrogatepass"))


_LEVELS = {"violated": "error", "open": "warning", "error": "error"}
_SEVERITIES = {"violated": "critical", "open": "minor", "error": "blocker"}
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_VALUE_CODES = {**_DATA, ":": "%3A", ",": "%2C"}


def as_github(records: Iterable[InstanceRecord]) -> str:
    """Return workflow commands of GitHub Actions, a line each, which become annotations where they are printed.

    Source: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    return "".join(_command(finding) for record in records for finding in findings_of(record))


def as_gitlab(records: Iterable[InstanceRecord]) -> list[dict[str, Any]]:
    """Return a code quality report of GitLab.

    Source: https://docs.gitlab.com/ci/testing/code_quality/
    """
    return [_issue(finding, record) for record in records for finding in findings_of(record)]


def _command(finding: ReportedFinding) -> str:
    title, *details = map(escape, finding.lines)
    place = {"file": escape(finding.path), "line": str(finding.line or ""), "title": title}
    said = ",".join(f"{name}={_encode(value, _VALUE_CODES)}" for name, value in place.items() if value)
    return f"::{_LEVELS[finding.kind]} {said}::{_encode(chr(10).join(details) or title, _DATA)}\n"


def _encode(text: str, codes: Mapping[str, str]) -> str:
    return "".join(codes.get(character, character) for character in text)


def _issue(finding: ReportedFinding, record: InstanceRecord) -> dict[str, Any]:
    return {
        "description": escape(finding.message),
        "check_name": escape(finding.rule),
        "fingerprint": finding.fingerprint,
        "severity": _SEVERITIES[finding.kind],
        "location": {
            "path": escape(finding.path.removeprefix("./") or record.instance.id),
            "lines": {"begin": max(finding.line, 1)},
        },
    }
