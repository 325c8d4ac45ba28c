"""One function after the other on all operands that count: a record of a family of processors.

float16 and bfloat16 are swept completely, float64 is sampled and compared with mpmath.  Vector bodies, the tails left
over when a tensor's size is no multiple of the vector width, and non-contiguous operands are all run.  Operands below
the smallest normal number are left out: the domain takes them for 0.  `saturation` says how the limits that kernels
reach are measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.kernels.records import Record, dtype_name
from ranum_falsify.selfcheck.measuring.errors import Errors
from ranum_falsify.selfcheck.measuring.functions import FUNCTIONS, SATURATING, ElementFunction, bits_of, saturation
from ranum_falsify.selfcheck.running import SessionOf, Ways, rounds_half_sums, updates_statistics, ways_to_run
from ranum_falsify.selfcheck.subjects import ROW_SUBJECTS, Subject

_ROUNDS = 400
_LENGTHS = (1, 2, 3, 5, 8, 17, 64, 100, 1000, 4096)


Doubles = np.ndarray[Any, np.dtype[np.longdouble]]


@dataclass(frozen=True, kw_only=True)
class MatrixFunction(Subject):
    """A function of the rows of a matrix, with its values in NumPy's widest floats.

    Attributes:
        precise: The function.
        tolerated: Relative error, in units of roundoff, above which an absolute error takes over.
    """

    precise: Callable[[Doubles], Doubles]
    tolerated: float


def _softmax(x: Doubles) -> Doubles:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _log_softmax(x: Doubles) -> Doubles:
    gaps = x - x.max(-1, keepdims=True)
    # The sum without its greatest term, which is 1: where the others are tiny, 1 + x - 1 would lose them.
    powers = np.exp(gaps)
    np.put_along_axis(powers, gaps.argmax(-1)[..., None], 0, -1)
    return np.asarray(gaps - np.log1p(powers.sum(-1, keepdims=True)))


_PRECISE: dict[str, tuple[Callable[[Doubles], Doubles], float]] = {
    "Softmax": (_softmax, 1024),
    "LogSoftmax": (_log_softmax, 32),
}
ROW_FUNCTIONS = tuple(
    MatrixFunction(**vars(subject), precise=precise, tolerated=tolerated)
    for subject in ROW_SUBJECTS
    for precise, tolerated in (_PRECISE[subject.key],)
)


def measure_rows(function: MatrixFunction, runtime: str, session_of: SessionOf | None) -> dict[torch.dtype, Errors]:
    """Measure a function on rows of a length up to 4096, in every element type."""
    found: dict[torch.dtype, Errors] = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        rng = np.random.default_rng(0)
        ways = ways_to_run(function, dtype, runtime, rank=2, session_of=session_of)
        if not ways:
            continue
        errors = found[dtype] = Errors(dtype, function.infimum, function.supremum, tolerated=function.tolerated)
        for _ in range(_ROUNDS if dtype is torch.float32 else _ROUNDS // 4):
            x = torch.from_numpy(_draw_rows(rng)).to(dtype)
            value = function.precise(x.double().numpy().astype(np.longdouble)).reshape(-1)
            near = torch.from_numpy(value.astype(np.float64))
            for run in ways.values():
                result = run(x).reshape(-1)
                sizes = np.abs(result.double().numpy() - value).astype(np.float64)
                errors.add(x.reshape(-1), result, near, torch.from_numpy(sizes))
    return found


def _draw_rows(rng: np.random.Generator) -> np.ndarray:
    """Return rows of one length: of one spread, of two levels, or with one element that stands out."""
    length = int(rng.choice(_LENGTHS))
    count = max(1, 4096 // length)
    spread = 2.0 ** rng.uniform(-20, 8)
    x = rng.standard_normal((count, length)) * spread
    kind = rng.integers(4)
    if kind == 1:
        x = np.where(rng.random(x.shape) < 0.5, 0.0, -spread)
    elif kind == 2:
        x[:, rng.integers(length)] += rng.uniform(0, 100)
    elif kind == 3:
        x = rng.uniform(-100, 0, x.shape)
    return np.asarray(x + rng.choice((0.0, 0.0, 10.0, -1000.0)))


_CHUNK = 1 << 16
_TAILS = 25
_TAIL_EVERY = 8
_OTHER_EVERY = 16
_PRECISE_SAMPLES = 20000
_RANGE_SAMPLES = 1 << 20

_SAFETY = {torch.float32: 1.5, torch.float16: 1.25, torch.bfloat16: 1.25, torch.float64: 4.0}
"""Factor on measured errors: float64 is only sampled, and processors of a family may differ."""

EVERYTHING: tuple[ElementFunction | MatrixFunction, ...] = (*FUNCTIONS, *ROW_FUNCTIONS)
"""The functions that are measured."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Which float32 values are run: each `inner`-th value of the critical range, and each `every`-th elsewhere."""

    inner: int
    every: int

    def __str__(self) -> str:
        """Return a description that is about all functions."""
        return f"{_share(self.inner)} of the critical magnitudes, {_share(self.every)} of the others"

    def describe(self, function: ElementFunction | MatrixFunction) -> str:
        """Return which values of one function are run."""
        if isinstance(function, MatrixFunction):
            return "rows of random numbers, up to 4096 long"
        low, high = function.critical
        if self.inner == self.every or (self.inner == 1 and low == 0 and high == math.inf):
            return _share(self.inner)
        return f"{_share(self.inner)} of magnitude {low:.3g} to {high:.3g}, {_share(self.every)} of the others"


