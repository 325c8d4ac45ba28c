"""Spans: boxes around a trigger in which, as the interval domain proves, every point triggers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.config import RUNTIMES, Runtime
from ranum_falsify.domain import Interval
from ranum_falsify.domain.error_bounds import tiny
from ranum_falsify.network import Graph
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.process.deadline import Deadline, OutOfTime
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import InputVariable
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.validity import Constraint, GreaterThan
from ranum_falsify.verify.prove.failing import AnalysisUpTo, surely_fails
from ranum_falsify.witness.unit_test import Span, Trigger

_RADII = tuple(2.0**-exponent for exponent in range(22, 0, -2))
"""Reach of spans to each side, as shares of the box's width; the narrowest is about one ulp of float32."""

_SPECIAL = 1e-6
"""Values nearer to 0 than this share of their width were put there on purpose; if need be, they stay."""


@dataclass(frozen=True)
class _Side:
    """An input of the network: its box, the trigger's value, and which elements may move."""

    lower: Tensor
    upper: Tensor
    value: Tensor
    moves: Tensor

    def box(self, radius: float) -> Interval:
        """Return the part of the box within a share of its width around the value."""
        if not radius or not bool(self.moves.any()):
            return Interval.of(self.value, self.value)
        reach = torch.where(self.moves, (self.upper - self.lower) * radius, 0.0).to(self.value.dtype)
        lower = torch.maximum(self.lower, self.value - reach)
        upper = torch.minimum(self.upper, self.value + reach)
        return Interval.of(torch.minimum(lower, self.value), torch.maximum(upper, self.value))


class SpanProver:
    """Proves spans around triggers of one application; analyses are kept as long as it lives."""

    def __init__(self, call: NetworkCall) -> None:
        self._call = call
        self._analyses: dict[tuple[int, tuple[Runtime, ...]], AnalysisUpTo] = {}

    def prove(
        self, trigger: Trigger, targets: Sequence[Target], variables: Sequence[InputVariable], *, deadline: Deadline
    ) -> Span | None:
        """Return a span around a trigger, as wide as bisection can show.

        Args:
            trigger: Inputs that make the operator invalid.
            targets: The operator's conditions.
            variables: The property's box.
            deadline: When to stop; a span found by then counts.

        Returns:
            None if none is proved, because an earlier operator is invalid too or arguments are expressions.
        """
        if not trigger.alone or None in self._call.variables:
            return None
        sides = self._sides(trigger, {v.name: v for v in variables})
        conditions = _conditions(trigger, targets)
        tick = deadline.check
        for runtimes in dict.fromkeys((RUNTIMES, RUNTIMES[:1])):
            analysis = self._analysis(targets[0].op, runtimes)

            def fails(moved: Sequence[_Side], radius: float, analysis: AnalysisUpTo = analysis) -> bool:
                try:
                    tick()
                    boxes = [side.box(radius) for side in moved]
                    return surely_fails(analysis, boxes, conditions, tick)
                except OutOfTime:
                    return False

            found = _find_widest(sides, fails)
            if found is not None:
                return _span(self._call.graph, *found, runtimes)
        return None

    def _analysis(self, op: Operation, runtimes: tuple[Runtime, ...]) -> AnalysisUpTo:
        key = id(op), runtimes
        if key not in self._analyses:
            self._analyses[key] = AnalysisUpTo(self._call.graph, op, runtimes=runtimes)
        return self._analyses[key]

    def _sides(self, trigger: Trigger, variables: Mapping[str, InputVariable]) -> list[_Side]:
        sides = []
        for name, variable in zip(self._call.graph.input_names, self._call.variables, strict=True):
            box = variables[str(variable)]
            value = to_torch(trigger.feeds[name])
            lower, upper = to_torch(box.lower), to_torch(box.upper)
            moves = (lower < upper) if value.is_floating_point() else torch.zeros_like(value, dtype=torch.bool)
            sides.append(_Side(lower, upper, value, moves))
        return sides


def _conditions(trigger: Trigger, targets: Sequence[Target]) -> list[Constraint]:
    conditions = [t.constraint for t in targets if t.is_gradient == (trigger.kind == "gradient")]
    if not trigger.flushed:
        return conditions
    # Denormal numbers are read as 0.
    return [
        replace(c, bound=lambda dtype: tiny(dtype) * (1 - torch.finfo(dtype).eps)) if isinstance(c, GreaterThan) else c
        for c in conditions
    ]


Fails = Callable[[Sequence[_Side], float], bool]


def _find_widest(sides: Sequence[_Side], fails: Fails) -> tuple[list[_Side], float] | None:
    """Return sides and the greatest radius at which every point fails; if need be, fewer elements move."""
    for moved in (list(sides), [_exclude_special(side) for side in sides]):
        radius = _radius(moved, fails)
        if radius is not None:
            return moved, radius
    fixed = [replace(side, moves=torch.zeros_like(side.moves)) for side in sides]
    if not fails(fixed, 0.0):
        return None
    free = [
        next(
            (m for m in (side, _exclude_special(side)) if fails([*fixed[:i], m, *fixed[i + 1 :]], _RADII[0])), fixed[i]
        )
        for i, side in enumerate(sides)
    ]
    radius = _radius(free, fails)
    return (fixed, 0.0) if radius is None else (free, radius)


def _radius(sides: Sequence[_Side], fails: Fails) -> float | None:
    """Return the greatest radius that fails, found by bisection; None if not even the narrowest does."""
    if not any(bool(side.moves.any()) for side in sides):
        return None
    # Bisection starts in the middle, so that time running out does not leave an extreme.
    count = bisect_left(_RADII, True, key=lambda radius: not fails(sides, radius))
    return _RADII[count - 1] if count else None


def _exclude_special(side: _Side) -> _Side:
    if not bool(side.moves.any()):
        return side  # PyTorch subtracts no booleans, which never move
    width = (side.upper - side.lower).abs()
    return replace(side, moves=side.moves & (side.value.abs() > width * _SPECIAL))


def _span(graph: Graph, sides: Sequence[_Side], radius: float, runtimes: tuple[Runtime, ...]) -> Span:
    boxes = [side.box(radius) for side in sides]
    ends = [{n: to_numpy(e) for n, e in zip(graph.input_names, bounds, strict=True)} for bounds in _ends(boxes)]
    ranging = sum(int((side.lower != side.upper).sum()) for side in sides)
    moving = sum(int(side.moves.sum()) for side in sides)
    return Span(
        lower=ends[0],
        upper=ends[1],
        radius=radius,
        fixed=1 - moving / ranging if ranging else 0.0,
        runtimes=runtimes,
    )


def _ends(boxes: Sequence[Interval]) -> tuple[list[Tensor], list[Tensor]]:
    full = [box.expand() for box in boxes]
    return [low for low, _ in full], [high for _, high in full]
