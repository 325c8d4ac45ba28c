"""The section of `benchmarks/zoo.md` on training data, written from what `bench_training.py` measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["COLUMNS", "FILES", "HEADING", "NATURAL", "SEARCHES", "WRITTEN", "section", "system_tests"]

HEADING = "## Training data that lead into the defects"

NATURAL, WRITTEN = "real, natural data", "real, data written out"
"""Columns that are no search."""

FILES = "real, files"
"""The column of `confirm --training`."""

SEARCHES = ("ranum", "ranum, random", "drawn", "drawn, random", "strict", "strict, random", "initial", "real")
"""Columns of searches, in the order of the table."""

COLUMNS = (*SEARCHES, NATURAL, WRITTEN, FILES)

_HEAD = """{heading}

`scripts/bench_training.py` searches for training data and writes this section from `training.json`;
[Training data](../docs/training-defects.md) says what each level counts. A cell holds the runs that lead into the
documented operator and, after `+`, those that need no training, because the initial weights fail on some input;
beside them seconds of the processor per run, ONNX Runtime's process included. *Random*: as many points, drawn at
random, in place of those that a search visits. RANUM's own runs are those of `ranum`: from the program's own initial
weights, with an inference input drawn in its ranges; it counts both kinds.  A star: seconds of ONNX Runtime's process
are missing.

| level | runs | by training | without | together | processor s per run: median of defects | mean | \
seconds per run: median | mean |
|---|---|---|---|---|---|---|---|---|
{totals}
| RANUM, system tests, ICSE 2023 | 790 | | | 733 | | | | 17.3 |
| random, by RANUM's authors | 790 | | | 649 | | | | 334 |

Machine: {machine}. {versions}. Command: `{command}`.

"""

_NATURAL_HEAD = """
### Training by itself

No search: the program's optimiser, learning rate, batch and initial weights, and data as the program draws them, for
1,000 steps, or for fewer where time ended the run; or, where the program writes its data out, for 40,000 steps on
those. Handwritten digits of scikit-learn, enlarged to 28 by 28 pixels, stand for MNIST and all other pictures.
*Fails*: runs in which the documented operator fails on a batch of the training, and after how many steps; *instead*:
another operator does so before, and what is trained is NaN from there.

| id | operator | data | runs | fails | after steps | instead | after steps |
|---|---|---|---|---|---|---|---|
"""


_FILES_HEAD = """
### From the files of `zoo build`

`zoo build MODEL --documented --batch BATCH`, and on its files `confirm --training --node NODE` with the program's
optimiser and learning rate and 1,000 training steps; beside it one run of `zoo train ID --level real`, whose initial
weights are other draws. Seconds of the processor are those of the whole command, its start included; `confirm` also
trains a second time, with the code of the test that it would write.

{summary}

| id | operator | batch | options | steps | processor s | `zoo train`: steps | processor s | times |
|---|---|---|---|---|---|---|---|---|
"""


def section(measured: Mapping[str, Any]) -> str:
    """Return the section as Markdown."""
    defects: Sequence[Mapping[str, Any]] = measured["defects"]
    levels = [level for level in SEARCHES if any(level in defect["levels"] for defect in defects)]
    totals = "\n".join(_total(level, defects) for level in levels)
    text = _HEAD.format(heading=HEADING, totals=totals, **measured["facts"]) + "\n".join(_table(levels, defects)) + "\n"
    natural = "\n".join(_natural_table(defects))
    text += _NATURAL_HEAD + natural + "\n" if natural else ""
    compared = {defect["id"]: defect for defect in defects if FILES in defect["levels"]}
    return text + (_compare_files([*compared.values()]) if compared else "")


def system_tests(measured: Mapping[str, Any]) -> str:
    """Return how many runs of RANUM's level lead into the defects, and their seconds, as two cells of a table."""
    rows = [defect["levels"]["ranum"] for defect in measured["defects"] if "ranum" in defect["levels"]]
    if not rows:
        return " | "
    found, runs = sum(row["trained"] + row["untrained"] for row in rows), sum(row["runs"] for row in rows)
    processor = [row["processor_seconds"] for row in rows]
    mean = sum(row["processor_seconds"] * row["runs"] for row in rows) / runs
    return f"{found} of {runs} | median {statistics.median(processor):.2f}, mean {mean:.2f}"


def _total(level: str, defects: Sequence[Mapping[str, Any]]) -> str:
    rows = [defect["levels"][level] for defect in defects if level in defect["levels"]]
    runs, trained, untrained = (sum(row[key] for row in rows) for key in ("runs", "trained", "untrained"))
    processor = [row["processor_seconds"] for row in rows]
    mean = sum(row["processor_seconds"] * row["runs"] for row in rows) / runs
    seconds = [x for row in rows for x in row.get("seconds", ())]
    elapsed = f"{statistics.median(seconds):.2f} | {statistics.mean(seconds):.2f}" if seconds else " | "
    star = "" if seconds else " *"
    return (
        f"| {level}{star} | {runs} | {trained} | {untrained} | {trained + untrained} "
        f"| {statistics.median(processor):.2f} | {mean:.2f} | {elapsed} |"
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


def _natural_table(defects: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for defect in defects:
        for column, data in ((NATURAL, "drawn"), (WRITTEN, "written out")):
            row = defect["levels"].get(column)
            if row is None:
                continue
            ends = list(zip(row["failing"], row["steps"], strict=True))
            own = [steps for node, steps in ends if node == defect["node"]]
            others = [(node, steps) for node, steps in ends if node not in ("", defect["node"])]
            after = _span(own) or f"none in {_span(row['steps'])}"
            yield (
                f"| {defect['id']} | {defect['operator']} | {data} | {row['runs']} | {len(own)} | {after} "
                f"| {', '.join(f'`{node}`' for node in dict.fromkeys(node for node, _ in others))} "
                f"| {_span([steps for _, steps in others])} |"
            )


def _compare_files(defects: Sequence[Mapping[str, Any]]) -> str:
    rows = [(defect, defect["levels"][FILES]) for defect in defects]
    times = [row["processor_seconds"] / row["zoo"]["processor_seconds"] for _, row in rows]
    found = sum(row["outcome"] == "trained" for _, row in rows)
    within = sum(row["outcome"] == "trained" and ratio <= 2 for (_, row), ratio in zip(rows, times, strict=True))
    summary = (
        f"Found: {found} of {len(rows)}, {within} of them within twice the time; "
        f"{statistics.median(times):.2f} times in the median, {max(times):.2f} at most."
    )
    lines = [
        f"| {defect['id']} | {defect['operator']} `{defect['node']}` | {row['batch']} | `{row['rule']}` "
        f"| {_span([row['steps']]) if row['outcome'] == 'trained' else row['outcome']} "
        f"| {row['processor_seconds']:.2f} | {_span(row['zoo']['steps']) or 'none'} "
        f"| {row['zoo']['processor_seconds']:.2f} | {ratio:.2f} |"
        for (defect, row), ratio in zip(rows, times, strict=True)
    ]
    return _FILES_HEAD.format(summary=summary) + "\n".join(lines) + "\n"


def _span(numbers: Sequence[int]) -> str:
    if not numbers:
        return ""
    least, greatest = min(numbers), max(numbers)
    return f"{least:,}" if least == greatest else f"{least:,} to {greatest:,}"
