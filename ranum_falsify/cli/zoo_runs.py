"""`zoo detect` and `zoo train`: what an analysis flags in the models of the zoo, and what training leads into."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ranum_falsify.cli.files import check_json, output_folder, show
from ranum_falsify.cli.options.tools import ZooDetect, ZooTrain
from ranum_falsify.cli.output import align, show_progress, verdict_stands
from ranum_falsify.network.tensors import torch_threads
from ranum_falsify.results.plain import pick, versions
from ranum_falsify.results.text import plural
from ranum_falsify.saving import save_together
from ranum_falsify.verify.search.search import Progress
from ranum_falsify.zoo.detect import Analysis, Detection, Flag, Totals, detect, totals
from ranum_falsify.zoo.model import Defect, ZooModel
from ranum_falsify.zoo.train import SEEDS, DefectRuns, TrainingBench

_ROUNDS = 3
"""Analyses of each model where they are compared with an inference."""

_MOST_NAMES = 3
_VERDICTS = {"detected": "yes", "after": "after others", "missed": "NO"}


def detect_defects(models: Mapping[ZooModel, tuple[Defect, ...]], options: ZooDetect) -> int:
    """Analyse models, with those of their defects that are in question, and report.

    Returns:
        0 if every defect's operator is flagged and every twin proved, else 1.
    """
    check_json(options.json)
    detections = _detections(list(models), options)
    defects = [defect for chosen in models.values() for defect in chosen]
    counted = totals(detections, defects)
    lines = [*_summarise_detection(detections, counted, options)]
    if options.verbosity >= 0:
        lines = [*_list_detected(detections, models, options), "", *lines]
    show(options.json, _report_detection(detections, models, counted, options), lines)
    return 0 if not counted.verdicts["missed"] and counted.models_proved == counted.models else 1


def _detections(models: Sequence[ZooModel], options: ZooDetect) -> list[Detection]:
    found, rounds = [], _ROUNDS if options.inference else 1
    with show_progress(options.verbosity) as progress:
        for number, model in enumerate(models):
            progress(Progress(stage="detect", done=number / len(models), text=f"{model.id} ({model.program})"))
            found.append(
                detect(
                    model,
                    batch=options.batch,
                    documented=options.documented,
                    rounds=rounds,
                    threads=options.processors,
                    inference=options.inference,
                )
            )
    return found


# text ---------------------------------------------------------------------------------------------------------------


def _list_detected(
    detections: Sequence[Detection], models: Mapping[ZooModel, tuple[Defect, ...]], options: ZooDetect
) -> Iterator[str]:
    """Yield a line per defect; if verbose, also what else is flagged, below it."""
    timed = ("inference", "ratio") if options.inference else ()
    head = ("id", "operator", "node", "detected", "analysis", *timed, "repaired", "also flagged")
    found = [(detection, defect) for detection in detections for defect in models[detection.model]]
    title, *rows = align([head, *(_cells(*pair, inference=options.inference) for pair in found)])
    yield title
    for (detection, defect), row in zip(found, rows, strict=True):
        yield row
        if options.verbosity > 0:
            yield from _details(detection, defect)


def _cells(detection: Detection, defect: Defect, *, inference: bool) -> tuple[str, ...]:
    faulty, repaired = detection.faulty, detection.repaired
    timed = (_milliseconds(faulty.seconds.inference), _number(_ratio(faulty))) if inference else ()
    return (
        defect.id,
        f"{defect.operator}'" if defect.gradient else defect.operator,
        defect.node,
        _VERDICTS[faulty.verdict(defect)],
        _milliseconds(faulty.seconds.analysis),
        *timed,
        _list_flagged(repaired.open, repaired.dependent) if repaired.flags else "proved",
        _list_flagged(_others(faulty.open, defect), _others(faulty.dependent, defect)),
    )


def _others(flags: Sequence[Flag], defect: Defect) -> list[Flag]:
    return [flag for flag in flags if flag.node != defect.node]


def _list_flagged(own: Sequence[Flag], dependent: Sequence[Flag]) -> str:
    """Return the operators with open conditions by name, and how many others depend on them."""
    names = ", ".join(flag.node for flag in own[:_MOST_NAMES])
    if len(own) > _MOST_NAMES:
        names += f" and {len(own) - _MOST_NAMES} more"
    after = f"{len(dependent)} after" if dependent else ""
    return "; ".join(filter(None, (names, after))) or "-"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.2f} ms"


def _ratio(analysis: Analysis) -> float:
    assert analysis.seconds.inference is not None
    return analysis.seconds.analysis / analysis.seconds.inference


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _details(detection: Detection, defect: Defect) -> Iterator[str]:
    for title, analysis in (("", detection.faulty), ("repaired: ", detection.repaired)):
        for flag in analysis.open:
            mark = " (documented)" if not title and flag.node == defect.node else ""
            yield f"    {title}{flag.node} ({flag.op_type}){mark}: not shown: {', '.join(flag.conditions)}"
        if analysis.dependent:
            yield f"    {title}only after those: {', '.join(flag.node for flag in analysis.dependent)}"


def _summarise_detection(detections: Sequence[Detection], counted: Totals, options: ZooDetect) -> Iterator[str]:
    verdicts, seconds = counted.verdicts, _seconds(detections)
    after = f", {verdicts['after']} of them only because of others" if verdicts["after"] else ""
    yield (
        f"detected: {verdicts['detected'] + verdicts['after']} of {plural(sum(verdicts.values()), 'defect')} "
        f"in {plural(counted.programs, 'program')}{after}"
    )
    own = f", {counted.operators_open} of them by themselves" if counted.operators_flagged else ""
    yield (
        f"repaired: {counted.programs_proved} of {plural(counted.programs, 'program')} proved "
        f"({counted.models_proved} of {plural(counted.models, 'model')}); {counted.operators_flagged} of "
        f"{plural(counted.operators, 'operator')} flagged ({counted.operators_flagged / counted.operators:.2%}){own}"
    )
    medians = f"medians of {_ROUNDS}, " if options.inference else ""
    yield (
        f"analysis: {seconds['analysis']:.3f} s for {plural(counted.models, 'model')}, "
        f"{seconds['analysis_repaired']:.3f} s for the repaired ones "
        f"({medians}{plural(options.processors, 'thread')})"
    )
    if options.inference:
        ratios = [_ratio(d.faulty) for d in detections]
        yield (
            f"inference on ONNX Runtime: {seconds['inference']:.3g} s for the models; an analysis takes "
            f"{_number(min(ratios))} to {_number(max(ratios))} times one, median {_number(statistics.median(ratios))}"
        )
    yield (
        f"besides, for both: building {seconds['build']:.2f} s, reading {seconds['read']:.2f} s, "
        f"reducing {seconds['reduce']:.2f} s"
    )
    yield (
        f"one shot: {seconds['one_shot']:.2f} s of processor time, {seconds['one_shot_repaired']:.2f} s for the "
        "repaired ones (building, reading, reducing, first analysis)"
    )


def _seconds(detections: Sequence[Detection]) -> dict[str, float]:
    """Return sums over the models."""
    faulty = [d.faulty.seconds for d in detections]
    repaired = [d.repaired.seconds for d in detections]
    return {
        "analysis": sum(s.analysis for s in faulty),
        "analysis_repaired": sum(s.analysis for s in repaired),
        "first_analysis": sum(s.analyses[0] for s in faulty),
        "first_analysis_repaired": sum(s.analyses[0] for s in repaired),
        "one_shot": sum(s.one_shot for s in faulty),
        "one_shot_repaired": sum(s.one_shot for s in repaired),
        "inference": sum(s.inference or 0.0 for s in faulty),
        "inference_repaired": sum(s.inference or 0.0 for s in repaired),
        "build": sum(s.build for s in (*faulty, *repaired)),
        "read": sum(s.read for s in (*faulty, *repaired)),
        "reduce": sum(s.reduce for s in (*faulty, *repaired)),
    }


# JSON ---------------------------------------------------------------------------------------------------------------


def _report_detection(
    detections: Sequence[Detection],
    models: Mapping[ZooModel, tuple[Defect, ...]],
    counted: Totals,
    options: ZooDetect,
) -> dict[str, Any]:
    return {
        "defects": [
            {"id": defect.id, "model": detection.model.id}
            | {**pick(defect, "node operator gradient"), "verdict": detection.faulty.verdict(defect)}
            for detection in detections
            for defect in models[detection.model]
        ],
        "models": [
            {
                "id": detection.model.id,
                "program": detection.model.program,
                "faulty": _analysis_object(detection.faulty),
                "repaired": _analysis_object(detection.repaired),
            }
            for detection in detections
        ],
        "totals": asdict(counted),
        "seconds": {
            name: value
            for name, value in _seconds(detections).items()
            if options.inference or not name.startswith("inference")
        },
        "batch": options.batch,
        "documented": options.documented,
        "threads": options.processors,
        "versions": versions(),
    }


def _analysis_object(analysis: Analysis) -> dict[str, Any]:
    return {
        "operators": analysis.operators,
        "flagged": [asdict(flag) for flag in analysis.flags],
        "seconds": {**asdict(analysis.seconds), "analysis": analysis.seconds.analysis},
    }


# training ------------------------------------------------------------------------------------------------------------


def train_defects(models: Mapping[ZooModel, tuple[Defect, ...]], options: ZooTrain) -> int:
    """Search for training data, of those defects of models that are in question, and report.

    Returns:
        0 if every run of every defect leads into it, or needs no training, else 1.
    """
    check_json(options.json)
    with torch_threads(options.processors):
        found = _runs(models, options)
    if options.out is not None:
        with verdict_stands():
            _save(found, options.out)
    lines = [*(_list_trained(found) if options.verbosity >= 0 else ()), *_totals(found, options)]
    show(options.json, _report_training(found, options), lines)
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


def _list_trained(found: Sequence[DefectRuns]) -> Iterator[str]:
    rows = [("id", "operator", "trained", "untrained", "seconds", "by")]
    for r in found:
        by = ", ".join(f"{name} {count}" for name, count in r.strategies.most_common())
        seconds = f"{statistics.median(a.seconds for a in r.attempts):.2f}"
        operator = f"{r.defect.operator}'" if r.defect.gradient else r.defect.operator
        rows.append((r.defect.id, operator, f"{r.trained} of {len(r.attempts)}", str(r.untrained), seconds, by))
    yield from align(rows)
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


def _report_training(found: Sequence[DefectRuns], options: ZooTrain) -> dict[str, Any]:
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
        **pick(r.defect, "id node operator"),
        "runs": len(r.attempts),
        "trained": r.trained,
        "untrained": r.untrained,
        "strategies": dict(r.strategies),
        "steps": [a.found.steps for a in r.attempts if a.found is not None and a.found.strategy],
        "seconds": [round(a.seconds, 6) for a in r.attempts],
        "processor_seconds": round(r.processor_seconds, 6),
    }