def _share(step: int) -> str:
    return "all" if step == 1 else f"one in {step}"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Errors of one function by element type, where float32 kernels saturate, if measured, and the time it took."""

    errors: dict[torch.dtype, Errors]
    ends: tuple[float, float] | None
    seconds: float


def measure(
    function: ElementFunction | MatrixFunction, runtime: str, sweep: Sweep, *, session_of: SessionOf | None = None
) -> Measurement:
    """Measure one function in every element type; models are loaded in this process if nothing else is given."""
    start = time.perf_counter()
    if isinstance(function, ElementFunction):
        errors, rank = _measure_elements(function, runtime, sweep, session_of), 1
    else:
        errors, rank = measure_rows(function, runtime, session_of), 2
    ends = None
    if function.key in SATURATING:
        ways = ways_to_run(function, torch.float32, runtime, rank=rank, session_of=session_of)
        ends = saturation(function, ways, sweep.inner)
    return Measurement(errors=errors, ends=ends, seconds=time.perf_counter() - start)


def make_record(
    runtime: str,
    family: str,
    versions: dict[str, str],
    sweep: Sweep,
    found: Iterable[tuple[ElementFunction | MatrixFunction, Measurement]],
    facts: Mapping[str, bool],
) -> Record:
    """Return the record of measurements; several functions of one name count as one."""
    errors: dict[str, dict[torch.dtype, Errors]] = {}
    swept, saturates = dict[str, str](), dict[str, tuple[float, float]]()
    for function, measured in found:
        for dtype, part in measured.errors.items():
            known = errors.setdefault(function.key, {})
            if dtype in known:
                known[dtype].merge(part)
            else:
                known[dtype] = part
            swept[function.key] = sweep.describe(function)
            if measured.ends is not None:
                saturates[function.key] = measured.ends
    return Record(
        runtime=runtime,
        family=family,
        versions=versions,
        safety={dtype_name(dtype): factor for dtype, factor in _SAFETY.items()},
        swept=swept,
        rows={
            name: {dtype_name(dtype): part.envelope(_SAFETY[dtype]).row for dtype, part in of.items()}
            for name, of in errors.items()
        },
        saturation=saturates,
        overflows={name: early for name, of in errors.items() if (early := _overflows(of))},
        **facts,
    )


def measure_facts(session_of: SessionOf) -> dict[str, bool]:
    """Return what holds of all kernels of a library here, by the name of the field of a record."""
    return {"half_sums": rounds_half_sums(session_of), "updates": updates_statistics(session_of)}


def _overflows(of: dict[torch.dtype, Errors]) -> dict[str, float]:
    return {dtype_name(dtype): part.overflow for dtype, part in of.items() if part.overflow < math.inf}


def _measure_elements(
    function: ElementFunction, runtime: str, sweep: Sweep, session_of: SessionOf | None
) -> dict[torch.dtype, Errors]:
    rng = np.random.default_rng(0)
    found: dict[torch.dtype, Errors] = {}
    for dtype in _SAFETY:
        ways = ways_to_run(function, dtype, runtime, session_of=session_of)
        if not ways:
            continue
        errors = found[dtype] = Errors(dtype, function.infimum, function.supremum)
        if dtype is torch.float64:
            _measure_float64(function, ways, errors, rng)
            continue
        chunks = _float32_values(function, sweep) if dtype is torch.float32 else [_half_values(function, dtype)]
        for number, x in enumerate(chunks):
            value, (plain, *others) = function.value(x), ways.values()
            errors.add(x, plain(x), value)
            # One operand is as likely as the next to show that another loop computes otherwise.
            few = slice(number % _OTHER_EVERY, None, _OTHER_EVERY if dtype is torch.float32 else 1)
            for run in others:
                errors.add(x[few], run(x[few].contiguous()), value[few])
            if number % _TAIL_EVERY == 0:
                _measure_tails(ways, x, value, errors, rng)
    return found


def _float32_values(function: ElementFunction, sweep: Sweep) -> Iterator[Tensor]:
    """Yield normal float32 values within a function's domain, and zeros."""
    limits = np.finfo(np.float32)
    first, last = bits_of(float(limits.tiny)), bits_of(float(limits.max)) + 1
    start, end = (min(max(bits_of(m), first), last) for m in function.critical)
    low, high = function.domain
    yield torch.tensor([x for x in (0.0, -0.0, 1.0, -1.0) if low <= x <= high])
    for sign in (1.0, -1.0):
        for begin, stop, step in ((first, start, sweep.every), (start, end, sweep.inner), (end, last, sweep.every)):
            for position in range(begin, stop, _CHUNK * step):
                bits = torch.arange(position, min(stop, position + _CHUNK * step), step, dtype=torch.int32)
                x = bits.view(torch.float32) * sign
                if min(x[0], x[-1]) < low or max(x[0], x[-1]) > high:
                    x = x[(x >= low) & (x <= high)]
                if x.numel():
                    yield x


def _half_values(function: ElementFunction, dtype: torch.dtype) -> Tensor:
    """Return every normal value of a 16-bit type within a function's domain, and zeros."""
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
    smallest, (low, high) = torch.finfo(dtype).tiny, function.domain
    return x[x.isfinite() & ((x.abs() >= smallest) | (x == 0)) & (x >= low) & (x <= high)]


def _float64_values(function: ElementFunction, count: int, rng: np.random.Generator) -> Tensor:
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


def _measure_tails(ways: Ways, x: Tensor, value: Tensor, errors: Errors, rng: np.random.Generator) -> None:
    """Run few elements at a time, which no vector body takes."""
    for size in (1, 2, 3, 7):
        for _ in range(_TAILS):
            chosen = torch.from_numpy(rng.integers(0, x.numel(), size))
            for run in ways.values():
                errors.add(x[chosen], run(x[chosen]), value[chosen])


def _measure_float64(function: ElementFunction, ways: Ways, errors: Errors, rng: np.random.Generator) -> None:
    many, few = (_float64_values(function, count, rng) for count in (_RANGE_SAMPLES, _PRECISE_SAMPLES))
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
