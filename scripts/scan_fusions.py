#!/usr/bin/env python3
"""Compare ONNX Runtime at its default level with ONNX Runtime without optimisations on random models.

Prints, by what the optimiser made of the smallest part of a model that differs, how many models differ and how, with
the first of them, and whether the proof is open there. Exit status 1 if a proof excludes what the default run gives.

    scripts/scan_fusions.py --graphs 50000 --jobs 2
    scripts/scan_fusions.py --seed 4711 --graphs 1
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from lab.crew import Failure, run_jobs
from ranum_falsify import network  # noqa: F401 - before what it prepares
from tests.domain.attack.fusions import Comparison, Difference, compare, describe_crash

_SEEDS = 40
"""Models in one job."""
_JOB_SECONDS = 300

Seen = list[tuple[int, Comparison | str]]
"""Seeds with what was seen of their models, or what stopped the comparison."""


def _prepare() -> Callable[[range], Seen]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    return _compare_all


def _compare_all(seeds: range) -> Seen:
    return [(seed, _compare(seed)) for seed in seeds]


def _compare(seed: int) -> Comparison | str:
    try:
        return compare(seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@dataclass
class Group:
    """Models that differ for one reason.

    Attributes:
        kinds: How many differ in each way.
        seed: The first of them.
        output: What differs there.
        faults: Seeds of those of which something wrong is proved, with what it is.
    """

    seed: int
    output: str
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str]] = field(default_factory=list)

    def add(self, seed: int, found: Difference) -> None:
        """Add a model."""
        self.kinds[found.kind] += 1
        if found.fault:
            self.faults.append((seed, found.fault))


class Scan:
    """Compares models, and groups those that differ.

    Attributes:
        groups: Those that differ, by what the optimiser made of them.
        types: Types of the operators that ran at the default level, where they were looked at.
        models: How many models ran.
        errors: What stopped a comparison.
    """

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.types: Counter[str] = Counter()
        self.models = 0
        self.errors: list[str] = []

    def run(self, first: int, count: int, jobs: int, seconds: float) -> None:
        """Compare models of consecutive seeds; what crashes or hangs is run again alone, model by model."""
        crashed: list[range] = []
        for seen in _seen(first, count, _SEEDS, jobs, until=time.monotonic() + seconds):
            if isinstance(seen, Failure):
                crashed.append(seen.job)
            else:
                self._add(seen)
        for seeds in crashed:
            for seen in _seen(seeds.start, len(seeds), 1, 1):
                self._add(self._judge(seen) if isinstance(seen, Failure) else seen)

    @staticmethod
    def _judge(failure: Failure[range]) -> Seen:
        seed = failure.job.start
        if failure.kind != "crash":
            return [(seed, f"{failure.kind}, {failure.detail}")]
        return [(seed, Comparison(runs=1, difference=describe_crash(seed)))]

    def _add(self, seen: Seen) -> None:
        for seed, found in seen:
            if isinstance(found, str):
                self.errors.append(f"[--seed {seed} --graphs 1] {found}")
                continue
            self.models += bool(found.runs)
            self.types += found.types
            if (difference := found.difference) is not None:
                group = self.groups.setdefault(difference.rewritten, Group(seed, difference.output))
                group.add(seed, difference)

    def report(self) -> bool:
        """Print what was found; tell whether something is wrong."""
        for rewritten, group in sorted(self.groups.items(), key=lambda item: -item[1].kinds.total()):
            kinds = ", ".join(f"{kind} {count}" for kind, count in group.kinds.most_common())
            state = "open" if not group.faults else f"PROVED in {len(group.faults)}"
            print(f"{rewritten}: {kinds}; {state} [--seed {group.seed} --graphs 1] {group.output[:150]}")
            for seed, fault in group.faults[:5]:
                print(f"  [--seed {seed} --graphs 1] {fault}")
        for error in self.errors:
            print(error)
        own = sorted(name for name in self.types if "." in name)
        print(f"operators of ONNX Runtime's own among those looked at: {', '.join(own) or 'none'}")
        return bool(self.errors or any(group.faults for group in self.groups.values()))


def _seen(first: int, count: int, size: int, jobs: int, until: float = math.inf) -> Iterator[Seen | Failure[range]]:
    seeds = (range(at, min(at + size, first + count)) for at in range(first, first + count, size))
    in_time = itertools.takewhile(lambda _: time.monotonic() < until, seeds)
    return run_jobs(in_time, _prepare, workers=jobs, limit=_JOB_SECONDS)


def main(argv: list[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=2000, help="how many random models (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first; others follow (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no job after so long")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    given = parser.parse_args(argv)
    began, scan = time.monotonic(), Scan()
    scan.run(given.seed, given.graphs, given.jobs, given.seconds)
    if not scan.models:
        print("nothing was run; ask for more graphs", file=sys.stderr)
        return 2
    wrong = scan.report()
    differing = sum(group.kinds.total() for group in scan.groups.values())
    print(f"{scan.models} models ran, {differing} differ, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
