"""Integers of 64 bits on ONNX Runtime, whose kernels do not treat all of them correctly.

Some kernels compute them in float64, which rounds those of more than 53 bits.  Its maxima, minima and signs compare
signed ones half by half on processors for which it is built without a 64-bit comparison: of two numbers with equal
upper halves, the smaller is the one whose lower half, read as a signed number, is smaller.  So 2^31 counts as less than
0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations

import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.arithmetic.pairs import remainder, sign
from ranum_falsify.domain.rules.cast import convert
from ranum_falsify.domain.rules.reduction import Bound
from ranum_falsify.domain.rules.shape import collapse
from ranum_falsify.domain.rules.support.building import infinity_aware, result_shape
from ranum_falsify.domain.site import IntervalRule, Site

_WORDS = (torch.int64, torch.uint64)
_EXACT = 2**53
"""Integers up to this size are exact in float64."""


def _is_unrounded(site: Site, *operands: Interval) -> bool:
    """Tell whether integers are exact in float64, or no kernel computes them there."""
    if "onnxruntime" not in site.runtimes or operands[0].dtype not in _WORDS:
        return True
    return all(-_EXACT <= end <= _EXACT for x in operands if x.size for end in x.extremes)


def rounded_words(rule: IntervalRule) -> IntervalRule:
    """Return the rule of an operator that ONNX Runtime computes in float64, used if that changes nothing.

    Args:
        rule: What it does; the first operand is the data.
    """

    def widened(site: Site, x: Interval, *rest: object) -> Interval | tuple[Interval, ...]:
        y = rule(site, x, *rest)
        if not isinstance(y, Interval) or y.shape != x.shape or _is_unrounded(site, x):
            return y
        return y.hull(convert(convert(x, torch.float64), x.dtype))

    return infinity_aware(widened)


def _find_misordered(site: Site, *operands: Interval) -> Tensor | None:
    """Return where the order of two operands may be mistaken; None if kernels compare them as they are."""
    if "onnxruntime" not in site.runtimes or operands[0].dtype is not torch.int64:
        return None
    wrong = [_may_swap(a, b) for a, b in combinations(operands, 2)]
    found = reduce(torch.logical_or, wrong) if wrong else None
    return found if found is not None and bool(found.any()) else None


def _may_swap(a: Interval, b: Interval) -> Tensor:
    share_word = (a.lower >> 32 <= b.upper >> 32) & (b.lower >> 32 <= a.upper >> 32)
    return share_word & _holds_halves(torch.minimum(a.lower, b.lower), torch.maximum(a.upper, b.upper))


def _holds_halves(low: Tensor, high: Tensor) -> Tensor:
    """Return where bounds hold numbers with equal upper halves and lower halves that differ in the highest bit."""
    first, last = low >> 31, high >> 31
    return (last > first + 1) | ((last > first) & (first % 2 == 0))


def between_operands(rule: Callable[..., Interval]) -> Callable[..., Interval]:
    """Return the rule of a choice among operands (`Max`), also as made by kernels that compare half by half."""

    def widened(site: Site, *data: Interval) -> Interval:
        y = rule(site, *data)
        wrong = _find_misordered(site, *data)
        return y if wrong is None else _hull_where(wrong, y, reduce(Interval.hull, data))

    return infinity_aware(widened)


def between_elements(bound: Bound) -> Bound:
    """Return the bounds of a choice among elements (`ReduceMax`), as :func:`between_operands` does of operands."""

    def widened(site: Site, x: Interval, dims: Sequence[int]) -> Interval:
        y = bound(site, x, list(dims))
        if "onnxruntime" not in site.runtimes or x.dtype is not torch.int64 or not x.size:
            return y
        every = collapse(x, *dims)
        wrong = _holds_halves(every.lower, every.upper)
        return _hull_where(wrong, y, replace(every, shape=y.shape)) if bool(wrong.any()) else y

    return widened


def _hull_where(wrong: Tensor, y: Interval, every: Interval) -> Interval:
    return Interval.of(torch.where(wrong, every.lower, y.lower), torch.where(wrong, every.upper, y.upper), y.shape)


@infinity_aware
def sign_of_words(site: Site, x: Interval) -> Interval:
    """Bound the sign of x, which kernels determine by comparing it with 0."""
    y = sign(site, x)
    wrong = _find_misordered(site, x, Interval.fill(0, 0, (), x.dtype))
    return y if wrong is None else replace(y, lower=torch.where(wrong, -1, y.lower))


def remainder_of_words(site: Site, a: Interval, b: Interval) -> Interval:
    """Bound the remainder of a division; with the dividend's sign, it is computed in float64."""
    if site.op.fmod and not _is_unrounded(site, a, b):
        return Interval.top(result_shape(a, b), a.dtype)
    return remainder(site, a, b)
