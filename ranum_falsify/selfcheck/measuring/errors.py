"""The errors of one kernel, and the envelope around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import DENORMAL_UNITS, tiny, unit
from ranum_falsify.domain.kernels.envelopes import Envelope
from ranum_falsify.selfcheck.measuring.functions import FUNCTIONS
from ranum_falsify.selfcheck.running import Run, Ways
from ranum_falsify.selfcheck.subjects import Subject

_BINS = 2200
_MIDDLE = 1100


@dataclass
class Errors:
    """Errors of a kernel; large ones are kept by the binade of the function's value.

    Attributes:
        dtype: Element type of operand and result.
        infimum: Greatest lower bound of the function.
        supremum: Least upper bound.
        tolerated: Relative error, in units of roundoff, above which an absolute error takes over.
        overflows: Least value of the function for which a result was infinite although values that are 1024 units
            larger would fit.
    """

    dtype: torch.dtype
    infimum: float
    supremum: float
    tolerated: float = 32.0
    small: float = 0.0
    least: float = math.inf
    greatest: float = -math.inf
    keeps_sign: bool = True
    count: int = 0
    overflows: float = math.inf
    invalid: list[float] = field(default_factory=list)
    relative: Tensor = field(default_factory=lambda: torch.zeros(_BINS, dtype=torch.float64))
    absolute: Tensor = field(default_factory=lambda: torch.zeros(_BINS, dtype=torch.float64))

    def add(self, x: Tensor, result: Tensor, value: Tensor, error: Tensor | None = None) -> None:
        """Record what a kernel computed.

        Args:
            x: Operands, for the report of invalid results.
            result: Results of the kernel.
            value: Values of the function, in float64.
            error: Size of the errors, if float64 cannot hold the values well enough to compute it.
        """
        result = result.double()
        if error is None:
            error = (result - value).abs_()
        size = value.abs()
        smallest = tiny(self.dtype)
        ratio = error / size.clamp(min=smallest)
        self.count += x.numel()
        worst = float(ratio.amax())
        if worst > 4 * unit(self.dtype) or worst != worst or bool((size < smallest).any()):
            worst = self._add_large(x, result, value, error)
        self.small = max(self.small, worst)
        self.see_range(result)
        # Where both are above the smallest normal number a relative error below 1 keeps the sign.
        if worst >= 1 or self.absolute.any():
            wrong = (result * value.sign() < 0) | ((value == 0) & (result != 0) & result.isfinite())
            self.keeps_sign = self.keeps_sign and not bool(wrong.any())

    def see_range(self, result: Tensor) -> None:
        """Record the least and the greatest finite result."""
        least, greatest = (float(x) for x in torch.aminmax(result))
        if not (math.isfinite(least) and math.isfinite(greatest)):
            result = result[result.isfinite()]
            if not result.numel():
                return
            least, greatest = (float(x) for x in torch.aminmax(result))
        self.least, self.greatest = min(self.least, least), max(self.greatest, greatest)

    def _add_large(self, x: Tensor, result: Tensor, value: Tensor, error: Tensor) -> float:
        """Record errors by binade; return the largest of the small ones."""
        limits = torch.finfo(self.dtype)
        size = value.abs()
        # Overflow of the function itself, and results that may be flushed, are not errors of the kernel.
        least = limits.tiny * limits.eps
        stays = (result.abs() >= limits.tiny) | ((result != 0) & (error > 2 * DENORMAL_UNITS * least))
        counts = (size <= limits.max) & ((size >= limits.tiny) | stays)
        broken = counts & ~result.isfinite() & (size * (1 + 1024 * limits.eps) < limits.max)
        if bool(broken.any()):
            self.invalid += x[broken & result.isnan()][:3].tolist()
            self.overflows = min(self.overflows, float(size[broken].amin()))
        counts &= result.isfinite()
        error, size = error[counts], size[counts]
        ratio = error / size.clamp(min=1e-300)
        large = ratio > 4 * unit(self.dtype)
        if bool(large.any()):
            bins = torch.frexp(size[large].clamp(min=1e-300))[1].long() + _MIDDLE
            self.relative.scatter_reduce_(0, bins, ratio[large], "amax")
            self.absolute.scatter_reduce_(0, bins, error[large], "amax")
        return float(ratio[~large].amax()) if bool((~large).any()) else 0.0

    @property
    def overflow(self) -> float:
        """What a record says of it: less by a 32nd, which covers operands that were not run."""
        return float(f"{self.overflows * (1 - 2.0**-5):.3g}")

    def merge(self, other: Errors) -> None:
        """Add the contents of another record of the same kernel."""
        self.small = max(self.small, other.small)
        self.least, self.greatest = min(self.least, other.least), max(self.greatest, other.greatest)
        self.keeps_sign = self.keeps_sign and other.keeps_sign
        self.count += other.count
        self.invalid += other.invalid
        self.overflows = min(self.overflows, other.overflows)
        self.relative = torch.maximum(self.relative, other.relative)
        self.absolute = torch.maximum(self.absolute, other.absolute)

    def envelope(self, safety: float) -> Envelope:
        """Return the envelope around everything that was recorded.

        A relative error is used for the binades where it stays small, an absolute one for the others.

        Args:
            safety: Factor on both errors.
        """
        fits = self.relative <= self.tolerated * unit(self.dtype)
        absolute = float(self.absolute[~fits].amax()) if bool((~fits).any()) else 0.0
        greatest = torch.exp2(torch.arange(_BINS, dtype=torch.float64) - _MIDDLE).clamp(min=1e-300)
        rest = (self.relative - absolute / greatest)[fits]
        relative = max(self.small, float(rest.amax()))
        return Envelope(
            _round_up(relative * safety),
            _round_up(absolute * safety),
            min(self.infimum, self.least) if self.infimum > -math.inf else -math.inf,
            max(self.supremum, self.greatest) if self.supremum < math.inf else math.inf,
            self.keeps_sign,
        )


def _round_up(number: float) -> float:
    """Round up to two digits."""
    if not number:
        return 0.0
    scale = 10.0 ** (math.floor(math.log10(number)) - 1)
    return float(f"{math.ceil(number / scale) * scale:.2g}")


CHUNK = (1 << 18) + 5
NEAR, FAR, FAR_STEP = 0.5, 1024.0, 61
LENGTHS = (2, 3, 5, 8, 17, 64, 4096)
TAILS = 400

MARGIN = 0.125
"""Margin added to the size of a measured threshold: it covers values that were not run."""

SATURATING = ("Sigmoid", "Tanh", "Exp", "Softplus", "Erf", "Softmax")
"""Functions that saturate."""


@dataclass
class Ends:
    """Observations of one kernel.

    Attributes:
        floor: The function's infimum.
        ceiling: Its supremum.
        last_above: Least size from which on no result of a negative operand lies above the infimum.
        last_below: The same for positive operands and the supremum.
    """

    floor: float
    ceiling: float
    last_above: float = 0.0
    last_below: float = 0.0

    def add(self, x: Tensor, y: Tensor) -> None:
        """Record results for operands of one sign."""
        if bool(x[0] < 0):
            beyond = x[~(y <= self.floor)]
            if beyond.numel():
                self.last_above = max(self.last_above, float(beyond.abs().amax()))
        else:
            beyond = x[~(y >= self.ceiling)]
            if beyond.numel():
                self.last_below = max(self.last_below, float(beyond.amax()))

    def thresholds(self) -> tuple[float, float]:
        """Return the operand up to which results are the infimum, and the one from which on they are the supremum."""
        return -_step_beyond(self.last_above), _step_beyond(self.last_below)


def saturation(function: Subject, ways: Ways, step: int = 1) -> tuple[float, float]:
    """Measure one kernel in float32.

    Args:
        function: The function.
        ways: The ways to run it, on vectors, or on matrices for Softmax.
        step: Run each `step`-th value of magnitude 1/2 to 1024 only.
    """
    rng = np.random.default_rng(0)
    if function.key == "Softmax":
        return _of_softmax(ways, step, rng).thresholds()
    return _of_function(ways, Ends(float(function.infimum), float(function.supremum)), step, rng).thresholds()


def correct_rounding() -> dict[str, tuple[float, float]]:
    """Return the thresholds of correct rounding, by function."""
    of = {f.key: _find_exact(f.precise, float(f.infimum), float(f.supremum)) for f in FUNCTIONS if f.key in SATURATING}
    return of | {"Softmax": (_find_exact(mpmath.exp, 0.0, math.inf)[0], math.inf)}


def _step_beyond(size: float) -> float:
    """Return the next size above, with the margin, in 1/16; infinite if nothing shows that results saturate."""
    return math.inf if size >= FAR else math.ceil((size + MARGIN) * 16) / 16


def bits_of(number: float) -> int:
    """Return the float32 number as the integer of the same bits."""
    return int(np.float32(number).view(np.int32))


def _sizes(begin: float, end: float, step: int) -> Iterator[Tensor]:
    """Yield each `step`-th float32 number from `begin` on, and infinity if it is the end."""
    for position in range(bits_of(begin), bits_of(end) + 1, CHUNK * step):
        bits = torch.arange(position, min(bits_of(end) + 1, position + CHUNK * step), step, dtype=torch.int32)
        yield bits.view(torch.float32)


def _of_function(ways: Mapping[str, Run], ends: Ends, step: int, rng: np.random.Generator) -> Ends:
    for sign in (-1.0, 1.0):
        for x in _sizes(NEAR, FAR, step):
            for run in ways.values():
                ends.add(sign * x, run(sign * x))
        for x in _sizes(FAR, math.inf, FAR_STEP * step):
            ends.add(sign * x, next(iter(ways.values()))(sign * x))
        candidates = torch.from_numpy(rng.uniform(NEAR, 256, (TAILS, 7)).astype(np.float32)) * sign
        for row in candidates:
            for count in (1, 2, 3, 7):
                for run in ways.values():
                    ends.add(row[:count], run(row[:count]))
    return ends


def _of_softmax(ways: Mapping[str, Run], step: int, rng: np.random.Generator) -> Ends:
    """Run Softmax on rows of 0 and numbers below; an operand counts by its distance to the largest of its row."""
    ends = Ends(0.0, math.inf, last_below=math.inf)
    for begin, stop, stride, kinds in ((NEAR, FAR, step, len(ways)), (FAR, math.inf, FAR_STEP * step, 1)):
        for number, gaps in enumerate(_sizes(begin, stop, stride)):
            length = 4096 if number % 8 else LENGTHS[number // 8 % len(LENGTHS)]
            for run in list(ways.values())[:kinds]:
                _add_rows(run, -gaps, length, ends, int(rng.integers(length)))
    return ends


def _add_rows(run: Run, gaps: Tensor, length: int, ends: Ends, top: int) -> None:
    gaps = torch.cat([gaps, gaps[-1:].expand(-gaps.numel() % (length - 1))])
    others = gaps.reshape(-1, length - 1)
    rows = torch.cat([others[:, :top], torch.zeros(len(others), 1), others[:, top:]], 1)
    y = run(rows)
    ends.add(gaps, torch.cat([y[:, :top], y[:, top + 1 :]], 1).reshape(-1))


def _find_exact(function: Callable[[Any], Any], floor: float, ceiling: float) -> tuple[float, float]:
    """Return the thresholds of correct rounding, by bisection between float32 numbers."""
    u = mpmath.mpf(2) ** -24
    with mpmath.workprec(400):
        rounds_down = mpmath.mpf(2) ** -150 if floor == 0 else floor + abs(mpmath.mpf(floor)) * u / 2
        rounds_up = mpmath.mpf(2) ** 128 * (1 - u / 2) if ceiling == math.inf else ceiling - ceiling * u / 2
        low = _find_first(lambda size: floor > -math.inf and function(-size) <= rounds_down)
        high = _find_first(lambda size: function(size) >= rounds_up)
    return -low, high


def _find_first(reached: Callable[[Any], bool]) -> float:
    """Return the least size from which on a condition always holds, rounded up to 1/16."""
    first, last = 8, int(FAR * 16)
    if not reached(mpmath.mpf(last) / 16):
        return math.inf
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if reached(mpmath.mpf(middle) / 16) else (middle + 1, last)
    return first / 16
