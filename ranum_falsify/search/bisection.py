"""Exact zeros: bisection in floating point between points of opposite sign, then steps of one ulp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.search.batching import BatchedModel
from ranum_falsify.search.converter import Probe
from ranum_falsify.search.memory import chunks
from ranum_falsify.search.probes import crossing_of, probe_of
from ranum_falsify.search.search import Region, SearchContext

__all__ = ["bisect"]

_HALVINGS = 70
"""Enough to bring the ends of any segment to neighbouring floats (52 bits and some exponents)."""

_ULP_ROUNDS = 40
"""Rounds of random steps of one ulp around the crossing."""

Visit = Callable[[Tensor, Sequence[Tensor]], bool]


def bisect(context: SearchContext, target: Target, region: Region, starts: Sequence[Tensor], visit: Visit) -> None:
    """Look for a point at which the target's crossing is exactly zero.

    Args:
        context: The search.
        target: A target whose constraint has a crossing; others are left alone.
        region: Where to stay.
        starts: Points to pair up, `(batch, *shape)` per input.
        visit: Sees margins `(batch, 1)` and inputs after each evaluation; returns whether to stop.
    """
    wanted = context.problem.goals[target.goal].call
    names = [v.name for v in context.problem.inputs]
    variables = [names.index(name) for name in wanted.variables if name is not None]
    if len(variables) < len(wanted.variables):
        return
    batched = BatchedModel(context.model_of(wanted))
    read = batched.model.graph.input_names
    variables = [v for v, name in zip(variables, wanted.graph.input_names, strict=True) if name in read]
    observe = _Observer(batched, target, variables, context.sample_limit)
    first = observe(starts)
    pairs = None if first is None else _pairs(first, context)
    if pairs is None:
        return
    left, right, element = pairs
    below = [x[left] for x in starts]
    above = [x[right] for x in starts]
    for _ in range(_HALVINGS):
        if context.budget.expired:
            return
        middle = [_find_middle(a, b, context) for a, b in zip(below, above, strict=True)]
        seen = observe(middle)
        if seen is None or visit(seen.margin, middle):
            return
        same = seen.crossing.gather(1, element)[:, 0] < 0
        below = [_choose(same, m, a) for m, a in zip(middle, below, strict=True)]
        above = [_choose(same, b, m) for m, b in zip(middle, above, strict=True)]
    _shake(context, observe, region, below, element, visit)


@dataclass(frozen=True)
class _Observation:
    """Margins `(batch, 1)` and crossing `(batch, elements)`; no elements where the border is not a sign change."""

    margin: Tensor
    crossing: Tensor


class _Observer:
    """Margin and crossing of one target on a batch; None where samples differ in the number of elements."""

    def __init__(self, batched: BatchedModel, target: Target, variables: Sequence[int], limit: int) -> None:
        self._batched = batched
        self._probes = {id(target.op): _combine(probe_of([target]), crossing_of(target))}
        self._variables = variables
        self._limit = limit

    def __call__(self, inputs: Sequence[Tensor]) -> _Observation | None:
        arguments = [inputs[position] for position in self._variables]
        with torch.no_grad():
            parts = [self._batched.observe(chunk, self._probes) for chunk in chunks(arguments, self._limit)]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or len({part.shape[1] for part in known}) > 1:
            return None
        seen = torch.cat(known)
        return _Observation(seen[:, :1], seen[:, 1:])


def _combine(margin: Probe, crossing: Probe) -> Probe:
    """Return a probe that returns the values of two, so that one run of the network serves both."""

    def probe(op: Operation, operands: Sequence[Any], outputs: Sequence[Tensor]) -> Tensor:
        return torch.cat([margin(op, operands, outputs), crossing(op, operands, outputs).double()])

    return probe


def _pairs(seen: _Observation, context: SearchContext) -> tuple[Tensor, Tensor, Tensor] | None:
    """Pair starts on both sides of zero: indices below and above, and the element that crosses `(pairs, 1)`."""
    positive, negative = seen.crossing > 0, seen.crossing < 0
    crossing = (positive.any(0) & negative.any(0)).nonzero()[:, 0]
    if len(crossing) == 0:
        return None
    count = len(seen.crossing)
    chosen = crossing[torch.randint(len(crossing), (count,), generator=context.generator).to(crossing.device)]
    noise = torch.rand((2, count, count), generator=context.generator).to(crossing.device)
    left = (noise[0] * negative[:, chosen].T).argmax(1)
    right = (noise[1] * positive[:, chosen].T).argmax(1)
    return left, right, chosen[:, None]


def _find_middle(a: Tensor, b: Tensor, context: SearchContext) -> Tensor:
    """Return the middle of two points; for integers, take each element from one of them."""
    if not a.is_floating_point():
        draw = torch.rand(a.shape, generator=context.generator).to(a.device)
        return torch.where(draw < 0.5, a, b)
    return (a.double() / 2 + b.double() / 2).to(a.dtype)


def _choose(mask: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(mask.reshape(-1, *([1] * (yes.dim() - 1))), yes, no)


def _shake(
    context: SearchContext, observe: _Observer, region: Region, points: Sequence[Tensor], element: Tensor, visit: Visit
) -> None:
    """Move few elements by one ulp at random; keep what brings the crossing nearer to zero."""
    best = list(points)
    first = observe(best)
    if first is None:
        return
    size = first.crossing.gather(1, element)[:, 0].abs()
    for _ in range(_ULP_ROUNDS):
        if context.budget.expired:
            return
        moved = [_ulp_steps(x, context).to(x.device) for x in best]
        moved = [box.project(x) for x, box in zip(moved, region.device_boxes, strict=True)]
        seen = observe(moved)
        if seen is None or visit(seen.margin, moved):
            return
        distance = seen.crossing.gather(1, element)[:, 0].abs()
        better = distance <= size
        best = [_choose(better, new, old) for new, old in zip(moved, best, strict=True)]
        size = torch.where(better, distance, size)


def _ulp_steps(x: Tensor, context: SearchContext) -> Tensor:
    if not x.is_floating_point():
        return x
    draw = torch.rand(x.shape, generator=context.generator).to(x.device)
    share = min(1.0, 4.0 / max(1, x[0].numel()))
    away = torch.where(draw < share / 2, -torch.inf, torch.inf).to(x.dtype)
    return torch.where(draw < share, torch.nextafter(x, away), x)
