"""Violations in SARIF 2.1.0, which code scanning reads: a result for each, a rule for each operator and condition."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from ranum_falsify import __version__
from ranum_falsify.escaping import escape
from ranum_falsify.report.run_report import Files, ReportedOperator, RunReport, report_of
from ranum_falsify.report.text import reported_lines
from ranum_falsify.suite.record import InstanceRecord

__all__ = ["as_sarif"]

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_NAME = "ranum-falsify"
_PROPERTY = "property"
"""The rule of a property that is not about operators."""


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
        for operator in report.violated:
            self._results.append(self._operator_result(operator, record, report))
        if report.verdict == "violated" and not report.violated:
            self._results.append(self._property_result(record, report))

    def _operator_result(self, operator: ReportedOperator, record: InstanceRecord, report: RunReport) -> dict[str, Any]:
        condition = operator.constraint or "valid"
        rule = self._rule(
            f"{operator.op_type}: {condition}",
            f"{operator.op_type} is valid where {condition}",
            operator.reason,
        )
        title, *details = (line.strip() for line in reported_lines(operator))
        facts = {
            "instance": record.instance.id,
            "reach": operator.reach,
            "optimisations": operator.optimisations,
            "runtimes": list(operator.runtimes),
        }
        return {
            **rule,
            "level": "error",
            "message": _message("; ".join((title, *details))),
            "locations": [self._location(operator, report)],
            "attachments": self._attachments(operator.counterexample),
            "partialFingerprints": _fingerprint(record, operator.network, operator.node, rule["ruleId"]),
            "properties": {name: value for name, value in facts.items() if value is not None},
        }

    def _property_result(self, record: InstanceRecord, report: RunReport) -> dict[str, Any]:
        rule = self._rule(_PROPERTY, "A property of the model's outputs is false on an input", "")
        path = next((model.path for model in report.models.values() if model.in_file), "")
        return {
            **rule,
            "level": "error",
            "message": _message(f"the property is false on an input: {record.instance.id}"),
            "locations": [{"physicalLocation": self._artifact_location(path)}] if path else [],
            "attachments": self._attachments(report.counterexample),
            "partialFingerprints": _fingerprint(record, _PROPERTY),
            "properties": {"instance": record.instance.id},
        }

    def _location(self, operator: ReportedOperator, report: RunReport) -> dict[str, Any]:
        path = self._resolve(operator.network, report)
        logical = {"name": operator.node, "fullyQualifiedName": f"{path}::{operator.node}", "kind": "element"}
        location: dict[str, Any] = {"logicalLocations": [{key: escape(text) for key, text in logical.items()}]}
        if operator.source is not None and operator.source.file:
            place = self._artifact_location(operator.source.file)
            location["physicalLocation"] = {**place, "region": {"startLine": max(operator.source.line, 1)}}
        elif path:
            location["physicalLocation"] = self._artifact_location(path)
        return location

    def _resolve(self, network: str, report: RunReport) -> str:
        """Return the file of a network, "" if it has none; a slice or a composition is of the network in its name."""
        known = report.models.get(network)
        if known is None and len(report.models) == 1:
            known = next(iter(report.models.values()))
        return known.path if known is not None and known.in_file else ""

    def _attachments(self, files: Files | None) -> list[dict[str, Any]]:
        return [
            {
                "description": {"text": escape(f"counterexample, input {name}")},
                "artifactLocation": {"uri": _uri(file)},
            }
            for name, file in (files or {}).items()
        ]

    def _artifact_location(self, path: str) -> dict[str, Any]:
        return {"artifactLocation": {"uri": _uri(path), "index": self._index(path)}}

    def _index(self, path: str, **facts: Any) -> int:
        uri = _uri(path)
        position = self._positions.setdefault(uri, len(self._artifacts))
        if position == len(self._artifacts):
            self._artifacts.append({"location": {"uri": uri}})
        self._artifacts[position] |= facts
        return position

    def _rule(self, identity: str, short: str, reason: str) -> dict[str, Any]:
        identity = escape(identity)
        rule = {
            "id": identity,
            "shortDescription": {"text": escape(short)},
            "fullDescription": {"text": escape(f"{short}; else: {reason}" if reason else short)},
            "defaultConfiguration": {"level": "error"},
        }
        position, _ = self._rules.setdefault(identity, (len(self._rules), rule))
        return {"ruleId": identity, "ruleIndex": position}

    def _notify(self, level: str, text: str) -> None:
        self._notifications.append({"level": level, "message": _message(text)})


def _message(text: str) -> dict[str, str]:
    """Return a message that shows a text as it is: braces are placeholders else, and a name may look like a link."""
    return {"text": escape(text).replace("{", "{{").replace("}", "}}").replace("](", "] (")}


def _fingerprint(record: InstanceRecord, *parts: str) -> dict[str, str]:
    """Return what tells a result from others, and is the same in the next run."""
    text = "\0".join((record.instance.id, *parts))
    return {"operator/v1": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}


def _uri(path: str) -> str:
    """Return a file as a URI: relative where the path is."""
    pure = PurePath(path)
    return ("file://" if pure.is_absolute() else "") + quote(pure.as_posix().encode("utf-8", "surrogatepass"))
