"""`confirm --training`: training data that lead a training run into operators that are not proved, as files."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ranum_falsify.api.loading import BoundProblem
from ranum_falsify.api.training import TrainedOperator, TrainingWorkshop
from ranum_falsify.cli.files import check_writable, output_folder, write_json
from ranum_falsify.cli.options.confirm import ConfirmOptions
from ranum_falsify.cli.output import say
from ranum_falsify.cli.progress import show_progress
from ranum_falsify.cli.streams import complain, verdict_stands
from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.escaping import json_text
from ranum_falsify.results.run_report import FORMAT
from ranum_falsify.results.text import plural
from ranum_falsify.results.versions import versions
from ranum_falsify.saving import Content, save_together
from ranum_falsify.verify.search.result import KIND_NAMES
from ranum_falsify.witness.training.running import describe_training

_REPORT = "training.json"


def run(options: ConfirmOptions, loaded: BoundProblem) -> int:
    """Run the command.

    Raises:
        RanumFalsifyError: The user's input is invalid.
    """
    if options.plot is not None:
        check_writable("--plot", options.plot)
    began, interrupted = time.monotonic(), ""
    trained: list[TrainedOperator] = []
    workshop = TrainingWorkshop(loaded, options, options)
    try:
        with show_progress(options.verbosity) as progress:
            trained.extend(workshop.work(progress))
    except KeyboardInterrupt:
        interrupted = "Ctrl-C"
    report = _report(trained, options, time.monotonic() - began, interrupted)
    with verdict_stands():
        _save(trained, options, report)
    if options.json is not None:
        with verdict_stands():
            write_json(options.json, report)
    if options.json != "-":
        with verdict_stands():
            say(_lines(trained, options, interrupted))
    if not trained:
        return 3 if interrupted else 0
    return 1 if any(operator.rehearsed is not None for operator in trained) else 3


# files --------------------------------------------------------------------------------------------------------------


def _save(trained: list[TrainedOperator], options: ConfirmOptions, report: dict[str, Any]) -> None:
    found = [operator for operator in trained if operator.rehearsed is not None]
    if options.plot is not None:
        if found:
            save_together({options.plot: found[0].plot()})
        else:
            complain([f"{PROGRAM}: --plot {options.plot}: there is no training run to draw"])
    if options.out is None:
        return
    contents: dict[Path, Content] = {}
    for operator in found:
        folder = output_folder("--out", options.out / operator.folder)
        files = operator.list_files(options.property_path.name)
        contents |= {folder / name: content for name, content in files.items()}
    save_together(contents | {options.out / _REPORT: json_text(report).encode()})


# text ---------------------------------------------------------------------------------------------------------------


def _lines(trained: list[TrainedOperator], options: ConfirmOptions, interrupted: str) -> Iterator[str]:
    for operator in trained if options.verbosity >= 0 else ():
        yield f"{operator.node} ({operator.op_type}): {_outcome(operator)}; {operator.seconds:.2g} s"
        yield f"  valid where {operator.condition}"
    found = [operator for operator in trained if operator.rehearsed is not None]
    ended = f" (ended early: {interrupted})" if interrupted else ""
    if not trained:
        yield f"nothing to train for{'' if interrupted else ': every operator is proved'}{ended}"
        return
    yield f"training leads into {len(found)} of {plural(len(trained), 'operator')}{ended}"
    if options.out is not None and found and options.verbosity >= 0:
        yield f"run them: python -m pytest --import-mode=importlib {options.out}"
    yield from (f"notice: {notice}" for notice in _notices(trained))


def _outcome(operator: TrainedOperator) -> str:
    rehearsed = operator.rehearsed
    if rehearsed is None:
        return "no training data found"
    if not rehearsed.found.strategy:
        return "fails with the weights in the file, before any training"
    steps = describe_training(rehearsed.recipe.optimiser, rehearsed.found.steps)
    kind = KIND_NAMES[rehearsed.found.trigger.kind]
    return f"{kind} after training ({steps}; by {rehearsed.found.strategy})"


def _notices(trained: list[TrainedOperator]) -> list[str]:
    return list(dict.fromkeys(notice for operator in trained for notice in operator.notices))


# JSON ---------------------------------------------------------------------------------------------------------------


def _report(
    trained: list[TrainedOperator], options: ConfirmOptions, seconds: float, interrupted: str
) -> dict[str, Any]:
    config, training = options, options
    return {
        "format": FORMAT,
        "operators": [_operator(operator, options) for operator in trained],
        "found": sum(operator.rehearsed is not None for operator in trained),
        "optimizer": training.optimizer,
        "learning_rate": training.learning_rate,
        "steps": training.steps,
        "batches": training.batches,
        "clamp": training.clamp,
        "seed": config.seed,
        "timeout": config.timeout if math.isfinite(config.timeout) else None,
        "random": not config.descend,
        "seconds": round(seconds, 6),
        "ended_early": interrupted or None,
        "notices": _notices(trained),
        "versions": versions(),
    }


def _operator(operator: TrainedOperator, options: ConfirmOptions) -> dict[str, Any]:
    found = None if operator.rehearsed is None else operator.rehearsed.found
    written = options.out is not None and found is not None
    return {
        "network": operator.network,
        "node": operator.node,
        "op_type": operator.op_type,
        "constraint": operator.condition,
        "outcome": "none" if found is None else "trained" if found.strategy else "untrained",
        "strategy": None if found is None else found.strategy or None,
        "kind": None if found is None else found.trigger.kind,
        "steps": None if found is None else found.steps,
        "tensor": None if found is None else found.trigger.tensor,
        "index": None if found is None else list(found.trigger.index),
        "alone": None if found is None else found.trigger.alone,
        "flushed": None if found is None else found.trigger.flushed,
        "seconds": round(operator.seconds, 6),
        "files": sorted(
            f"{operator.folder}/{name}" for name in (operator.list_files(options.property_path.name) if written else ())
        ),
    }
