"""The section of `BENCHMARKS.md` on training data, written from what `bench_training.py` measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["HEADING", "replace_section", "section"]

HEADING = "## Training data that lead into the defects"

_HEAD = """{heading}

`scripts/bench_training.py` searches for training data and writes this section from `BENCHMARKS.training.json`;
[docs/training-defects.md](docs/training-defects.md) says what each level counts. A cell holds the runs that lead into
the documented operator and, after `+`, those that need no training, because the initial weights fail on some input;
seconds of the processor per run, ONNX Runtime's process aside, beside them. *Random*: data drawn at random under the
same limits. RANUM's runs begin with weights and inference inputs drawn in its ranges, and count both kinds.

| level | runs | by training | without | together | s per run: median of defects | mean |
|---|---|---|---|---|---|---|
{totals}
| RANUM, system tests, ICSE 2023 | 790 | | | 733 | | 17.3 |
| random, by RANUM's authors | 790 | | | 649 | | 334 |

Machine: {machine}. {versions}. Command: `{command}`.

"""


def section(measured: Mapping[str, Any]) -> str:
    """Return the section as Markdown."""
    defects: Sequence[Mapping[str, Any]] = measured["defects"]
    levels = list(dict.fromkeys(level for defect in defects for level in defect["levels"]))
    totals = "\n".join(_total(level, defects) for level in levels)
    return _HEAD.format(heading=HEADING, totals=totals, **measured["facts"]) + "\n".join(_table(levels, defects)) + "\n"


def replace_section(page: str, text: str) -> str:
    """Return a page whose last section, if it is this one, is replaced; else with the section after the rest."""
    return page.split(HEADING)[0].rstrip("\n") + "\n\n" + text


def _total(level: str, defects: Sequence[Mapping[str, Any]]) -> str:
    rows = [defect["levels"][level] for defect in defects if level in defect["levels"]]
    runs, trained, untrained = (sum(row[key] for row in rows) for key in ("runs", "trained", "untrained"))
    seconds = [row["processor_seconds"] for row in rows]
    mean = sum(row["processor_seconds"] * row["runs"] for row in rows) / runs
    return (
        f"| {level} | {runs} | {trained} | {untrained} | {trained + untrained} "
        f"| {statistics.median(seconds):.2f} | {mean:.2f} |"
    )


def _table(levels: Sequence[str], defects: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| id | operator | " + " | ".join(f"{level} | s" for level in levels) + " |"
    yield "|" + "---|" * (2 + 2 * len(levels))
    for defect in defects:
        cells = [cell for level in levels for cell in _cells(defect["levels"].get(level))]
        yield f"| {defect['id']} | {defect['operator']} | " + " | ".join(cells) + " |"


def _cells(row: Mapping[str, Any] | None) -> tuple[str, str]:
    if row is None:
        return "", ""
    return f"{row['trained']} + {row['untrained']} of {row['runs']}", f"{row['processor_seconds']:.2f}"
