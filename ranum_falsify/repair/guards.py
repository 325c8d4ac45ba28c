"""Guards: small changes of what an operator reads that keep it valid, each with a strength that is searched for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from dnnv.nn import Operation

from ranum_falsify.domain import Interval
from ranum_falsify.domain.linear.declarations import Affine
from ranum_falsify.network import spec_of
from ranum_falsify.repair.subject import GuardSite
from ranum_falsify.validity import Constraint, InvalidRange, largest

_WHOLE = (torch.int32, torch.int64)
_NO_OPERAND = -1
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, kw_only=True)
class OperandGuard:
    """A guard on an operand of a node.

    At strength 0 it changes as little as it can: only what its node cannot take.  At 1 it is as narrow as is sensible.

    Attributes:
        site: The node.
        index: Position of the operand among the node's inputs.
        attribute: The attribute of the node that is raised in place of any operand, empty elsewhere.
        dtype: Type of its elements.
        bounds: What the operand ranges over without it; the number that the attribute is.
        lower: The lower end of what is valid, None where there is none.
        upper: The upper end.
        gap: Whether 0 is kept out, either side of it staying.
        adds: Whether a number is added, in place of a limit; for operands that are not below `lower`.
        strict: Whether the ends themselves are not valid.
        halvings: How often the operand of a sum is halved, and its result, kept finite, doubled again; 0 elsewhere.
        is_clip: Whether it is written as a clip to a range.
        strength: From 0 to 1.
    """

    site: GuardSite
    index: int
    attribute: str = ""
    dtype: torch.dtype
    bounds: Interval
    lower: float | None = None
    upper: float | None = None
    gap: bool = False
    adds: bool = False
    strict: bool = False
    is_clip: bool = False
    halvings: int = 0
    strength: float = 0.0

    @property
    def can_add(self) -> bool:
        """Whether adding a number keeps its operand valid, too, and lets gradients pass."""
        is_above = self.upper is None and not self.gap and self.lower == 0
        return is_above and not self.attribute and self.dtype.is_floating_point and self.bounds.extremes[0] >= 0

    def at(self, strength: float) -> OperandGuard:
        """Return the same with another strength."""
        return replace(self, strength=strength)

    @property
    def step(self) -> float:
        """The number that is added, or that keeps 0 out; or that an attribute is raised to."""
        if not self.dtype.is_floating_point:
            return 1.0
        return max(self._beyond(0.0), self.bounds.extremes[1]) if self.attribute else self._beyond(0.0)

    @property
    def low(self) -> float | None:
        """The least value that it lets pass."""
        if self.lower is None:
            return None
        if math.isinf(self.lower) or self.lower <= -_most(self.dtype):
            return -self._greatest()
        return self._beyond(self.lower)

    @property
    def high(self) -> float | None:
        """The greatest value that it lets pass."""
        if self.upper is None:
            return None
        if math.isinf(self.upper) or self.upper >= _most(self.dtype):
            return self._greatest()
        return -self._beyond(-self.upper)

    def _greatest(self) -> float:
        """Return a magnitude between the largest number and 1, evenly on a logarithmic scale."""
        return _rounded(largest(self.dtype) ** (1 - self.strength), self.dtype, up=False)

    def _beyond(self, end: float) -> float:
        """Return a number above a lower end, its distance from it evenly on a logarithmic scale."""
        if not self.dtype.is_floating_point:
            return end + 1.0 if self.strict else end
        info = torch.finfo(self.dtype)
        if end == 0 and not (self.strength or self.strict or self.adds or self.gap):
            distance = 0.0
        elif end == 0:
            distance = info.tiny ** (1 - self.strength)
        elif self.strength or self.strict:
            least = info.eps * abs(end)
            distance = least ** (1 - self.strength) * max(abs(end), least) ** self.strength
        else:
            distance = 0.0
        return _rounded(end + distance, self.dtype, up=True)

    def kept(self) -> tuple[float, float]:
        """Return the share of the valid range that is kept: mean over the elements, and the least of them."""
        if self.adds or self.halvings or self.attribute:
            return 1.0, 1.0
        most = _most(self.dtype)
        low, high = (x.double().clamp(-most, most) for x in (self.bounds.lower, self.bounds.upper))
        low = low if self.lower is None else low.clamp_min(max(self.lower, -most))
        high = high if self.upper is None else high.clamp_max(min(self.upper, most))
        inside = low if self.low is None else low.clamp_min(self.low)
        outside = high if self.high is None else high.clamp_max(self.high)
        width = high / 2 - low / 2
        lost = 2 * self.step * ((low < 0) & (high > 0)) / 2 if self.gap else 0.0
        left = (outside / 2 - inside / 2 - lost).clamp_min(0)
        shares = torch.where(width > 0, left / width.clamp_min(5e-324), 1.0).clamp(0, 1)
        return (float(shares.mean()), float(shares.min())) if shares.numel() else (1.0, 1.0)


def _most(dtype: torch.dtype) -> float:
    return largest(dtype) if dtype.is_floating_point else float(torch.iinfo(dtype).max)


def _rounded(number: float, dtype: torch.dtype, *, up: bool) -> float:
    """Return the nearest number of a type in a direction."""
    exact = torch.tensor(number, dtype=torch.float64)
    found = exact.to(dtype)
    if found.isinf():
        return math.copysign(largest(dtype), number)
    if (found.double() < exact) if up else (found.double() > exact):
        found = (
            torch.nextafter(found.float(), torch.tensor(math.inf if up else -math.inf))
            if (dtype in (torch.float16, torch.bfloat16))
            else (torch.nextafter(found, torch.tensor(math.inf if up else -math.inf, dtype=dtype)))
        )
        found = found.to(dtype)
    return float(found)


def guards_of(
    site: GuardSite, op: Operation, conditions: Sequence[Constraint], bounds: Mapping[str, Interval], *, is_clip: bool
) -> Iterator[OperandGuard]:
    """Yield the guards that conditions on single operands ask for."""
    stated = {name: found for name, found in _ranges(op, conditions, bounds).items() if _index(op, name) is not None}
    raised = {condition.raised_by for condition in conditions if hasattr(op, condition.raised_by)}
    if not stated:
        yield from (_raising(site, op, attribute) for attribute in sorted(raised))
    for name, ranges in stated.items():
        index = _index(op, name)
        x = bounds[name]
        if index is None or x.dtype not in (*_FLOATS, *_WHOLE):
            continue
        guard = OperandGuard(site=site, index=index, dtype=x.dtype, bounds=x, is_clip=is_clip)
        for invalid in ranges:
            guard = _keep_out(guard, invalid, x)
        yield guard


def _raising(site: GuardSite, op: Operation, attribute: str) -> OperandGuard:
    """Return the guard that raises a number in an attribute, which ONNX keeps in float32."""
    number = float(getattr(op, attribute))
    known = Interval.fill(number, number, (), torch.float32)
    return OperandGuard(
        site=site,
        index=_NO_OPERAND,
        attribute=attribute,
        dtype=torch.float32,
        bounds=known,
        lower=0.0,
        strict=True,
    )


def _keep_out(guard: OperandGuard, invalid: InvalidRange, x: Interval) -> OperandGuard:
    """Return a guard that keeps a range out, too."""
    low, high = x.extremes
    if math.isinf(invalid.lower) and invalid.lower < 0:
        strict = guard.strict or guard.gap or not invalid.is_open
        return replace(guard, lower=invalid.upper, strict=strict, gap=False)
    if math.isinf(invalid.upper):
        return replace(guard, upper=invalid.lower, strict=guard.strict or not invalid.is_open)
    if low >= 0 or guard.lower == 0:
        return replace(guard, lower=0.0, strict=True)
    if high <= 0:
        return replace(guard, upper=0.0, strict=True)
    return replace(guard, gap=True)


def limiting_guards(
    site: GuardSite, op: Operation, bounds: Mapping[str, Interval], *, is_clip: bool
) -> Iterator[OperandGuard]:
    """Yield guards on all floating operands that are not constant, for conditions that are about no single operand.

    They keep infinities out, and with more strength large numbers.
    """
    for name, value in spec_of(op).name_values(spec_of(op).operands_of(op)).items():
        index = _index(op, name)
        x = bounds.get(name)
        if index is None or x is None or x.dtype not in _FLOATS or isinstance(value, np.ndarray):
            continue
        yield OperandGuard(
            site=site, index=index, dtype=x.dtype, bounds=x, lower=-math.inf, upper=math.inf, is_clip=is_clip
        )


def scaling_guards(site: GuardSite, op: Operation, bounds: Mapping[str, Interval]) -> Iterator[OperandGuard]:
    """Yield the guard that keeps a sum finite without a limit to its terms, where an operator is a sum of one operand.

    Powers of two change no digit, so that a sum that was finite stays what it was.
    """
    linear = spec_of(op).linear
    read = [name for name in spec_of(op).name_values(spec_of(op).operands_of(op)) if name in bounds]
    floating = [name for name in read if bounds[name].dtype in _FLOATS]
    if not isinstance(linear, Affine) or len(floating) != 1 or "output" not in bounds:
        return
    (name,) = floating
    x, index = bounds[name], _index(op, name)
    if index is None or x.size <= bounds["output"].size:
        return
    terms = linear.terms(op, [bounds[other].shape for other in read], bounds["output"].shape)
    yield OperandGuard(site=site, index=index, dtype=x.dtype, bounds=x, halvings=math.ceil(math.log2(terms)) + 1)


def _ranges(
    op: Operation, conditions: Sequence[Constraint], bounds: Mapping[str, Interval]
) -> Mapping[str, list[InvalidRange]]:
    """Return the invalid ranges of operands that conditions state, by operand."""
    found: dict[str, list[InvalidRange]] = {}
    for condition in conditions:
        for invalid in condition.ranges_beside(op, bounds):
            found.setdefault(invalid.operand, []).append(invalid)
    return found


def _index(op: Operation, name: str) -> int | None:
    """Return the position of an operand among the inputs of an ONNX node."""
    names = list(spec_of(op).name_values(spec_of(op).operands_of(op)))
    return names.index(name) if name in names else None
