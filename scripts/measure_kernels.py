#!/usr/bin/env python3
"""Measure how far the kernels of ONNX Runtime and PyTorch stray, and write the table `domain/kernels/table.py`.

    scripts/measure_kernels.py --jobs 2              # every float32 value of the critical ranges, each 61st elsewhere
    scripts/measure_kernels.py --every 1             # every float32 value
    scripts/measure_kernels.py --only Tanh --inner 997 --every 997 --write ranum_falsify/domain/kernels/table.py

float16 and bfloat16 are swept entirely, float64 is sampled and compared with mpmath.  Vector bodies, the tails that
are left when a tensor's size is no multiple of the vector width, and operands that are not contiguous are all run.
Operands below the smallest normal number are left out: the domain takes them for 0.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import mpmath
import numpy as np
import torch
from kernellib.functions import FUNCTIONS, Function
from kernellib.record import Record
from kernellib.rows import ROW_FUNCTIONS, RowFunction, measure_rows
from kernellib.runners import Run, runners
from kernellib.table import text_of
from torch import Tensor

CHUNK = 1 << 16
TAILS = 100
OTHER_WAYS = 128
PRECISE_SAMPLES = 20000
RANGE_SAMPLES = 1 << 20

_ALL: tuple[Function | RowFunction, ...] = (*FUNCTIONS, *ROW_FUNCTIONS)

Records = dict[tuple[str, torch.dtype, str], Record]
"""What was measured, by function, element type and runtime."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """Which part of the float32 values is run: each `inner`-th of the critical range, each `every`-th elsewhere."""

    inner: int
    every: int


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.int32))


def float32_values(function: Function, share: Share) -> Iterator[Tensor]:
    """Yield normal float32 values within a function's domain, and zeros."""
    limits = np.finfo(np.float32)
    first, last = _bits(float(limits.tiny)), _bits(float(limits.max)) + 1
    start, end = (min(max(_bits(m), first), last) for m in function.critical)
    low, high = function.domain
    yield torch.tensor([x for x in (0.0, -0.0, 1.0, -1.0) if low <= x <= high])
    for sign in (1.0, -1.0):
        for begin, stop, step in ((first, start, share.every), (start, end, share.inner), (end, last, share.every)):
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


def measure(function: Function, share: Share) -> Records:
    """Measure one function in every element type and runtime."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    found: Records = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        ways = runners(function, dtype)
        records = {runtime: Record(dtype, function.infimum, function.supremum) for runtime in ways}
        found |= {(function.key, dtype, runtime): record for runtime, record in records.items()}
        if dtype is torch.float64:
            for runtime, record in records.items():
                _measure_float64(function, ways[runtime], record, rng)
            continue
        chunks = float32_values(function, share) if dtype is torch.float32 else [half_values(function, dtype)]
        for number, x in enumerate(chunks):
            value = function.value(x)
            for runtime, record in records.items():
                for run in list(ways[runtime].values())[: None if number % OTHER_WAYS == 0 else 1]:
                    record.add(x, run(x), value)
                if number % OTHER_WAYS == 0:
                    _measure_tails(ways[runtime], x, value, record, rng)
    return found


def _measure_tails(ways: Mapping[str, Run], x: Tensor, value: Tensor, record: Record, rng: np.random.Generator) -> None:
    """Run few elements at a time, which no vector body takes."""
    for size in (1, 2, 3, 7):
        for _ in range(TAILS):
            chosen = torch.from_numpy(rng.integers(0, x.numel(), size))
            for run in ways.values():
                record.add(x[chosen], run(x[chosen]), value[chosen])


def _measure_float64(function: Function, ways: Mapping[str, Run], record: Record, rng: np.random.Generator) -> None:
    many, few = (float64_values(function, count, rng) for count in (RANGE_SAMPLES, PRECISE_SAMPLES))
    with mpmath.workprec(160):
        values = [function.precise(mpmath.mpf(x)) for x in few.tolist()]
    value = torch.tensor([float(v) for v in values], dtype=torch.float64)
    for run in ways.values():
        record.see_range(run(many))
        result = run(few)
        with mpmath.workprec(160):
            pairs = zip(result.tolist(), values, strict=True)
            errors = [float(abs(mpmath.mpf(r) - v)) if math.isfinite(r) else math.inf for r, v in pairs]
        record.add(few, result, value, torch.tensor(errors, dtype=torch.float64))


def main() -> int:
    """Measure, print what is odd, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="functions to measure, by their name in the table")
    parser.add_argument("--inner", type=int, default=1, help="run each INNER-th value of the critical range")
    parser.add_argument("--every", type=int, default=61, help="run each EVERY-th value elsewhere")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table there")
    options = parser.parse_args()
    share = Share(inner=options.inner, every=options.every)
    chosen = [i for i, f in enumerate(_ALL) if not options.only or f.key in options.only]
    records: Records = {}
    swept: dict[str, str] = {}
    text = ""
    with ProcessPoolExecutor(options.jobs) as pool:
        for index, part, seconds in pool.map(partial(_timed, share=share), chosen):
            function = _ALL[index]
            print(f"{function.key}: {seconds:.0f} s", file=sys.stderr, flush=True)
            swept[function.key] = _swept(function, share)
            for key, record in part.items():
                if record.invalid:
                    print(f"  {key}: NaN or infinite at {record.invalid[:5]}", file=sys.stderr)
                if key in records:
                    records[key].merge(record)
                else:
                    records[key] = record
            text = text_of(records, swept)
            if options.write:
                options.write.write_text(text)
    if not options.write:
        print(text)
    return 0


def _swept(function: Function | RowFunction, share: Share) -> str:
    if isinstance(function, RowFunction):
        return "rows of random numbers, up to 4096 long"
    if share.inner == share.every:
        return f"one in {share.inner}" if share.inner > 1 else "all"
    low, high = function.critical
    if share.inner == 1 and low == 0 and high == math.inf:
        return "all"
    part = "all" if share.inner == 1 else f"one in {share.inner}"
    return f"{part} of magnitude {low:.3g} to {high:.3g}, one in {share.every} of the others"


def _timed(index: int, *, share: Share) -> tuple[int, Records, float]:
    """Measure the function of an index: functions themselves cannot be sent to another process."""
    start, function = time.perf_counter(), _ALL[index]
    records = measure(function, share) if isinstance(function, Function) else measure_rows(function)
    return index, records, time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
