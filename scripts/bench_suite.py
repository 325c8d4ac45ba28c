"""Measure what a suite adds to its instances, and what further workers save.

    python scripts/bench_suite.py FOLDER [--count 40] [--timeout 20] [--no-cluster]
    python scripts/bench_suite.py --tiny 1000

FOLDER is a suite, such as a folder of VNN-COMP benchmarks; of its instances, every k-th is taken. They run in one
process first, one after the other, which is what deciding them takes; then as suites with one worker, with two, and
with one and two one-thread workers of a Dask cluster on this machine. Times of suites include their start. It wants a
machine that does nothing else, with two cores.

With --tiny, a suite of generated instances runs, and the memory of the process that coordinates it is shown, and the
size of the page that reports it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import psutil

from ranum_falsify.suite.listing import list_instances
from ranum_falsify.suite.record import Instance, InstanceRecord
from ranum_falsify.suite.results import read_records

ROOT = Path(__file__).resolve().parent.parent


def write_list(instances: Sequence[Instance], folder: Path, timeout: float) -> Path:
    """Write instances as a list of VNN-COMP."""
    path = folder / "instances.csv"
    rows = [
        f"{Path(next(iter(i.networks.values()))).resolve()},{Path(str(i.property_path)).resolve()}" for i in instances
    ]
    path.write_text("".join(f"{row},{timeout:g}\n" for row in rows), encoding="utf-8")
    return path


def run_inside(instances: Sequence[Instance], timeout: float) -> tuple[float, float]:
    """Decide instances in this process, warm; return the seconds, and those of one command for the first."""
    from ranum_falsify.api import instances as runner
    from ranum_falsify.suite.worker import Task

    runner.warm_up()
    options = {"n_starts": -1}
    tasks = [Task(instance=_with(one, options, timeout), stem="x/y", folder=str(Path.cwd())) for one in instances]
    began = time.monotonic()
    for task in tasks:
        runner.answer(task)
    inside = time.monotonic() - began
    first = instances[0]
    command = [sys.executable, "-m", "ranum_falsify", str(first.property_path), "--network", "N"]
    began = time.monotonic()
    words = ["--timeout", str(timeout), "--n_starts", "-1", "-q", "-p", "1"]
    subprocess.run([*command, *first.networks.values(), *words], stdout=subprocess.DEVNULL, check=False)
    return inside, time.monotonic() - began


def _with(one: Instance, options: dict[str, int], timeout: float) -> Instance:
    return replace(one, options=options, timeout=timeout)


def run_suite(path: Path, name: str, *words: str) -> tuple[float, list[InstanceRecord], int]:
    """Run a suite; return the seconds, its records, and the most memory that its first process held."""
    results = path.parent / f"{name}.csv"
    command = [sys.executable, "-m", "ranum_falsify", "suite", str(path), "--results", str(results), "-q", *words]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    most, watched = 0, psutil.Process(process.pid)
    while process.poll() is None:
        try:
            most = max(most, int(watched.memory_info().rss))
        except psutil.Error:
            break
        time.sleep(0.1)
    process.wait()
    seconds = time.monotonic() - began
    return seconds, list(read_records(results.with_suffix(".jsonl"))), most


def compare_workers(given: argparse.Namespace, folder: Path) -> None:
    """Print what a suite adds, and what further workers save."""
    every = list_instances(given.folder, _refuse)
    chosen = every[:: max(1, len(every) // given.count)][: given.count]
    path = write_list(chosen, folder, given.timeout)
    inside, alone = run_inside(chosen, given.timeout)
    print(f"{len(chosen)} instances; in one process: {inside:.1f} s, {inside / len(chosen):.2f} s each")
    print(f"as one command: {alone:.1f} s for the first", flush=True)
    one, records, _ = run_suite(path, "one", "--jobs", "1")
    decided = sum(record.preparation + record.seconds for record in records)
    print(f"one worker: {one:.1f} s; beyond its own decisions {(one - decided) / len(records):.2f} s each, with start;")
    print(f"  beyond those in one process {(one - inside) / len(records):.2f} s each", flush=True)
    two, records, _ = run_suite(path, "two", "--jobs", "2")
    print(f"two workers: {two:.1f} s; speed-up {one / two:.2f}", flush=True)
    if given.cluster:
        single, dask = (run_suite(path, f"dask{n}", "--jobs", str(n), "--cluster", "local")[0] for n in (1, 2))
        print(f"a Dask cluster of one worker: {single:.1f} s; of two: {dask:.1f} s; speed-up {single / dask:.2f}, and")
        print(f"  {one / dask:.2f} over one worker without Dask")


def _refuse(*_: object) -> NoReturn:
    raise SystemExit("bench_suite.py takes folders of VNN-COMP")


def run_tiny(count: int, folder: Path, jobs: int) -> None:
    """Print how long generated instances take, and the memory of the process that coordinates them."""
    shutil.copy(ROOT / "networks" / "layer_norm_safe.onnx", folder / "tiny.onnx")
    groups = (f'[[group]]\nname = "{n}"\nmodels = "tiny.onnx"\nseed = {n}\n' for n in range(count))
    path = folder / "suite.toml"
    path.write_text("box = [-1, 1]\nn_starts = 1\nn_steps = 1\nprove_timeout = 1\n" + "".join(groups), encoding="utf-8")
    seconds, records, most = run_suite(path, "tiny", "--jobs", str(jobs))
    assert len(records) == count, "an instance is missing"
    print(f"{count} instances in {seconds:.0f} s with {jobs} workers, {jobs * seconds / count:.2f} s each")
    print(f"most memory of the coordinating process: {most / 2**20:.0f} MB", flush=True)
    page = folder / "report.html"
    words = [str(folder / "tiny.jsonl"), "-o", str(page)]
    subprocess.run([sys.executable, "-m", "ranum_falsify", "report", *words], stdout=subprocess.DEVNULL, check=True)
    print(f"page of the report: {page.stat().st_size / 1e6:.2f} MB")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("folder", type=Path, nargs="?")
    arguments.add_argument("--count", type=int, default=40)
    arguments.add_argument("--timeout", type=float, default=20.0)
    arguments.add_argument("--no-cluster", dest="cluster", action="store_false")
    arguments.add_argument("--tiny", type=int, metavar="COUNT")
    given = arguments.parse_args(argv)
    if (given.folder is None) == (given.tiny is None):
        arguments.error("give a folder, or --tiny COUNT")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        if given.tiny is not None:
            run_tiny(given.tiny, Path(name), os.cpu_count() or 1)
        else:
            compare_workers(given, Path(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
