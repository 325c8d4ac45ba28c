#!/usr/bin/env python3
"""Measure how far the kernels of ONNX Runtime and PyTorch stray, and write a record for this family of processors.

    scripts/measure_kernels.py --jobs 2              # every float32 value of the critical ranges, each 61st elsewhere
    scripts/measure_kernels.py --every 1             # every float32 value
    scripts/measure_kernels.py --only Tanh --inner 997 --every 997 --into /tmp/records
    scripts/measure_kernels.py --emulate avx         # ONNX Runtime on an older processor: needs qemu-x86_64
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 scripts/measure_kernels.py --runtimes torch

float16 and bfloat16 are swept completely, float64 is sampled and compared with mpmath.  Vector bodies, the tails left
over when a tensor's size is no multiple of the vector width, and non-contiguous operands are all run.  Operands below
the smallest normal number are left out: the domain takes them for 0.  `lab.kernels.saturation` says how the limits that
kernels reach are measured.

PyTorch obeys the variables above; `GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA` makes the C library do so.
MKL, which computes some functions for PyTorch, has its own kernels for Intel's processors.  On others it uses those too
if a preloaded library defines `int mkl_serv_intel_cpu_true(void) { return 1; }`; `MKL_ENABLE_INSTRUCTIONS` then chooses
among them.  With `--family` and `--note` that becomes a record of its own.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import mpmath
import numpy as np
import torch
from torch import Tensor

from lab.kernels.emulator import PROCESSORS, emulator
from lab.kernels.errors import Errors
from lab.kernels.files import path_of, update
from lab.kernels.functions import FUNCTIONS, Function
from lab.kernels.rows import ROW_FUNCTIONS, RowFunction, measure_rows
from lab.kernels.saturation import SATURATING, bits_of, correct_rounding, saturation
from ranum_falsify.domain.kernels.records import FOLDER, Record, dtype_name, write_record
from ranum_falsify.selfcheck.family import family_here, processor
from ranum_falsify.selfcheck.running import SessionOf, Ways, native, ways_to_run

CHUNK = 1 << 16
TAILS = 100
OTHER_WAYS = 128
PRECISE_SAMPLES = 20000
RANGE_SAMPLES = 1 << 20
VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "GLIBC_TUNABLES")

SAFETY = {torch.float32: 1.5, torch.float16: 1.25, torch.bfloat16: 1.25, torch.float64: 4.0}
"""Factor on measured errors: float64 is only sampled, and processors of a family may differ."""

_ALL: tuple[Function | RowFunction, ...] = (*FUNCTIONS, *ROW_FUNCTIONS)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What to measure.

    Attributes:
        runtime: `onnxruntime` or `torch`.
        emulate: Family of processors to emulate, empty for none.
        inner: Run each `inner`-th float32 value of the critical range,
        every: and each `every`-th elsewhere.
        note: Addition to the record's statement of how it was measured.
    """

    runtime: str
    emulate: str
    inner: int
    every: int
    note: str

    @property
    def session_of(self) -> SessionOf:
        """How to load models in ONNX Runtime."""
        return emulator(PROCESSORS[self.emulate]) if self.emulate else native


@dataclass
class Found:
    """The measurements of one function.

    Attributes:
        errors: Errors, by element type.
        ends: Where float32 kernels saturate, if that was measured.
        seconds: Time it took.
    """

    errors: dict[torch.dtype, Errors]
    ends: tuple[float, float] | None
    seconds: float


def float32_values(function: Function, task: Task) -> Iterator[Tensor]:
    """Yield normal float32 values within a function's domain, and zeros."""
    limits = np.finfo(np.float32)
    first, last = bits_of(float(limits.tiny)), bits_of(float(limits.max)) + 1
    start, end = (min(max(bits_of(m), first), last) for m in function.critical)
    low, high = function.domain
    yield torch.tensor([x for x in (0.0, -0.0, 1.0, -1.0) if low <= x <= high])
    for sign in (1.0, -1.0):
        for begin, stop, step in ((first, start, task.every), (start, end, task.inner), (end, last, task.every)):
            for position in range(begin, stop, CHUNK * step):
                bits = torch.arange(position, min(stop, position + CHUNK * step), step, dtype=torch.int32)
                x = bits.view(torch.float32) * sign
                if min(x[0], x[-1]) < low or max(x[0], x[-1]) > high:
                    x = x[(x >= low) & (x <= high)]
                if x.numel():
                    yield x


