#!/usr/bin/env python3
"""Measure how many runs of training data lead into the zoo's 79 defects: searched, drawn at random, and natural ones.

The column "real, files" is about commands on files, of ten defects.

Writes benchmarks/training.json after every defect, continues where it stopped, and the section of zoo.md.

    scripts/bench_training.py
    scripts/bench_training.py --only 3 --levels strict --folder /tmp
    scripts/bench_training.py --levels "real, files" --again
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lab.bench.digits import load_pictures
from lab.bench.pages import write_pages
from lab.bench.training_files import COMPARED, compare
from lab.bench.training_page import COLUMNS, FILES, SEARCHES, WRITTEN
from lab.bench.zoo_records import write
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.results.plain import versions
from ranum_falsify.zoo.catalogue import MODELS, model_of
from ranum_falsify.zoo.facts import SAMPLES
from ranum_falsify.zoo.model import Defect, ZooModel
from ranum_falsify.zoo.natural import Pictures, train_naturally
from ranum_falsify.zoo.train import LEVELS, SEEDS, STEPS, TrainingBench

_ROOT = Path(__file__).resolve().parent.parent
_LONG = 40000
"""Steps on data that a program writes out."""


def measure(model: ZooModel, defect: Defect, column: str, given: argparse.Namespace) -> dict[str, Any] | None:
    """Return the figures of one defect in one column, None where the column does not concern it."""
    if column == FILES:
        return compare(model, defect, given.timeout) if defect.id in COMPARED else None
    if column in SEARCHES:
        return search(model, defect, column, given)
    if model.training is None or (column == WRITTEN) != (model.id in SAMPLES):
        return None
    return train(model, defect, column, given)


def search(model: ZooModel, defect: Defect, column: str, given: argparse.Namespace) -> dict[str, Any]:
    """Return how many runs find training data."""
    level = next(level for level in LEVELS if level == column.partition(",")[0])
    found = TrainingBench(model, level).runs_of(
        defect, seeds=SEEDS[: given.runs], timeout=given.timeout, descends=column == level
    )
    runs = len(found.attempts)
    return {
        "runs": runs,
        "trained": found.trained,
        "untrained": found.untrained,
        "strategies": dict(found.strategies),
        "steps": [a.found.steps for a in found.attempts if a.found is not None and a.found.strategy],
        "seconds": [round(a.seconds, 4) for a in found.attempts],
        "processor_seconds": round(found.processor_seconds / runs, 4),
    }


def train(model: ZooModel, defect: Defect, column: str, given: argparse.Namespace) -> dict[str, Any]:
    """Return what training meets by itself."""
    bench, began = TrainingBench(model, "real"), time.monotonic()
    runs = [
        train_naturally(
            bench,
            defect,
            seed,
            steps=_LONG if column == WRITTEN else STEPS,
            pictures=pictures(),
            seconds=given.seconds,
        )
        for seed in SEEDS[: given.runs]
    ]
    return {
        "runs": len(runs),
        "trained": sum(run.failing == defect.node for run in runs),
        "steps": [run.steps for run in runs],
        "failing": [run.failing for run in runs],
        "seconds": [round((time.monotonic() - began) / len(runs), 4)],
    }


@functools.cache
def pictures() -> Pictures:
    """Return what stands for the programs' pictures."""
    return load_pictures()


def facts() -> dict[str, str]:
    """Return where and how the measurements were made."""
    used = {name: version for name, version in versions().items() if name in ("torch", "onnxruntime", "numpy")}
    return {
        "machine": f"{os.cpu_count()} CPU cores ({platform.machine()}), 1 used, no GPU",
        "versions": ", ".join(f"{name} {version}" for name, version in used.items()),
        "command": "scripts/bench_training.py",
    }


def run(given: argparse.Namespace) -> None:
    """Measure what is not known yet.

    Raises:
        ZooError: There is no such defect.
    """
    path = given.folder / "training.json"
    known = {d["id"]: d for d in json.loads(path.read_text())["defects"]} if path.is_file() else {}
    chosen = MODELS if given.only is None else [model_of(name) for name in given.only]
    for model in dict.fromkeys(chosen):
        for defect in model.defects:
            entry = known.setdefault(defect.id, {"id": defect.id, "levels": {}})
            entry |= {"operator": defect.operator, "node": defect.node}
            for column in given.levels:
                if not given.again and column in entry["levels"]:
                    continue
                row = measure(model, defect, column, given)
                if row is not None:
                    entry["levels"][column] = row
                    print(defect.id, column, entry["levels"][column], flush=True)
                    ids = [d.id for m in MODELS for d in m.defects]
                    measured = {"facts": facts(), "defects": [known[i] for i in ids if i in known]}
                    write(path, json.dumps(measured, indent=1) + "\n")
    write_pages(given.folder)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="ID", help="models or defects; all by default")
    parser.add_argument("--levels", nargs="+", choices=COLUMNS, default=list(COLUMNS))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of one search")
    parser.add_argument("--seconds", type=float, default=3600.0, help="seconds of one training without search")
    parser.add_argument("--folder", type=Path, default=_ROOT / "benchmarks", help="where zoo.md is")
    parser.add_argument("--again", action="store_true", help="measure anew what is known")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    try:
        run(given)
    except RanumFalsifyError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
