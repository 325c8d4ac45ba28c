"""Interval analysis of many boxes that differ in a few tensors: only what lies after these is analysed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dnnv.nn import Operation
from dnnv.nn.operations import Input

from ranum_falsify.config import Runtime
from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.order import greatest, least
from ranum_falsify.domain.rounding import flush
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.operators.support.conditions import name_bounds
from ranum_falsify.validity import Constraint


class PartialAnalysis(IntervalAnalysis):
    """Tells of one box after another whether operators are valid; it remembers the bounds of the box before."""

    def __init__(self, graph: Graph, runtimes: Sequence[Runtime]) -> None:
        super().__init__(graph, runtimes=runtimes, keep=True)
        self._sources: dict[str, Operation] = {op.name: op for op in graph.inputs}
        self._sources |= {name: op for op in graph.order for name in _tensors(op) if name not in self._sources}
        self._affected = _list_affected(graph)
        self._conditions: Mapping[int, tuple[Constraint, ...]] = {}
        self._limits: dict[int, Interval] = {}
        self._known: dict[str, Interval] = {}
        self._stale = set[int]()
        self._failing = set[int]()
        self._needed: list[int] = []
        self._is_open = False

    def check_only(self, conditions: Mapping[int, tuple[Constraint, ...]]) -> None:
        """Set what must hold.

        Args:
            conditions: By `id` of the operators.  Nothing is analysed but what these depend on.
        """
        self._conditions = conditions
        needed = set(conditions)
        for op in reversed(self.graph.order):
            if id(op) in needed:
                needed.update(self.graph.reads[id(op)])
        self._needed = [i for i, op in enumerate(self.graph.order) if id(op) in needed and not isinstance(op, Input)]
        self._stale = set(self._needed)
        self._known.clear()

    def holds(self, box: Mapping[str, Interval]) -> bool:
        """Tell whether all conditions hold on a box.

        Args:
            box: Bounds of every input; of other tensors, to which they are clipped.
        """
        self._move_to(box)
        order = self.graph.order
        if not self._failing <= self._stale:
            return False
        for position in self._needed:
            if position not in self._stale:
                continue
            op = order[position]
            self._finite.pop(id(op), None)
            self._is_open = bool(self._conditions.get(id(op)))  # unless it can be analysed
            self._advance(op, self._judge)
            self._clip(op)
            self._stale.discard(position)
            self._failing.discard(position)
            if self._is_open:
                self._failing.add(position)
                return False
        return True

    def _move_to(self, box: Mapping[str, Interval]) -> None:
        """Replace the bounds of tensors, after which those of all that depends on them are stale."""
        for name in {*box, *self._known}:
            bounds, op = box.get(name), self._sources.get(name)
            if op is None or self._known.get(name) is bounds:
                continue
            if bounds is None:
                del self._known[name], self._limits[id(op)]
            else:
                self._known[name] = bounds
                if isinstance(op, Input):
                    self._values[id(op)] = (flush(bounds),)
                else:
                    self._limits[id(op)] = bounds
            self._stale.update(self._affected[id(op)])

    def _judge(self, visited: Visited) -> None:
        if self._is_open:
            bounds = name_bounds(spec_of(visited.op), visited)
            self._is_open = not all(c.holds(visited.op, bounds) for c in self._conditions[id(visited.op)])

    def _clip(self, op: Operation) -> None:
        limits, outputs = self._limits.get(id(op)), self._values[id(op)]
        if limits is None or outputs is None:
            return
        low, high = (least(greatest(end, limits.lower), limits.upper) for end in (outputs[0].lower, outputs[0].upper))
        self._values[id(op)] = (replace(Interval.of(low, high, outputs[0].shape), gap=0.0),)


def _tensors(op: Operation) -> tuple[str, ...]:
    """Return the name of the tensor that an operation with one output computes."""
    names = [name for name in getattr(op, "output_names", ()) if name]
    return tuple(names) if len(names) == 1 else ()


def _list_affected(graph: Graph) -> dict[int, list[int]]:
    """Return, by `id` of each operation, the positions of itself and of all that depends on it, in order."""
    affected: dict[int, list[int]] = {id(op): [] for op in graph.order}
    before: dict[int, set[int]] = {}
    for position, op in enumerate(graph.order):
        before[id(op)] = {id(op)}.union(*(before[operand] for operand in graph.reads[id(op)]))
        if not isinstance(op, Input):
            for key in before[id(op)]:
                affected[key].append(position)
    return affected
