#!/usr/bin/env python3
"""Measure how many runs of training data lead into the zoo's 79 defects, by level, and with random data.

Writes BENCHMARKS.training.json after every defect, continues where it stopped, and writes the section of BENCHMARKS.md.

    scripts/bench_training.py
    scripts/bench_training.py --only 3 --levels strict --folder /tmp
    scripts/bench_training.py --page
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lab.bench.training_page import replace_section, section
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.report.versions import versions
from ranum_falsify.zoo.catalogue import MODELS, model_of
from ranum_falsify.zoo.model import Defect, ZooModel
from ranum_falsify.zoo.train import SEEDS, Level, TrainingBench

_ROOT = Path(__file__).resolve().parent.parent
_LEVELS: dict[str, tuple[Level, bool]] = {
    "published": ("published", True),
    "strict": ("strict", True),
    "initial": ("initial", True),
    "real": ("real", True),
    "strict, random": ("strict", False),
}
"""Columns: a level, and whether gradients lead the search."""


def measure(model: ZooModel, defect: Defect, column: str, given: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one defect in one column."""
    level, descends = _LEVELS[column]
    found = TrainingBench(model, level).runs_of(
        defect, seeds=SEEDS[: given.runs], timeout=given.timeout, descends=descends
    )
    runs = len(found.attempts)
    return {
        "runs": runs,
        "trained": found.trained,
        "untrained": found.untrained,
        "strategies": dict(found.strategies),
        "processor_seconds": round(found.processor_seconds / runs, 4),
    }


def facts() -> dict[str, str]:
    """Return where and how the measurements were made."""
    used = {name: version for name, version in versions().items() if name in ("torch", "onnxruntime", "numpy")}
    return {
        "machine": f"{os.cpu_count()} CPU cores ({platform.machine()}), 1 used, no GPU",
        "versions": ", ".join(f"{name} {version}" for name, version in used.items()),
        "command": "scripts/bench_training.py",
    }


def write(path: Path, measured: Mapping[str, Any]) -> None:
    """Write the measurements, whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def run(given: argparse.Namespace) -> None:
    """Measure what is not known yet.

    Raises:
        ZooError: There is no such defect.
    """
    path = given.folder / "BENCHMARKS.training.json"
    known = {d["id"]: d for d in json.loads(path.read_text())["defects"]} if path.is_file() else {}
    chosen = MODELS if given.only is None else [model_of(name) for name in given.only]
    for model in () if given.page else dict.fromkeys(chosen):
        for defect in model.defects:
            entry = known.setdefault(defect.id, {"id": defect.id, "operator": defect.operator, "levels": {}})
            for column in given.levels:
                if given.again or column not in entry["levels"]:
                    entry["levels"][column] = measure(model, defect, column, given)
                    print(defect.id, column, entry["levels"][column], flush=True)
                    ids = [d.id for m in MODELS for d in m.defects]
                    write(path, {"facts": facts(), "defects": [known[i] for i in ids if i in known]})
    page = given.folder / "BENCHMARKS.md"
    if path.is_file():
        before = page.read_text(encoding="utf-8") if page.is_file() else ""
        page.write_text(replace_section(before, section(json.loads(path.read_text()))), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="ID", help="models or defects; all by default")
    parser.add_argument("--levels", nargs="+", choices=list(_LEVELS), default=list(_LEVELS))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of one run")
    parser.add_argument("--folder", type=Path, default=_ROOT, help="where BENCHMARKS.md is")
    parser.add_argument("--again", action="store_true", help="measure anew what is known")
    parser.add_argument("--page", action="store_true", help="only write the section")
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