def half_values(function: Function, dtype: torch.dtype) -> Tensor:
    """Return every normal value of a 16-bit type within a function's domain, and zeros."""
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
    smallest, (low, high) = torch.finfo(dtype).tiny, function.domain
    return x[x.isfinite() & ((x.abs() >= smallest) | (x == 0)) & (x >= low) & (x <= high)]


def float64_values(function: Function, count: int, rng: np.random.Generator) -> Tensor:
    """Return random values of a function's domain: of moderate size, near 1, near multiples of pi / 2, far out."""
    exponents = np.where(rng.random(count) < 0.9, rng.uniform(-40, 10, count), rng.uniform(-1000, 60, count))
    x = np.exp2(exponents) * rng.choice((-1.0, 1.0), count)
    near, by_poles = (rng.random(count) < 0.1 for _ in range(2))
    x[near] = 1 + x[near] * 2.0**-20
    # Zeros and poles of circular functions are where errors of their arguments' reduction show.
    quarters = rng.choice((-1, 1), count) * rng.integers(1, 200, count) * (math.pi / 2)
    x[by_poles] = (quarters * (1 + rng.uniform(-1, 1, count) * 10.0 ** rng.uniform(-16, -3, count)))[by_poles]
    low, high = function.domain
    return torch.from_numpy(np.concatenate([x[(x >= low) & (x <= high)], [1.0]]))


def measure(function: Function, task: Task) -> dict[torch.dtype, Errors]:
    """Measure one function in every element type."""
    rng = np.random.default_rng(0)
    found: dict[torch.dtype, Errors] = {}
    for dtype in SAFETY:
        ways = ways_to_run(function, dtype, task.runtime, session_of=task.session_of)
        if not ways:
            continue
        errors = found[dtype] = Errors(dtype, function.infimum, function.supremum)
        if dtype is torch.float64:
            _measure_float64(function, ways, errors, rng)
            continue
        chunks = float32_values(function, task) if dtype is torch.float32 else [half_values(function, dtype)]
        for number, x in enumerate(chunks):
            value = function.value(x)
            for run in list(ways.values())[: None if number % OTHER_WAYS == 0 else 1]:
                errors.add(x, run(x), value)
            if number % OTHER_WAYS == 0:
                _measure_tails(ways, x, value, errors, rng)
    return found


def _measure_tails(ways: Ways, x: Tensor, value: Tensor, errors: Errors, rng: np.random.Generator) -> None:
    """Run few elements at a time, which no vector body takes."""
    for size in (1, 2, 3, 7):
        for _ in range(TAILS):
            chosen = torch.from_numpy(rng.integers(0, x.numel(), size))
            for run in ways.values():
                errors.add(x[chosen], run(x[chosen]), value[chosen])


def _measure_float64(function: Function, ways: Ways, errors: Errors, rng: np.random.Generator) -> None:
    many, few = (float64_values(function, count, rng) for count in (RANGE_SAMPLES, PRECISE_SAMPLES))
    with mpmath.workprec(160):
        values = [function.precise(mpmath.mpf(x)) for x in few.tolist()]
    value = torch.tensor([float(v) for v in values], dtype=torch.float64)
    for run in ways.values():
        errors.see_range(run(many))
        result = run(few)
        with mpmath.workprec(160):
            pairs = zip(result.tolist(), values, strict=True)
            sizes = [float(abs(mpmath.mpf(r) - v)) if math.isfinite(r) else math.inf for r, v in pairs]
        errors.add(few, result, value, torch.tensor(sizes, dtype=torch.float64))


def _measure(index: int, *, task: Task) -> Found:
    """Measure the function at an index: functions themselves cannot be sent to another process."""
    torch.set_num_threads(1)
    start, function = time.perf_counter(), _ALL[index]
    if isinstance(function, Function):
        errors, rank = measure(function, task), 1
    else:
        errors, rank = measure_rows(function, task.runtime, task.session_of), 2
    ends = None
    if function.key in SATURATING:
        ways = ways_to_run(function, torch.float32, task.runtime, rank=rank, session_of=task.session_of)
        ends = saturation(function, ways, task.inner)
    return Found(errors, ends, time.perf_counter() - start)


