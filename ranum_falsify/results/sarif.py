"""Violations in SARIF 2.1.0, which code scanning reads: a result for each, a rule for each operator and condition."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from ranum_falsify.escaping import escape
from ranum_falsify.results.findings import ReportedFinding, findings_of
from ranum_falsify.results.run_report import Files, RunReport, report_of
from ranum_falsify.suite.record import InstanceRecord
from ranum_falsify.version import __version__

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_NAME = "ranum-falsify"


def as_sarif(records: Iterable[InstanceRecord]) -> dict[str, Any]:
    """Return the log of one run of this program.

    Proved and open operators have no result. What went wrong, and what users should know, are notifications.

    Raises:
        UsageError: A report is none that this version writes.
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
            facts |= {
                "reach": operator.reach,
                "optimisations": operator.optimisations,
                "runtimes": list(operator.runtimes),
            }
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
