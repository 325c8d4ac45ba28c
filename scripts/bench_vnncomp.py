"""Decide the instances of a VNN-COMP benchmark folder and compare with the known verdicts.

    python scripts/bench_vnncomp.py FOLDER [--family acasxu ...] [--expected sat] [--timeout 60] [--count 24] [--cpu]
        [--table robustness] [--record]

FOLDER holds one folder per family, each with `expected.csv` (columns onnx, vnnlib, expected) and the files that it
names, gzipped or not.  Seconds count from opening the files to the confirmed counterexample or the proof; starting
Python takes about three seconds more, once per process; the first instance of a process also pays for what is loaded
with the first proof.  Every counterexample has been replayed on ONNX Runtime.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import ranum_falsify as rf
from lab.bench.tables import Table, add_record_option, command_of
from lab.bench.vnncomp import Instance, choose_instances, spread_over_families

_COLUMNS = (
    *("family", "expected", "instances", "violated", "holds", "wrong"),
    *("median s of those decided", "slowest s"),
)


def run(instance: Instance, given: argparse.Namespace) -> tuple[str, float]:
    """Return verdict and seconds of one instance."""
    clock = time.process_time if given.cpu else time.perf_counter
    began = clock()
    result = rf.falsify(
        instance.onnx,
        instance.vnnlib,
        n_starts=given.n_starts,
        seed=given.seed,
        timeout=given.timeout,
        **({} if given.prove_timeout is None else {"prove_timeout": given.prove_timeout}),
        self_check=False,
    )
    return result.verdict, clock() - began


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line per instance and a table per family.

    Returns:
        1 if a verdict contradicts the known one, 2 if there is no instance, else 0.
    """
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--family", action="append")
    arguments.add_argument("--expected", choices=["sat", "unsat", "all"], default="all")
    arguments.add_argument("--timeout", type=float, default=60.0)
    arguments.add_argument("--prove-timeout", type=float, help="of which for finer proofs (default: the command's)")
    arguments.add_argument("--n_starts", type=int, default=-1, help="-1: until the timeout")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--count", type=int, help="how many instances, spread over the families (default: all)")
    arguments.add_argument(
        "--cpu", action="store_true", help="measure processor time, for a machine that others use too"
    )
    arguments.add_argument("--table", default="vnncomp", help="the table of the record (default: %(default)s)")
    add_record_option(arguments)
    given = arguments.parse_args(argv)
    try:
        found = choose_instances(given.folder, given.family, given.expected)
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    wanted = found if given.count is None else spread_over_families(found, given.count)
    rows: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for instance in wanted:
        verdict, seconds = run(instance, given)
        rows.setdefault((instance.family, instance.expected), []).append((verdict, seconds))
        print(f"{instance.family} {instance.name}: {verdict} ({instance.expected}) {seconds:.2f} s", flush=True)
    print()
    name = "vnncomp, search" if given.prove_timeout == 0 else given.table
    wrong = _tabulate(rows, Table(name, _COLUMNS, keys=2, command=command_of(__file__, argv)))
    print(f"\nwrong: {wrong} of {sum(map(len, rows.values()))}")
    return 1 if wrong else 0


def _tabulate(rows: Mapping[tuple[str, str], Sequence[tuple[str, float]]], table: Table) -> int:
    """Add a row for each family and known verdict; return how many verdicts contradict the known ones."""
    wrong = 0
    for (family, expected), results in sorted(rows.items()):
        counts = Counter(verdict for verdict, _ in results)
        times = [seconds for verdict, seconds in results if verdict != "unknown"]
        median, slowest = (f"{statistics.median(times):.2f}", f"{max(times):.2f}") if times else ("", "")
        contrary = counts[{"sat": "holds", "unsat": "violated"}.get(expected, "")]
        numbers = (len(results), counts["violated"], counts["holds"], contrary)
        table.add(family, expected, *map(str, numbers), median, slowest)
        wrong += contrary
    return wrong


if __name__ == "__main__":
    sys.exit(main())
