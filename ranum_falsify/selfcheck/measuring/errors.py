"""The errors of one kernel, and the envelope around them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import DENORMAL_UNITS, tiny, unit
from ranum_falsify.domain.kernels.envelopes import Envelope

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
        """Record what a kernel computed; its errors are given where float64 cannot hold the values well enough."""
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
        """Return the envelope around everything that was recorded, both errors times a factor.

        A relative error is used for the binades where it stays small, an absolute one for the others.
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
