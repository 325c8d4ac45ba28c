#!/usr/bin/env python3
"""Measure clips of the zoo's 79 real defects: how many are proved, how much of the ranges is kept, how long it takes.

Writes clips.json after every model, continues where it stopped, writes clips.md from it, and prints its table.

    scripts/bench_fix.py
    scripts/bench_fix.py --only 3 --sets weights --folder /tmp
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lab.bench.clip_runs import SETS, clips
from lab.bench.pages import write_pages
from lab.bench.zoo_records import load, save
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.zoo.catalogue import MODELS, model_of
from ranum_falsify.zoo.model import ZooModel

_ROOT = Path(__file__).resolve().parent.parent


def measure(model: ZooModel, record: dict[str, Any], given: argparse.Namespace) -> None:
    """Measure those of the requested sets of a model that are not known yet."""
    for name in given.sets:
        if given.again or name not in record["sets"]:
            found = record["sets"][name] = clips(model, name)
            kept = "none" if found["clips"] is None else ", ".join(f"{c['kept']:.3g}" for c in found["clips"])
            print(f"{model.id} {name}: {kept} ({found['cpu_s']:.2f} s)", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="ID", help="models or defects; all by default")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), help="what may be narrowed")
    parser.add_argument("--folder", type=Path, default=_ROOT / "benchmarks", help="where clips.json and clips.md go")
    parser.add_argument("--again", action="store_true", help="measure anew what is known")
    given = parser.parse_args(argv)
    try:
        wanted = MODELS if given.only is None else dict.fromkeys(map(model_of, given.only))
    except RanumFalsifyError as error:
        print(error, file=sys.stderr)
        return 2
    path = given.folder / "clips.json"
    known = load(path)
    for model in wanted:
        entry = {"id": model.id, "program": model.program, "defects": [d.id for d in model.defects], "sets": {}}
        measure(model, known.setdefault(model.id, entry), given)
        save(path, known)
    text = write_pages(given.folder)["clips"]
    print("\n".join(line for line in text.split("## ")[0].splitlines() if line.startswith("|")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
