#!/usr/bin/env python3
"""Measure how far the kernels of ONNX Runtime and PyTorch stray, and write a record for this family of processors.

    scripts/measure_kernels.py --jobs 2              # every float32 value of the critical ranges, each 61st elsewhere
    scripts/measure_kernels.py --every 1             # every float32 value
    scripts/measure_kernels.py --only Tanh --inner 997 --every 997 --into /tmp/records
    scripts/measure_kernels.py --emulate avx         # ONNX Runtime on an older processor: needs qemu-x86_64
    scripts/measure_kernels.py --emulate neon        # on ARM64: needs qemu-aarch64 and scripts/make_arm64.py
    scripts/measure_kernels.py --device cuda         # PyTorch on an NVIDIA graphics processor
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 scripts/measure_kernels.py --runtimes torch

`ranum_falsify.selfcheck.measuring.sweep` says what is run.  A version that the record of a family has not yet widens
it where its errors are larger; so do further measurements of a record of several versions.

PyTorch obeys the variables above; `GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA` makes the C library do so.
MKL, which computes some functions for PyTorch, has its own kernels for Intel's processors.  On others it uses those too
if a preloaded library defines `int mkl_serv_intel_cpu_true(void) { return 1; }`; `MKL_ENABLE_INSTRUCTIONS` then chooses
among them.  With `--family` and `--note` that becomes a record of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from lab.kernels.documented import write_documented
from lab.kernels.emulator import MACHINES, emulator
from lab.kernels.exact import write_correct_rounding
from lab.kernels.files import path_of, update
from ranum_falsify.config import CUDA, library_of
from ranum_falsify.domain.kernels.records import FOLDER, Record
from ranum_falsify.selfcheck import release_of
from ranum_falsify.selfcheck.family import family_here, processor
from ranum_falsify.selfcheck.measuring import EVERYTHING, Measurement, Sweep, make_record, measure, measure_facts
from ranum_falsify.selfcheck.running import SessionOf, session_in

VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "GLIBC_TUNABLES")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What to measure.

    Attributes:
        runtime: The runtime, of either library.
        emulate: Family of the machine to emulate, empty for none.
        sweep: Which float32 values to run.
        note: Addition to the record's statement of how it was measured.
    """

    runtime: str
    emulate: str
    sweep: Sweep
    note: str

    @property
    def session_of(self) -> SessionOf:
        """How to load models."""
        return emulator(self.emulate, library_of(self.runtime)) if self.emulate else session_in(self.runtime)


def _measure(index: int, *, task: Task) -> Measurement:
    """Measure the function at an index: functions themselves cannot be sent to another process."""
    torch.set_num_threads(1)
    return measure(EVERYTHING[index], task.runtime, task.sweep, session_of=task.session_of)


def measure_all(task: Task, family: str, chosen: list[int], jobs: int) -> Record:
    """Measure functions in one runtime; tell of each."""
    found = []
    context = get_context("spawn" if task.runtime == CUDA else None)  # a fork has no access to the device
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for index, part in zip(chosen, pool.map(partial(_measure, task=task), chosen), strict=True):
            function = EVERYTHING[index]
            found.append((function, part))
            print(f"{task.runtime} {family}, {function.key}: {part.seconds:.0f} s", file=sys.stderr, flush=True)
            for dtype, errors in part.errors.items():
                if errors.invalid:
                    print(f"  {dtype}: NaN at {errors.invalid[:5]}", file=sys.stderr)
    library = library_of(task.runtime)
    version = MACHINES[task.emulate].version_of(library) if task.emulate else release_of(library)
    facts = measure_facts(task.session_of)
    return make_record(task.runtime, family, {version: _describe_how(task)}, task.sweep, found, facts)


def _describe_how(task: Task) -> str:
    if task.emulate:
        return f"emulated, by {MACHINES[task.emulate]}"
    variables = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    notes = [task.note] if task.note else []
    if task.runtime == CUDA:
        return ", ".join(
            [f"on {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}", *([task.note] if task.note else [])]
        )
    return ", ".join([f"natively, on {processor()}", *notes, *(variables if task.runtime == "torch" else [])])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print what is odd, and write records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtimes", nargs="*", choices=["onnxruntime", "torch"], default=["onnxruntime", "torch"])
    parser.add_argument("--only", nargs="*", metavar="NAME", help="functions to measure, by their name in the records")
    parser.add_argument("--inner", type=int, default=1, help="run each INNER-th value of the critical range")
    parser.add_argument("--every", type=int, default=61, help="run each EVERY-th value elsewhere")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--emulate", choices=sorted(MACHINES), default="", help="family of processors to emulate")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where PyTorch computes")
    parser.add_argument("--family", help="name of the family, if not what is found out about this machine")
    parser.add_argument("--note", default="", help="what the record is to say of how it was measured")
    parser.add_argument("--widen", action="store_true", help="keep what the record says, and add what is found now")
    parser.add_argument("--into", type=Path, metavar="FOLDER", default=FOLDER, help="folder for records")
    options = parser.parse_args(argv)
    unknown = set(options.only or ()) - {function.key for function in EVERYTHING}
    if unknown:
        print(
            f"--only {' '.join(sorted(unknown))}: unknown; {', '.join(f.key for f in EVERYTHING)} exist",
            file=sys.stderr,
        )
        return 2
    if options.device == "cuda" and not torch.cuda.is_available():
        print("--device cuda: no CUDA device is available to torch; run it on a machine with one", file=sys.stderr)
        return 2
    chosen = [i for i, f in enumerate(EVERYTHING) if not options.only or f.key in options.only]
    options.into.mkdir(parents=True, exist_ok=True)
    for library in ["torch"] if options.device == "cuda" else options.runtimes:
        machine = MACHINES[options.emulate] if options.emulate else None
        if machine is not None and library not in machine.libraries:
            continue
        runtime = CUDA if options.device == "cuda" else machine.runtime_of(library) if machine else library
        sweep = Sweep(inner=options.inner, every=options.every)
        task = Task(runtime=runtime, emulate=options.emulate, note=options.note, sweep=sweep)
        family = options.family or options.emulate or family_here(runtime)
        record = measure_all(task, family, chosen, options.jobs)
        try:
            update(path_of(options.into, runtime, family), record, sweep=sweep, widen=options.widen)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    write_correct_rounding(options.into)
    write_documented(options.into)
    return 0


if __name__ == "__main__":
    sys.exit(main())
