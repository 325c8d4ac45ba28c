"""Falsify the instances of a VNN-COMP benchmark folder and compare with the known verdicts.

    python scripts/bench_vnncomp.py FOLDER [--family acasxu ...] [--expected sat] [--timeout 30]

FOLDER holds one folder per family, each with `expected.csv` (columns onnx, vnnlib, expected) and the files it names,
gzipped or not.  Seconds count from opening the files to the confirmed counterexample; the start of Python, about
three seconds, comes on top once per process.  Every counterexample has been replayed on ONNX Runtime.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ranum_falsify.config import SearchConfig
from ranum_falsify.falsify.falsifier import falsify
from ranum_falsify.network import read
from ranum_falsify.properties.parse import parse
from ranum_falsify.properties.reduce import reduce


@dataclass(frozen=True)
class Instance:
    """One network, one property, and what is known of them."""

    family: str
    onnx: Path
    vnnlib: Path
    expected: str


def instances(folder: Path, families: list[str] | None) -> Iterator[Instance]:
    """Yield the instances of the chosen families, all by default."""
    for table in sorted(folder.glob("*/expected.csv")):
        if families and table.parent.name not in families:
            continue
        with table.open(newline="") as file:
            for row in csv.DictReader(file):
                root = table.parent
                yield Instance(root.name, _present(root / row["onnx"]), _present(root / row["vnnlib"]), row["expected"])


def _present(path: Path) -> Path:
    return path if path.exists() else path.with_name(path.name + ".gz")


def run(instance: Instance, config: SearchConfig) -> tuple[str, float]:
    """Return verdict and seconds of one instance."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        model = instance.onnx
        if model.suffix == ".gz":
            model = Path(folder) / instance.onnx.stem
            model.write_bytes(gzip.decompress(instance.onnx.read_bytes()))
        problem = reduce(parse(instance.vnnlib), {"N": read(model)})
        verdict = falsify(problem, config).verdict
    return verdict, time.perf_counter() - began


def main() -> int:
    """Print a line per instance and a table per family; exit 1 if an instance known to hold is falsified."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--family", action="append")
    arguments.add_argument("--expected", choices=["sat", "unsat"])
    arguments.add_argument("--timeout", type=float, default=30.0)
    arguments.add_argument("--n_starts", type=int, default=-1, help="-1: until the timeout")
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    rows: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for instance in instances(given.folder, given.family):
        if given.expected not in (None, instance.expected):
            continue
        config = SearchConfig(n_starts=given.n_starts, seed=given.seed, timeout=given.timeout)
        verdict, seconds = run(instance, config)
        rows.setdefault((instance.family, instance.expected), []).append((verdict, seconds))
        names = f"{instance.onnx.name.split('.onnx')[0]} {instance.vnnlib.name.split('.vnnlib')[0]}"
        print(f"{instance.family} {names}: {verdict} ({instance.expected}) {seconds:.2f} s", flush=True)
    print("\n| family | expected | instances | falsified | median s of those | slowest s |\n|---|---|---|---|---|---|")
    for (family, expected), results in sorted(rows.items()):
        times = [seconds for verdict, seconds in results if verdict == "violated"]
        median, slowest = (f"{statistics.median(times):.2f}", f"{max(times):.2f}") if times else ("", "")
        print(f"| {family} | {expected} | {len(results)} | {len(times)} | {median} | {slowest} |")
    wrong = sum(v == "violated" for (_, expected), results in rows.items() if expected == "unsat" for v, _ in results)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
