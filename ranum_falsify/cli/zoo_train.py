"""`zoo train`: how many runs of training data lead training into the documented defects."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ranum_falsify.cli.files import check_writable, is_stream, output_folder, write_json
from ranum_falsify.cli.options.zoo import ZooTrain
from ranum_falsify.cli.output import say
from ranum_falsify.cli.progress import show_progress
from ranum_falsify.cli.streams import verdict_stands
from ranum_falsify.network.tensors import torch_threads
from ranum_falsify.results.plain import versions
from ranum_falsify.results.text import plural
from ranum_falsify.saving import save_together
from ranum_falsify.verify.search.search import Progress
from ranum_falsify.zoo.model import Defect, ZooModel
from ranum_falsify.zoo.train import SEEDS, DefectRuns, TrainingBench


def run(models: Mapping[ZooModel, tuple[Defect, ...]], options: ZooTrain) -> int:
    """Search for training data and report.

    Args:
        models: The models, with those of their defects that are in question.
        options: How.

    Returns:
        0 if every run of every defect leads into it, or needs no training, else 1.
    """
    if options.json not in (None, "-") and not is_stream(Path(str(options.json))):
        check_writable("--json", Path(str(options.json)))
    with torch_threads(options.processors):
        found = _runs(models, options)
    if options.out is not None:
        with verdict_stands():
            _save(found, options.out)
    if options.json is not None:
        with verdict_stands():
            write_json(options.json, _report(found, options))
    if options.json != "-":
        with verdict_stands():
            say([*(_table(found) if options.verbosity >= 0 else ()), *_totals(found, options)])
    return 0 if all(r.trained + r.untrained == len(r.attempts) for r in found) else 1


def _runs(models: Mapping[ZooModel, tuple[Defect, ...]], options: ZooTrain) -> list[DefectRuns]:
    found = []
    with show_progress(options.verbosity) as progress:
        for number, (model, defects) in enumerate(models.items()):
            progress(Progress(stage="train", done=number / len(models), text=f"{model.id} ({model.program})"))
            bench = TrainingBench(model, options.level)
            for defect in defects:
                found.append(
                    bench.runs_of(
                        defect,
                        seeds=SEEDS[: options.runs],
                        timeout=options.timeout,
                        descends=options.descend,
                        rehearses=options.out is not None,
                    )
                )
    return found


def _save(found: Sequence[DefectRuns], out: Path) -> None:
    """Write a folder for each run that found something."""
    for r in found:
        for run in r.rehearsed:
            label = f"{r.defect.id}_{r.level}_{run.seed}"
            folder = output_folder("--out", output_folder("--out", out) / label)
            files = run.list_files(f"zoo defect {r.defect.id}, level {r.level}", label)
            save_together({folder / name: content for name, content in files.items()})


# text ---------------------------------------------------------------------------------------------------------------


def _table(found: Sequence[DefectRuns]) -> Iterator[str]:
    rows = [("id", "operator", "trained", "untrained", "seconds", "by")]
    for r in found:
        by = ", ".join(f"{name} {count}" for name, count in r.strategies.most_common())
        seconds = f"{statistics.median(a.seconds for a in r.attempts):.2f}"
        operator = f"{r.defect.operator}'" if r.defect.gradient else r.defect.operator
        rows.append((r.defect.id, operator, f"{r.trained} of {len(r.attempts)}", str(r.untrained), seconds, by))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield ""


def _totals(found: Sequence[DefectRuns], options: ZooTrain) -> Iterator[str]:
    trained, untrained = sum(r.trained for r in found), sum(r.untrained for r in found)
    seconds = [attempt.seconds for r in found for attempt in r.attempts]
    how = "" if options.descend else ", data drawn at random"
    yield (
        f"{options.level}{how}: {trained + untrained} of {plural(len(seconds), 'run')}: "
        f"{trained} by training, {untrained} need none"
    )
    yield f"seconds of a run: median {statistics.median(seconds):.2f}, mean {statistics.mean(seconds):.2f}"


# JSON ---------------------------------------------------------------------------------------------------------------


def _report(found: Sequence[DefectRuns], options: ZooTrain) -> dict[str, Any]:
    return {
        "format": 1,
        "level": options.level,
        "random": not options.descend,
        "seeds": list(SEEDS[: options.runs]),
        "defects": [_defect(r) for r in found],
        "versions": versions(),
    }


def _defect(r: DefectRuns) -> dict[str, Any]:
    return {
        "id": r.defect.id,
        "node": r.defect.node,
        "operator": r.defect.operator,
        "runs": len(r.attempts),
        "trained": r.trained,
        "untrained": r.untrained,
        "strategies": dict(r.strategies),
        "steps": [a.found.steps for a in r.attempts if a.found is not None and a.found.strategy],
        "seconds": [round(a.seconds, 6) for a in r.attempts],
        "processor_seconds": round(r.processor_seconds, 6),
    }
