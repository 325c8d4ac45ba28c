"""One page of HTML about a run or a suite: all that it shows is in it, and a script draws what is looked at.

The page asks nothing of any network, and its own policy forbids it to. Results are in it as compressed text, which
can hold no markup; details are unpacked when they are opened.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from ranum_falsify.errors import UsageError
from ranum_falsify.results.commands import commands_of
from ranum_falsify.results.plain import pick
from ranum_falsify.results.run_report import ReportedOperator, RunReport, report_of
from ranum_falsify.results.text import reported_lines
from ranum_falsify.suite.record import InstanceRecord
from ranum_falsify.version import __version__

_PARTS = ("base", "plots", "graph", "detail", "overview", "main")
"""The scripts, in the order in which they are read."""

_AT_ONCE = 50
"""Details that are packed together."""

_MOST_OPERATORS = 400
"""Operators of an instance that are listed."""

_VERDICTS = ("proved", "violated", "masked", "open")

_SHOWN = "verdict seconds ended_early notices unconfirmed steep assumptions versions illustration"
"""What is shown of a report as it is."""


def make_page(records: Iterable[InstanceRecord]) -> bytes:
    """Return the page of all records."""
    contents = _Contents()
    for record in records:
        contents.add(record, report_of(record))
    folder = files("ranum_falsify.results") / "page_parts"
    script = "\n".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in _PARTS)
    script = f'"use strict";\n{script}'
    style = (folder / "page.css").read_text(encoding="utf-8")
    template = (folder / "page.html").read_text(encoding="utf-8")
    values = {
        "STYLE": style,
        "SCRIPT": script,
        "POLICY": f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
        "DATA": "\n".join(contents.blocks()),
        "GLOSSARY": _define((folder / "glossary.json").read_text(encoding="utf-8")),
    }
    for name, value in values.items():
        template = template.replace(f"@{name}@", value, 1)
    return template.encode()


def _define(glossary: str) -> str:
    """Return the words of a report and their meanings as a list of HTML."""
    words = json.loads(glossary).items()
    return "\n".join(f"<dt>{html.escape(word)}</dt><dd>{html.escape(meaning)}</dd>" for word, meaning in words)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class _Contents:
    """What a page holds, packed as it comes."""

    def __init__(self) -> None:
        self._rows: list[list[Any]] = []
        self._operators: dict[str, Counter[str]] = {}
        self._details: list[dict[str, Any]] = []
        self._packed: list[str] = []

    def add(self, record: InstanceRecord, report: RunReport | None) -> None:
        """Add an instance."""
        instance = record.instance
        violated = [] if report is None else report.violated
        self._rows.append(
            [
                *(instance.id, instance.category, instance.model, instance.property, record.status),
                *(round(record.seconds, 3), round(record.preparation, 3)),
                list(dict.fromkeys(operator.op_type for operator in violated)),
                len(violated),
            ]
        )
        for operator in () if report is None else report.operators:
            self._operators.setdefault(operator.op_type, Counter())[operator.verdict] += 1
        self._details.append(_detail(record, report))
        if len(self._details) >= _AT_ONCE:
            self._pack()

    def blocks(self) -> Iterable[str]:
        """Yield what the page holds as elements that are no scripts to a browser."""
        if self._details:
            self._pack()
        index = {
            "version": __version__,
            "rows": self._rows,
            "at_once": _AT_ONCE,
            "operators": [
                [op_type, *(counts[verdict] for verdict in _VERDICTS)] for op_type, counts in self._operators.items()
            ],
        }
        yield _block("index", _compress(index))
        for number, packed in enumerate(self._packed):
            yield _block(f"details-{number}", packed)

    def _pack(self) -> None:
        self._packed.append(_compress(self._details))
        self._details = []


def _detail(record: InstanceRecord, report: RunReport | None) -> dict[str, Any]:
    detail: dict[str, Any] = {"error": record.error, "runs": record.runs, "commands": commands_of(record, report)}
    if report is None:
        return detail
    return detail | {
        **pick(report, _SHOWN),
        "files": report.counterexample or {},
        "operators": [
            {
                **pick(operator, "node network op_type verdict"),
                "condition": operator.full_condition,
                "lines": _facts(operator) if operator.verdict == "violated" else [],
                "files": operator.counterexample or {},
            }
            for operator in _ranked(report)[:_MOST_OPERATORS]
        ],
        "operator_count": len(report.operators),
    }


def _facts(operator: ReportedOperator) -> list[str]:
    """Return what is said of an operator below its name."""
    return [line.strip() for line in reported_lines(operator)][1:]


def _ranked(report: RunReport) -> Sequence[ReportedOperator]:
    ranks = {"violated": 0, "open": 1, "masked": 2, "proved": 3}
    return sorted(report.operators, key=lambda operator: ranks[operator.verdict])


def _compress(value: Any) -> str:
    """Return a value as compressed JSON in base64; the same value always gives the same text."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise UsageError("a report holds a number that is not finite, as no report of this program does") from error
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _block(name: str, text: str) -> str:
    return f'<script type="text/plain" id="{name}">{text}</script>'
