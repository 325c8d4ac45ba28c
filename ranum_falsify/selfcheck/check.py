"""Samples of every measured function, run on the installed libraries.

Results outside the records go into a record of their own, with twice the observed error, because samples are few.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import tiny, unit
from ranum_falsify.domain.kernels import Envelope, Record, find_envelope
from ranum_falsify.domain.kernels import updates_statistics as known_updates
from ranum_falsify.domain.kernels.records import STATISTICS, Row, dtype_name
from ranum_falsify.selfcheck.family import HERE
from ranum_falsify.selfcheck.running import Ways, session_in, updates_statistics, ways_to_run
from ranum_falsify.selfcheck.subjects import ROW_SUBJECTS, SUBJECTS, Subject

_COUNT = 4099  # odd: the last elements fill no vector
_SAFETY = 2.0
_LIMIT = 2.0**64
_TOLERATED = 64.0
_NEAR, _FAR = 1024, 2048
_LENGTHS = (3, 17, 257)


@dataclass
class _Found:
    """Results of one runtime outside the records."""

    rows: dict[str, dict[str, Row]] = field(default_factory=dict)
    saturation: dict[str, tuple[float, float]] = field(default_factory=dict)


def check(runtime: str, version: str) -> Record:
    """Run samples of every function on an installed runtime; return the results outside the records of all families."""
    found = _Found()
    for subject in SUBJECTS:
        for dtype in (torch.float32, torch.float16, torch.float64):
            _check_vectors(subject, dtype, runtime, found)
    for subject in ROW_SUBJECTS:
        for dtype in (torch.float32, torch.float16):
            _check_rows(subject, dtype, runtime, found)
    if known_updates((runtime,)) and not updates_statistics(session_in(runtime)):
        found.rows[STATISTICS] = {dtype_name(torch.float32): (0.0, 0.0, -math.inf, math.inf, False)}
    return Record(
        runtime=runtime,
        family=HERE,
        versions={version: "by the check on first use"},
        safety=dict.fromkeys(("float32", "float16", "float64"), _SAFETY),
        swept=dict.fromkeys([*found.rows, *found.saturation], "a few thousand samples"),
        rows=found.rows,
        saturation=found.saturation,
    )


def _check_vectors(subject: Subject, dtype: torch.dtype, runtime: str, found: _Found) -> None:
    kernel = find_envelope(subject.key, dtype, runtime)
    ways = {} if kernel is None else ways_to_run(subject, dtype, runtime)
    if kernel is None or not ways:
        return
    x = _operands(subject, dtype)
    value = subject.value(x)
    keep = value.abs() <= torch.finfo(dtype).max / 4
    x, value = x[keep], value[keep]
    for run in ways.values():
        _note(subject.key, dtype, kernel, run(x).double(), value, found)
    if dtype is torch.float32:
        _check_ends(subject, ways, kernel, found)


def _operands(subject: Subject, dtype: torch.dtype) -> Tensor:
    """Return samples of a function's domain: of moderate size, near 0, near the ends of the critical range, far out."""
    rng = np.random.default_rng(0)
    low, high = subject.domain
    largest = min(_LIMIT, float(torch.finfo(dtype).max))
    first, last = (math.log2(min(max(end, 2.0**-40), largest)) for end in subject.critical)
    sizes = np.exp2(np.where(rng.random(_COUNT) < 0.7, rng.uniform(first, last, _COUNT), rng.uniform(-40, 64, _COUNT)))
    near = rng.uniform(max(low, -20.0), min(high, 20.0), _COUNT)
    x = np.where(rng.random(_COUNT) < 0.5, near, sizes * rng.choice((-1.0, 1.0), _COUNT))
    of_type = torch.from_numpy(np.clip(x, max(low, -largest), min(high, largest))).to(dtype)
    # Rounding must not leave the domain, and bounds count numbers between 0 and the least normal one as out of it.
    return of_type[(of_type >= low) & (of_type <= high) & (of_type.abs() >= tiny(dtype))]


