"""Reports in the forms that other programs read, from what runs came to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ranum_falsify.escaping import json_text
from ranum_falsify.results.counterexample import Saved
from ranum_falsify.results.findings import as_github, as_gitlab, as_sarif
from ranum_falsify.results.junit import run_as_junit, suite_as_junit
from ranum_falsify.results.page import make_page
from ranum_falsify.suite.record import Instance, InstanceRecord, Status

_STATUSES: Mapping[str, Status] = {"violated": "sat", "holds": "unsat", "unknown": "unknown"}


def record_of(asked: Instance, report: Mapping[str, Any], saved: Saved, seconds: float) -> InstanceRecord:
    """Return what a run came to, as a suite would write it, with files as they are seen from the working folder."""
    status: Status = _STATUSES[report["verdict"]]
    if status == "unknown" and report["ended_early"]:
        status = "timeout"
    preparation = report["seconds"]["read"] + report["seconds"]["reduce"]
    described = saved.description
    return InstanceRecord(
        instance=asked,
        fingerprint="",
        status=status,
        preparation=preparation,
        seconds=max(seconds - preparation, 0.0),
        files={} if described is None else {"description": Path(os.path.relpath(described)).as_posix()},
        report=report,
    )


def error_record(asked: Instance, error: str) -> InstanceRecord:
    """Return what a run came to that ended in an error."""
    return InstanceRecord(
        instance=asked, fingerprint="", status="error", preparation=0.0, seconds=0.0, error=error, files={}
    )


_Makers = Mapping[str, Callable[[Iterable[InstanceRecord]], bytes]]

RUN_MAKERS: _Makers = {
    "report": make_page,
    "json": lambda records: b"".join(json_text(record.report).encode() for record in records),
    "junit": lambda records: b"".join(map(run_as_junit, records)),
    "sarif": lambda records: json_text(as_sarif(records)).encode(),
    "github": lambda records: as_github(records).encode("utf-8", "backslashreplace"),
    "gitlab": lambda records: json_text(as_gitlab(records)).encode(),
}
"""What makes a report of one run, by the form."""

SUITE_MAKERS: _Makers = {
    **RUN_MAKERS,
    "json": lambda records: b"".join(record.line().encode() for record in records),
    "junit": suite_as_junit,
}
"""What makes it of several: in JSON, the lines that `suite` writes."""
