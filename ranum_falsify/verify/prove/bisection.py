"""Cutting a box into smaller ones until each is decided: for questions that no linear functional decides at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ranum_falsify.domain import Interval
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.verify.prove.applications import Box

Cut = tuple[str, int, float]
"""A variable, the position of an element of it, and the value at which it is cut."""

_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
"""Integer types with which torch computes."""

_MOST_ELEMENTS = 64
"""Above this number of elements with a width, cutting one after another leads nowhere."""


def is_narrow(box: Box) -> bool:
    """Tell whether a box has so few elements with a width that cutting it may help."""
    wide = [x for x in box.values() if not x.is_point]
    known = all(x.is_floating or x.dtype in _INTEGERS for x in wide)
    return known and 0 < sum(int((x.expand()[0] != x.expand()[1]).sum()) for x in wide) <= _MOST_ELEMENTS


def cut(
    box: Box,
    decide: Callable[[Box], bool],
    *,
    deadline: Deadline,
    record: Callable[[Cut | None], None] = lambda _: None,
) -> bool:
    """Tell whether, before a deadline, every part of a box is decided.

    `record` is told of each part how it is cut, or None where it is decided; of the upper half first.
    """
    whole = {name: _Part(*(bound.clone() for bound in x.expand())) for name, x in box.items()}
    widths = {name: part.width for name, part in whole.items()}
    waiting = [whole]
    while waiting:
        if deadline.has_passed:
            return False
        part = waiting.pop()
        if decide({name: Interval(side.low, side.high, tuple(side.low.shape)) for name, side in part.items()}):
            record(None)
            continue
        at = _place(part, widths)
        if at is None:
            return False
        record(at)
        waiting += _halves(part, at)
    return True


class _Part:
    """Bounds of one variable."""

    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = low, high

    @property
    def width(self) -> Tensor:
        return self.high.double() - self.low.double()


def _place(part: Mapping[str, _Part], widths: Mapping[str, Tensor]) -> Cut | None:
    """Return the middle of the element that has been cut least; None if no element can be cut."""
    shares = {name: (side.width / widths[name]).nan_to_num(0.0).reshape(-1) for name, side in part.items()}
    name = max(shares, key=lambda key: float(shares[key].max()) if shares[key].numel() else 0.0)
    if not shares[name].numel() or float(shares[name].max()) <= 0:
        return None
    element = int(shares[name].argmax())
    side = part[name]
    low, high = side.low.reshape(-1)[element], side.high.reshape(-1)[element]
    floating = side.low.is_floating_point()
    # The difference of two integers may not fit their type; their common and differing bits do.
    middle = low / 2 + high / 2 if floating else (low & high) + ((low ^ high) >> 1)
    if floating and not bool((low < middle) & (middle < high)):
        return None
    return name, element, middle.item()


def _halves(part: Mapping[str, _Part], at: Cut) -> list[dict[str, _Part]]:
    name, element, middle = at
    side = part[name]
    above = middle if side.low.is_floating_point() else middle + 1
    return [
        {**part, name: _Part(side.low, _set_element(side.high, element, middle))},
        {**part, name: _Part(_set_element(side.low, element, above), side.high)},
    ]


def _set_element(x: Tensor, element: int, value: float) -> Tensor:
    changed = x.clone()
    changed.reshape(-1)[element] = value
    return changed
