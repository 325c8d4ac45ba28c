#!/usr/bin/env python3
"""Compare the processor time of answers with that of another checkout, such as the one before a change of the watch.

    git worktree add ../before HEAD~1
    scripts/bench_watch.py ../before [--rounds 5] [--zoo 12] [--models FOLDER] [--match REGEX] [--command]

Two processes, or commands, answer in turn: the networks of this repository over [0, 1], repaired twins of the zoo, and
the models of a folder.  Each model is asked about in both until all is warm, then `--rounds` times; a figure is the
median of the ratios of the pairs.  Only what holds is watched: medians are given of that, and of all.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.bench.checkout import ROOT, environment_of, run_in
from lab.bench.timing import Paired, load_text, time_pairs
from ranum_falsify.zoo.catalogue import MODELS

__all__ = ["main"]

_WORKER = Path(__file__).resolve().parent / "lab" / "bench" / "check_time.py"


_VERDICTS = {0: "holds", 1: "violated", 3: "unknown"}


class Command:
    """The command of a checkout."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self.verdict = ""

    def ask(self, subject: str) -> float:
        """Return the processor time of a command, its child processes among it."""
        if not Path(subject).is_file():
            self.verdict = "error: no file"
            return 0.0
        command = [sys.executable, "-P", "-m", "ranum_falsify", "check", subject, "--box", "0", "1", "--timeout", "10"]
        seconds, status = run_in(self._checkout, command)
        self.verdict = _VERDICTS.get(status, "error")
        return seconds

    def close(self) -> None:
        """Do nothing."""


class Side:
    """A process that answers with the package of a checkout."""

    def __init__(self, checkout: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment_of(checkout),
            cwd=checkout,
        )
        self.verdict = ""

    def ask(self, subject: str) -> float:
        """Return the seconds of an answer.

        Raises:
            RuntimeError: The process has ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        print(subject, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{subject}: the process ended")
        self.verdict, seconds, _ = json.loads(line)
        return float(seconds)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def subjects(zoo: int, folder: Path | None, match: str) -> list[str]:
    """Return what is asked about."""
    found = [str(path) for path in sorted((ROOT / "networks").glob("*.onnx"))]
    found += [f"zoo:{model.id}" for model in MODELS[:: max(1, len(MODELS) // max(1, zoo))][:zoo]]
    found += [str(path.resolve()) for path in sorted(folder.rglob("*.onnx"))] if folder is not None else []
    return [subject for subject in found if re.search(match, subject)]


def _median(pairs: Sequence[Paired]) -> str:
    return f"{statistics.median(pair.ratio for pair in pairs):.2f} of {len(pairs)}" if pairs else "-"


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--zoo", type=int, default=12, help="how many programs of the zoo")
    parser.add_argument("--models", type=Path, help="a folder of further models")
    parser.add_argument("--command", action="store_true", help="ask by commands, as users do; not about the zoo")
    parser.add_argument("--match", default="", help="regular expression that names must match")
    options = parser.parse_args()
    print(load_text())
    kind = Command if options.command else Side
    ours, theirs = kind(ROOT), kind(options.other.resolve())
    held, everything = list[Paired](), list[Paired]()
    try:
        for subject in subjects(options.zoo, options.models, options.match):
            for side in (ours, theirs, ours, theirs):
                side.ask(subject)
            if any(side.verdict.startswith("error") for side in (ours, theirs)):
                print(f"{Path(subject).name:40} no answer: {ours.verdict}, before {theirs.verdict}", flush=True)
                continue
            pair = time_pairs(lambda s=subject: ours.ask(s), lambda s=subject: theirs.ask(s), options.rounds)  # type: ignore[misc]
            everything.append(pair)
            held += [pair] * (ours.verdict == "holds")
            seconds = f"{pair.ours * 1e3:9.1f} ms, before {pair.theirs * 1e3:9.1f} ms"
            spread = f"{pair.spread[0]:.2f} to {pair.spread[1]:.2f}"
            print(f"{Path(subject).name:40} {ours.verdict:9} {seconds}, ratio {pair.ratio:.2f} ({spread})", flush=True)
    finally:
        ours.close()
        theirs.close()
    print(f"median ratio of processor time: {_median(everything)} answers, {_median(held)} that hold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
