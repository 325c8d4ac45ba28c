"""Kill a suite, its workers and Dask's workers at random moments, and compare what --resume makes of it.

    python scripts/attack_suite.py [--what suite worker dask] [--moments 20] [--instances 12] [--seed 0]

Each time, a suite of small networks runs, one process of it is killed by SIGKILL at a random moment, and the suite goes
on by --resume. All results (outcomes, operators, counterexamples, byte by byte) must be those of a suite that nobody
disturbed, each there once, and no process may be left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from ranum_falsify.suite.results import read_records

ROOT = Path(__file__).resolve().parent.parent
SERVER = "ranum_falsify.suite.worker"
NETWORKS = ("l2_normalise", "l2_normalise_safe", "layer_norm_no_epsilon", "layer_norm_safe", "split_forms")


def make_suite(folder: Path, count: int) -> Path:
    """Write a suite of small networks, with other seeds for each instance."""
    groups = [
        f'[[group]]\nname = "seed{number}"\nmodels = "{NETWORKS[number % len(NETWORKS)]}.onnx"\nseed = {number}\n'
        for number in range(count)
    ]
    for name in NETWORKS:
        shutil.copy(ROOT / "networks" / f"{name}.onnx", folder)
    path = folder / "suite.toml"
    path.write_text("box = [-1, 1]\nn_starts = 10\nn_steps = 10\ntimeout = 120\n" + "".join(groups), encoding="utf-8")
    return path


def start(suite: Path, results: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start the command."""
    command = [sys.executable, "-m", "ranum_falsify", "suite", str(suite), "--results", str(results), "--resume", "-q"]
    return subprocess.Popen([*command, "--jobs", "2", *words], stdout=subprocess.DEVNULL, cwd=ROOT)


def outcomes(results: Path) -> dict[str, Any]:
    """Return all that must not differ between runs, by instance; ValueError where one is there twice."""
    found: dict[str, Any] = {}
    for record in read_records(results.with_suffix(".jsonl")):
        if record.instance.id in found:
            raise ValueError(f"{record.instance.id} is there twice")
        report = dict(record.report or {})
        files = sorted(str(name) for name in (report.get("counterexample") or {}).values())
        report.pop("seconds", None)
        arrays = [(name, (results.parent / name).read_bytes().hex()) for name in files]
        found[record.instance.id] = json.loads(json.dumps([record.status, record.error, report, arrays]))
    return found


def find_victim(process: subprocess.Popen[bytes], what: str) -> int | None:
    """Return the number of the process to kill, None where there is none at the moment."""
    if what == "suite":
        return process.pid
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if SERVER in " ".join(child.cmdline()):
                return int(child.pid if what == "worker" else child.ppid())
        except psutil.Error:
            continue
    return None


def disturb(suite: Path, results: Path, what: str, moment: float) -> str:
    """Run the suite, kill a process of it after some seconds, and go on; return what was killed."""
    words = ("--cluster", "local") if what == "dask" else ()
    process = start(suite, results, *words)
    time.sleep(moment)
    victim = None
    while process.poll() is None and (victim := find_victim(process, what)) is None:
        time.sleep(0.1)  # there are no workers yet
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    if victim is not None:
        os.kill(victim, signal.SIGKILL)
    process.wait()
    left = [each for each in psutil.wait_procs(family, timeout=60)[1] if each.status() != psutil.STATUS_ZOMBIE]
    if left:
        raise ValueError(f"{len(left)} processes are left: {left[0].cmdline()}")
    start(suite, results, *words).wait()
    return "nothing" if victim is None else what


def attack(folder: Path, what: str, given: argparse.Namespace) -> int:
    """Attack one kind of process at several moments; return how many went wrong."""
    rng = random.Random(f"{given.seed} {what}")
    suite = make_suite(folder, given.instances)
    whole = folder / "whole.csv"
    began = time.monotonic()
    start(suite, whole, *(("--cluster", "local") if what == "dask" else ())).wait()
    seconds, expected = time.monotonic() - began, outcomes(whole)
    if len(expected) != given.instances:
        raise ValueError(f"{given.instances - len(expected)} instances are missing without any attack")
    wrong = 0
    for number in range(given.moments):
        results = folder / f"whole{what}{number}.csv"
        moment = rng.uniform(0, seconds)
        try:
            killed = disturb(suite, results, what, moment)
            found = {name: _rename(each, results.stem, whole.stem) for name, each in outcomes(results).items()}
            text = "equal" if found == expected else "DIFFERENT"
        except ValueError as error:
            killed, text = what, f"WRONG: {error}"
        wrong += text != "equal"
        print(f"{what} {number}: killed {killed} after {moment:.1f} s: {text}", flush=True)
    return wrong


def _rename(value: Any, old: str, new: str) -> Any:
    """Return outcomes as if the results had another name."""
    return json.loads(json.dumps(value).replace(f"{old}.counterexamples", f"{new}.counterexamples"))


def main(argv: Sequence[str] | None = None) -> int:
    """Attack.

    Returns:
        1 if a result differs, else 0.
    """
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument(
        "--what", nargs="+", choices=["suite", "worker", "dask"], default=["suite", "worker", "dask"]
    )
    arguments.add_argument("--moments", type=int, default=20)
    arguments.add_argument("--instances", type=int, default=12)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args(argv)
    wrong = 0
    for what in given.what:
        with tempfile.TemporaryDirectory(prefix="attack-") as folder:
            wrong += attack(Path(folder), what, given)
    print(f"wrong: {wrong} of {len(given.what) * given.moments}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