def _describe_swept(function: Function | RowFunction, task: Task) -> str:
    if isinstance(function, RowFunction):
        return "rows of random numbers, up to 4096 long"
    if task.inner == task.every:
        return f"one in {task.inner}" if task.inner > 1 else "all"
    low, high = function.critical
    if task.inner == 1 and low == 0 and high == math.inf:
        return "all"
    part = "all" if task.inner == 1 else f"one in {task.inner}"
    return f"{part} of magnitude {low:.3g} to {high:.3g}, one in {task.every} of the others"


def measure_all(task: Task, family: str, chosen: list[int], jobs: int, folder: Path, widen: bool) -> None:
    """Measure functions in one runtime; write the record after each."""
    module = import_module(task.runtime)
    errors: dict[str, dict[torch.dtype, Errors]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        for index, found in zip(chosen, pool.map(partial(_measure, task=task), chosen), strict=True):
            function = _ALL[index]
            print(f"{task.runtime} {family}, {function.key}: {found.seconds:.0f} s", file=sys.stderr, flush=True)
            known = errors.setdefault(function.key, {})
            for dtype, part in found.errors.items():
                if part.invalid:
                    print(f"  {dtype}: NaN or infinite at {part.invalid[:5]}", file=sys.stderr)
                if dtype in known:
                    known[dtype].merge(part)
                else:
                    known[dtype] = part
            if not known:
                continue
            record = Record(
                runtime=task.runtime,
                family=family,
                version=str(module.__version__).split("+")[0],
                measured=_describe_how(task),
                safety={dtype_name(dtype): factor for dtype, factor in SAFETY.items()},
                swept={function.key: _describe_swept(function, task)},
                rows={
                    function.key: {dtype_name(dtype): part.envelope(SAFETY[dtype]).row for dtype, part in known.items()}
                },
                saturation={} if found.ends is None else {function.key: found.ends},
            )
            update(path_of(folder, task.runtime, family), record, widen=widen)


def _describe_how(task: Task) -> str:
    if task.emulate:
        return f"emulated, by qemu-x86_64 -cpu {PROCESSORS[task.emulate]}"
    variables = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    notes = [task.note] if task.note else []
    return ", ".join([f"natively, on {processor()}", *notes, *(variables if task.runtime == "torch" else [])])


def write_correct_rounding(folder: Path) -> None:
    """Write the record of correct rounding, which needs no run."""
    ends = correct_rounding()
    record = Record(
        runtime="exact",
        family="any",
        version="",
        measured="computed",
        safety={},
        swept=dict.fromkeys(ends, "computed"),
        rows={name: {} for name in ends},
        saturation=ends,
    )
    write_record(record, path_of(folder, "exact", "any"))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print what is odd, and write records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtimes", nargs="*", choices=["onnxruntime", "torch"], default=["onnxruntime", "torch"])
    parser.add_argument("--only", nargs="*", metavar="NAME", help="functions to measure, by their name in the records")
    parser.add_argument("--inner", type=int, default=1, help="run each INNER-th value of the critical range")
    parser.add_argument("--every", type=int, default=61, help="run each EVERY-th value elsewhere")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--emulate", choices=sorted(PROCESSORS), default="", help="family of processors to emulate")
    parser.add_argument("--family", help="name of the family, if not what is found out about this machine")
    parser.add_argument("--note", default="", help="what the record is to say of how it was measured")
    parser.add_argument("--widen", action="store_true", help="keep what the record says, and add what is found now")
    parser.add_argument("--into", type=Path, metavar="FOLDER", default=FOLDER, help="folder for records")
    options = parser.parse_args(argv)
    unknown = set(options.only or ()) - {function.key for function in _ALL}
    if unknown:
        print(f"--only {' '.join(sorted(unknown))}: unknown; {', '.join(f.key for f in _ALL)} exist", file=sys.stderr)
        return 2
    chosen = [i for i, f in enumerate(_ALL) if not options.only or f.key in options.only]
    options.into.mkdir(parents=True, exist_ok=True)
    for runtime in ["onnxruntime"] if options.emulate else options.runtimes:
        share = {"inner": options.inner, "every": options.every}
        task = Task(runtime=runtime, emulate=options.emulate, note=options.note, **share)
        family = options.family or options.emulate or family_here(runtime)
        measure_all(task, family, chosen, options.jobs, options.into, options.widen)
    write_correct_rounding(options.into)
    return 0


if __name__ == "__main__":
    sys.exit(main())
