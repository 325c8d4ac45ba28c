"""Compare the cost of a search with that of the bare arithmetic, and with DNNF.

    python scripts/bench_falsify.py [--case acasxu ...] [--rounds 7] [--threads 2] [--no-dnnf]

(a) The search: 100 starts x 100 steps on a property that no input violates, so that every step runs; reading and
reduction are left out, everything else that a step does is included.  It is divided by a bare PyTorch loop: the same
model written by hand, 100 times a forward pass and the gradient in the input, batch 100.
(b) DNNF's own pgd, divided by the search, on the same property.  DNNF attacks one start at a time; few of its steps are
measured and scaled to all starts and steps.

Runs alternate; a figure is the median of the ratios of pairs.  A long case is measured over fewer steps.  On a machine
that does other work, two threads wait for each other most of the time: measure with --threads 1 there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from lab.bench import CASES, Case, Paired, load_text, time_pairs
from lab.bench.dnnf_run import DnnfRun
from lab.bench.ours import CPU, OurRun
from lab.bench.tables import Table, add_record_option, command_of
from lab.bench.timing import seconds_of

__all__ = ["main"]

STARTS = 100
STEPS = 100
DNNF_CASES = {"acasxu": 500.0, "mnist-dense": 80.0, "mnist-conv": 8.0}
"""Cases that DNNF's converter can run, and how many times faster the search should be."""


@dataclass(frozen=True)
class Settings:
    """How much to measure."""

    starts: int
    steps: int
    rounds: int
    seconds: float
    dnnf_starts: int
    dnnf_steps: int


def bare_loop(case: Case, starts: int, device: torch.device = CPU) -> Callable[[int], float]:
    """Return a function that runs the bare loop for a number of steps and returns its seconds."""
    x = case.inputs(starts).to(device).requires_grad_()

    def loop(steps: int) -> None:
        for _ in range(steps):
            torch.autograd.grad(case.bare(x).sum(), x)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return lambda steps: seconds_of(lambda: loop(steps))


def compare_with_bare(case: Case, run: OurRun, settings: Settings) -> tuple[int, Paired]:
    """Return the number of steps measured, and the search divided by the bare loop."""
    bare = bare_loop(case, settings.starts)
    bare(2)
    step = bare(2) / 2
    steps = max(2, min(settings.steps, int(settings.seconds / step)))
    run.seconds(min(steps, 5))
    return steps, time_pairs(lambda: run.seconds(steps), lambda: bare(steps), settings.rounds)


def compare_with_dnnf(case: Case, run: OurRun, settings: Settings, *, released: bool) -> Paired:
    """Return DNNF's pgd, scaled to all starts and steps, divided by the search."""
    dnnf = DnnfRun(case)
    dnnf.seconds(1, 2, released=released)
    starts, steps = settings.dnnf_starts, settings.dnnf_steps
    scale = settings.starts * settings.steps / (starts * steps)
    return time_pairs(
        lambda: dnnf.seconds(starts, steps, released=released) * scale,
        lambda: run.seconds(settings.steps),
        settings.rounds,
    )


def _target(bare_step: float) -> float:
    """Return the ratio to reach: 1.3 if a step takes 5 ms or more, else 2."""
    return 1.3 if bare_step >= 5e-3 else 2.0


def table_a(names: Sequence[str], settings: Settings, command: str) -> None:
    """Add a row per case."""
    print(f"(a) {settings.starts} starts: the search divided by a bare PyTorch loop\n")
    columns = ("model", "batched", "steps", "bare step ms", "our step ms", "ratio", "least - greatest", "aim")
    table = Table("search", columns, command=command)
    for name in names:
        case = CASES[name]()
        with OurRun(case, settings.starts) as run:
            steps, found = compare_with_bare(case, run, settings)
            low, high = found.spread
            table.add(
                case.name,
                run.mode,
                str(steps),
                *(f"{seconds / steps * 1e3:.2f}" for seconds in (found.theirs, found.ours)),
                f"{found.ratio:.2f}",
                f"{low:.2f} - {high:.2f}",
                f"{_target(found.theirs / steps):.1f}",
            )


def table_b(names: Sequence[str], settings: Settings, command: str) -> None:
    """Add a row per case that DNNF can run."""
    measured = f"{settings.dnnf_starts} starts x {settings.dnnf_steps} steps measured and scaled"
    print(f"\n(b) DNNF's pgd divided by the search, {settings.starts} starts x {settings.steps} steps ({measured})\n")
    columns = ("model", "DNNF", "DNNF s", "ours s", "times faster", "least - greatest", "aim")
    table = Table("search, DNNF", columns, keys=2, command=command)
    for name in names:
        case = CASES[name]()
        with OurRun(case, settings.starts) as run:
            run.seconds(5)
            for released in (True, False):
                found = compare_with_dnnf(case, run, settings, released=released)
                low, high = found.spread
                table.add(
                    case.name,
                    "as released" if released else "comparison repaired",
                    f"{found.ours:.1f}",
                    f"{found.theirs:.3f}",
                    f"{found.ratio:.3g}",
                    f"{low:.3g} - {high:.3g}",
                    f"{DNNF_CASES[name]:.0f}" if released else "",
                )


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this case; may be repeated")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of runs per figure")
    parser.add_argument("--starts", type=int, default=STARTS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a bare run may take, steps are cut to fit")
    parser.add_argument("--dnnf-starts", type=int, default=2)
    parser.add_argument("--dnnf-steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch, on all sides")
    parser.add_argument("--no-dnnf", action="store_true", help="leave table (b) out")
    add_record_option(parser)
    given = parser.parse_args(argv)
    command = command_of(__file__, argv)
    torch.set_num_threads(given.threads)
    settings = Settings(given.starts, given.steps, given.rounds, given.seconds, given.dnnf_starts, given.dnnf_steps)
    names = given.case or list(CASES)
    print(f"torch {torch.__version__}, {given.threads} threads, {load_text()}, medians of {given.rounds} pairs\n")
    table_a(names, settings, command)
    for_dnnf = [name for name in names if name in DNNF_CASES]
    if for_dnnf and not given.no_dnnf:
        table_b(for_dnnf, settings, command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