def _check_ends(subject: Subject, ways: Ways, kernel: Envelope, found: _Found) -> None:
    """Check that results reach the limits of the function where the records say."""
    low, high = kernel.floor_until, kernel.ceiling_from
    for run in ways.values():
        if low > -math.inf and not bool((run(-_sizes(-low)) <= subject.infimum).all()):
            low = -math.inf
        if high < math.inf and not bool((run(_sizes(high)) >= subject.supremum).all()):
            high = math.inf
    _note_ends(subject.key, (low, high), kernel, found)


def _sizes(threshold: float) -> Tensor:
    """Return float32 numbers from a threshold on: its next neighbours, and some of every larger binade."""
    first, last = (int(np.float32(end).view(np.int32)) for end in (threshold, math.inf))
    bits = np.concatenate([np.arange(first, first + _NEAR), np.linspace(first + _NEAR, last, _FAR, dtype=np.int64)])
    return torch.from_numpy(bits.astype(np.int32)).view(torch.float32)


def _check_rows(subject: Subject, dtype: torch.dtype, runtime: str, found: _Found) -> None:
    kernel = find_envelope(subject.key, dtype, runtime)
    ways = {} if kernel is None else ways_to_run(subject, dtype, runtime, rank=2)
    if kernel is None:
        return
    until = kernel.floor_until
    for x in _matrices():
        rows = x.to(dtype)
        value = subject.reference(rows.double())
        for run in ways.values():
            _note(subject.key, dtype, kernel, run(rows).double(), value, found)
            if kernel.floor_until > -math.inf:
                gone = kernel.floor_until - rows.abs()
                gone[:, 0] = 0
                until = until if bool((run(gone)[:, 1:] == 0).all()) else -math.inf
    _note_ends(subject.key, (until, kernel.ceiling_from), kernel, found)


def _matrices() -> Iterator[Tensor]:
    rng = np.random.default_rng(0)
    for length in _LENGTHS:
        for spread in (1e-3, 1.0, 30.0):
            yield torch.from_numpy(rng.standard_normal((_COUNT // length // 2 + 1, length)) * spread)


def _note(name: str, dtype: torch.dtype, kernel: Envelope, result: Tensor, value: Tensor, found: _Found) -> None:
    """Note results outside an envelope."""
    error, size, smallest = (result - value).abs(), value.abs(), tiny(dtype)
    flushed = (size < smallest) & (result.abs() < smallest)
    out = ~((error <= kernel.relative * size + kernel.absolute) | flushed)
    beyond = ~((result >= kernel.lowest) & (result <= kernel.highest))
    wrong = (result * value < 0) if kernel.keeps_sign else torch.zeros_like(out)
    if not bool((out | beyond | wrong).any()):
        return
    # Float64 results are compared with float64 values, which err themselves.
    large = out & ((error > _TOLERATED * unit(dtype) * size) | (size < smallest))
    ratio = (error / size.clamp(min=smallest))[out & ~large]
    row = Envelope(
        _SAFETY * float(ratio.amax()) if ratio.numel() else kernel.relative,
        min(_SAFETY * float(error[large].nan_to_num(math.inf).amax()), torch.finfo(dtype).max)
        if bool(large.any())
        else 0.0,
        min(kernel.lowest, float(result.nan_to_num(-math.inf).amin())),
        max(kernel.highest, float(result.nan_to_num(math.inf).amax())),
        kernel.keeps_sign and not bool(wrong.any()),
    )
    rows, key = found.rows.setdefault(name, {}), dtype_name(dtype)
    rows[key] = (row.union(Envelope(*rows[key])) if key in rows else row).row


def _note_ends(name: str, ends: tuple[float, float], kernel: Envelope, found: _Found) -> None:
    if ends != (kernel.floor_until, kernel.ceiling_from):
        found.saturation[name] = ends
