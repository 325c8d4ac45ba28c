#!/usr/bin/env python3
"""Measure on a GPU, within ten minutes: speed of the search, errors of kernels, the zoo's counterexamples, memory.

    scripts/bench_gpu.py
    scripts/bench_gpu.py --device cuda:1 --minutes 3

(a) The search with 10,000 starts, on properties that no input violates, beside a bare PyTorch loop of as many forward
passes and gradients on the same device; the aim is 0.8 of its speed.
(b) Results of kernels outside of what is published of them: there should be none.
(c) Models of the zoo for which a search on the device finds a counterexample that ONNX Runtime confirms.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench_falsify import bare_loop

from lab.bench import CASES, Paired, time_pairs
from lab.bench.ours import OurRun
from lab.kernels.documented import find_outside
from ranum_falsify.config import CUDA, Runtime, SearchConfig
from ranum_falsify.errors import DeviceError, RanumFalsifyError
from ranum_falsify.selfcheck.subjects import SUBJECTS
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.search.device import device_of
from ranum_falsify.zoo.catalogue import MODELS
from ranum_falsify.zoo.detect import problem_of

_STARTS, _STEPS, _ROUNDS = 10_000, 50, 3
_CASES = ("acasxu", "mnist-dense", "mnist-conv")


def compare(name: str, device: torch.device, *, starts: int, steps: int, rounds: int) -> Paired:
    """Return the seconds of the search and of the bare loop on a device."""
    with device:
        case = CASES[name]()
    bare = bare_loop(case, starts, device)
    with OurRun(case, starts, device) as run:
        run.seconds(steps), bare(steps)  # the first calls load kernels
        return time_pairs(lambda: run.seconds(steps), lambda: bare(steps), rounds)


def strays(runtime: Runtime, *, points: int, narrowed: float = 1.0) -> list[str]:
    """Return the functions whose kernels leave what is published, with the first operand; see `find_outside`."""
    found = []
    for subject in SUBJECTS:
        for dtype in (torch.float32, torch.float64):
            if outside := find_outside(subject, dtype, runtime, points=points, narrowed=narrowed):
                found.append(f"{subject.key} of {dtype}: {len(outside)} of {points}, such as {outside[0]!r}")
    return found


def counterexamples(numbers: Sequence[int], device: torch.device, *, seconds: float) -> dict[int, str]:
    """Return the verdict on models of the zoo, by number; as many as there is time for."""
    found, end = dict[int, str](), time.monotonic() + seconds
    for model in (model for model in MODELS if model.number in numbers):
        if (left := end - time.monotonic()) <= 0:
            break
        config = SearchConfig(device=str(device), prove=False, n_starts=100, timeout=min(left, 20.0))
        try:
            found[model.number] = falsify(problem_of(model, model.architecture()), config).verdict
        except RanumFalsifyError as error:
            found[model.number] = f"error: {error}"
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; without a device, say so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="PyTorch device")
    parser.add_argument("--minutes", type=float, default=10.0, help="most of the time that all parts take")
    given = parser.parse_args(argv)
    began = time.monotonic()
    try:
        device = device_of(given.device)
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 2
    is_cuda = device.type == "cuda"
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name(device) if is_cuda else device}\n")
    print("| model | search, starts x steps / s | bare loop | search / bare |\n|---|---|---|---|")
    for name in _CASES:
        found = compare(name, device, starts=_STARTS, steps=_STEPS, rounds=_ROUNDS)
        ours, theirs = (_STARTS * _STEPS / seconds for seconds in (found.ours, found.theirs))
        print(f"| {name} | {ours:.3g} | {theirs:.3g} | {1 / found.ratio:.2f} |", flush=True)
    outside = strays(CUDA if is_cuda else "torch", points=1 << 20)
    print(f"\nkernels outside of what is published: {'; '.join(outside) or 'none'}", flush=True)
    left = given.minutes * 54 - (time.monotonic() - began)  # a tenth for the end
    verdicts = counterexamples([model.number for model in MODELS], device, seconds=left)
    violated = [verdict for verdict in verdicts.values() if verdict == "violated"]
    print(f"zoo: {len(violated)} of {len(verdicts)} models violated, of {len(MODELS)}")
    print("\n".join(f"  {number}: {verdict}" for number, verdict in verdicts.items() if verdict != "violated"))
    if is_cuda:
        print(f"peak memory: {torch.cuda.max_memory_allocated(device) / 2**20:.0f} MiB")
    print(f"{time.monotonic() - began:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
