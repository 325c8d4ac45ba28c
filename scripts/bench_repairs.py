#!/usr/bin/env python3
"""Measure repairs of the zoo: what they repair, what they cost, how they compare with developers; and of small models.

Writes repairs.json after every model, continues where it stopped, writes repairs.md from it, and prints its table.

    scripts/bench_repairs.py
    scripts/bench_repairs.py --only 3 --folder /tmp
    scripts/bench_repairs.py --hazardous --only distance power
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lab.bench.hazardous_models import HAZARDOUS, HazardousModel
from lab.bench.hazardous_runs import repaired
from lab.bench.pages import write_pages
from lab.bench.repair_runs import repairs
from lab.bench.zoo_records import load, save
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.zoo.catalogue import MODELS, model_of
from ranum_falsify.zoo.model import ZooModel

_ROOT = Path(__file__).resolve().parent.parent


def measure(model: ZooModel, seconds: float) -> dict[str, Any]:
    """Return the record of a model."""
    found = repairs(model, seconds)
    best = found["ways"]["best"]
    text = f"{best['standing']} {'; '.join(best['changes'])}" if best else "no repair"
    print(f"{model.id}: {text} ({found['cpu_s']:.1f} s)", file=sys.stderr, flush=True)
    return {"id": model.id, "program": model.program, "defects": [d.id for d in model.defects], **found}


def measure_hazardous(case: HazardousModel) -> dict[str, Any]:
    """Return the record of a small hazardous model."""
    found = repaired(case)
    text = "no repair" if "changes" not in found else f"{found['standing']} {'; '.join(found['changes'])}"
    print(f"{case.id}: {text} ({found['cpu_s']:.1f} s)", file=sys.stderr, flush=True)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="ID", help="models, defects or kinds; all by default")
    parser.add_argument("--hazardous", action="store_true", help="small hazardous models in place of the zoo's")
    parser.add_argument(
        "--folder", type=Path, default=_ROOT / "benchmarks", help="where repairs.json and repairs.md go"
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="for the draws of inputs to compare models on")
    parser.add_argument("--again", action="store_true", help="measure anew what is known")
    given = parser.parse_args(argv)
    try:
        wanted = () if given.hazardous else _wanted(given.only)
    except RanumFalsifyError as error:
        print(error, file=sys.stderr)
        return 2
    path = given.folder / "repairs.json"
    known = load(path)
    for model in wanted:
        if given.again or model.id not in known:
            known[model.id] = measure(model, given.seconds)
            save(path, known)
    if given.hazardous:
        _measure_all_hazardous(path, given.only, again=given.again)
    text = write_pages(given.folder)["repairs"]
    print(
        "\n".join(line for line in text.split("## ")[-1 if given.hazardous else 0].splitlines() if line.startswith("|"))
    )
    return 0


def _wanted(only: Sequence[str] | None) -> Iterable[ZooModel]:
    return MODELS if only is None else dict.fromkeys(map(model_of, only))


def _measure_all_hazardous(path: Path, only: Sequence[str] | None, *, again: bool) -> None:
    known = load(path, "hazardous")
    for case in HAZARDOUS:
        if (only is None or any(word in case.id for word in only)) and (again or case.id not in known):
            known[case.id] = measure_hazardous(case)
            save(path, known, "hazardous", [one.id for one in HAZARDOUS])


if __name__ == "__main__":
    sys.exit(main())
