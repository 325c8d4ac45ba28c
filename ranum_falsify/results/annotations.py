"""Findings as GitHub and GitLab show them beside the lines of a change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ranum_falsify.escaping import escape
from ranum_falsify.results.findings import ReportedFinding, findings_of
from ranum_falsify.suite.record import InstanceRecord

_LEVELS = {"violated": "error", "open": "warning", "error": "error"}
_SEVERITIES = {"violated": "critical", "open": "minor", "error": "blocker"}
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def as_github(records: Iterable[InstanceRecord]) -> str:
    """Return workflow commands of GitHub Actions, a line each, which become annotations where they are printed.

    Source: https://docs.github.com/actions/reference/workflow-commands-for-github-actions

    Raises:
        UsageError: A report is none that this version writes.
    """
    return "".join(_command(finding) for record in records for finding in findings_of(record))


def as_gitlab(records: Iterable[InstanceRecord]) -> list[dict[str, Any]]:
    """Return a code quality report of GitLab.

    Source: https://docs.gitlab.com/ci/testing/code_quality/

    Raises:
        UsageError: A report is none that this version writes.
    """
    return [_issue(finding, record) for record in records for finding in findings_of(record)]


def _command(finding: ReportedFinding) -> str:
    title, *details = map(escape, finding.lines)
    place = {"file": escape(finding.path), "line": str(finding.line or ""), "title": title}
    said = ",".join(f"{name}={_encode(value, _PROPERTY)}" for name, value in place.items() if value)
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
