"""Control flow: branches and loops that inputs steer.  The reader inlines an `If` whose condition no input reaches."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect
from dnnv.nn.utils import TensorDetails
from torch import Tensor

from ranum_falsify.config import Runtime
from ranum_falsify.domain import Interval, IntervalAnalysis, Site, Visited
from ranum_falsify.domain.fixed_point import States, find_invariant
from ranum_falsify.domain.rules.support.building import infinity_aware, shape_aware
from ranum_falsify.network import Graph
from ranum_falsify.network.blackbox import bound_black_box
from ranum_falsify.network.subgraphs import hands_on_condition
from ranum_falsify.network.tensors import torch_dtype
from ranum_falsify.network.trace import UnfitBranch
from ranum_falsify.network.unrolling import find_counting
from ranum_falsify.operators.relations.common_subexpressions import narrow_repeated
from ranum_falsify.operators.relations.path_conditions import narrow_read
from ranum_falsify.operators.support.deciding import is_proved
from ranum_falsify.operators.support.families import plain

_KEPT = 64
"""How many analyses of subgraphs are kept for the next box."""


def _if(op: Operation, cond: np.ndarray, *captured: Tensor) -> tuple[Tensor, ...]:
    branch = op.then_branch if bool(np.asarray(cond).reshape(-1)[0]) else op.else_branch
    results: tuple[Tensor, ...] = branch.evaluate(captured)
    return results


def _if_bounds(site: Site, cond: Interval | np.ndarray, *captured: Interval) -> tuple[Interval, ...] | None:
    known = cond if isinstance(cond, Interval) else Interval.point(cond)
    found = [
        _branch_bounds(site, field, captured, truth=truth)
        for truth, field, chosen in ((True, "then_branch", known.upper), (False, "else_branch", ~known.lower))
        if bool(chosen.any())
    ]
    first, last = found[0], found[-1]
    if first is None or last is None or [y.shape for y in first] != [y.shape for y in last]:
        return None
    joined = (a if first is last else a.hull(b) for a, b in zip(first, last, strict=True))
    flags = [(a.nan or b.nan, a.overflows or b.overflows) for a, b in zip(first, last, strict=True)]
    return tuple(replace(y, nan=nan, overflows=over) for y, (nan, over) in zip(joined, flags, strict=True))


def _branch_bounds(site: Site, field: str, captured: Sequence[Interval], *, truth: bool) -> tuple[Interval, ...] | None:
    """Return the bounds of a branch's outputs where it is chosen, None where a shape depends on the input.

    Where an operator in it is not proved valid, nothing is known of what follows, not even whether the fault shows
    outside.
    """
    branch: Graph | UnfitBranch = getattr(site.op, field)
    if isinstance(branch, UnfitBranch):
        return None
    proved = set[int]()

    def observe(visited: Visited) -> None:
        if _is_sound(analysis, visited):
            proved.add(id(visited.op))

    pairs = zip(site.op.captured, captured, strict=True)
    narrowed = [narrow_read(site, site.op.cond, read, bounds, truth=truth) for read, bounds in pairs]
    analysis = analysis_of(branch, site.runtimes)
    given = narrow_repeated(site, site.op.cond, analysis, site.op.captured, truth=truth)
    outputs = analysis.run(narrowed, observe, given)
    report_open(site, analysis, proved, f"{site.op.name}/{field}/")
    if any(y is None for y in outputs):
        return None
    bounds = tuple(y for y in outputs if y is not None)
    if all(id(op) in proved for op in branch.nodes):
        return bounds
    return tuple(replace(Interval.top(y.shape, y.dtype), nan=True, overflows=True) for y in bounds)


def _is_sound(analysis: IntervalAnalysis, visited: Visited) -> bool:
    return not any(y.nan or y.overflows for y in visited.outputs) and is_proved(analysis, visited)


def report_open(site: Site, analysis: IntervalAnalysis, proved: Collection[int], path: str) -> None:
    """Note which nodes of a subgraph that was analysed are not proved, or those in subgraphs of theirs.

    The proved ones are given by `id`; the path comes before the names of the others.
    """
    for op in analysis.graph.nodes:
        for name in () if id(op) in proved else analysis.open_inside.get(op.name, (op.name,)):
            site.leave_open(f"{path}{name}")


def analysis_of(subgraph: Graph, runtimes: tuple[Runtime, ...], *, keep: bool = False) -> IntervalAnalysis:
    """Return this thread's analysis of a branch or a body; the arguments are those of :class:`IntervalAnalysis`."""
    return _analysis_in(threading.get_ident(), subgraph, runtimes, keep)


@lru_cache(maxsize=_KEPT)
def _analysis_in(thread: int, subgraph: Graph, runtimes: tuple[Runtime, ...], keep: bool) -> IntervalAnalysis:
    # Threads that share a model would write into each other's bounds.
    return IntervalAnalysis(subgraph, runtimes=runtimes, keep=keep, inner=True)


@plain(
    torch=_if,
    interval=infinity_aware(shape_aware(_if_bounds)),
    operands=("cond", "captured"),
    variadic=True,
    static=("cond",),
    dynamic_shape=True,
)
class If(Operation):
    """https://onnx.ai/onnx/operators/onnx__If.html.

    Attributes:
        then_branch: Graph over the captured tensors, evaluated where the condition is true.
        else_branch: The same where it is false.
    """


@infinity_aware
@shape_aware
def bound_loop(site: Site, *operands: Interval | None) -> tuple[Interval, ...] | None:
    """Bound the states after any number of iterations that is possible.

    Where an operator in the body is not proved valid, nothing is known of what follows.  Rows that are collected have
    bounds where their number is known.
    """
    m, cond, *read = operands
    kept = len(site.op.proto.input) - 2
    fewest, most = _count(m)
    may_run, must_run = _truth(cond)
    collected = [None if details is None else tuple(details.shape) for details in site.details[kept:]]
    number = most if fewest == most and must_run and hands_on_condition(site.op.body) else None
    if any(x is None for x in read) or any(shape is not None and shape[:1] != (number,) for shape in collected):
        return None
    initial, captured = tuple(x for x in read[:kept] if x is not None), [x for x in read[kept:] if x is not None]
    if most == 0 or not may_run:
        nothing = (((0,), torch.float32) if one is None else _place(one) for one in site.details[kept:])
        return (*initial, *(Interval.fill(0, 0, *place) for place in nothing))
    body = _Body(site, initial, captured, most)
    states = body.find_states()
    written = None if states is None else body.prove(states)
    if written is None:
        every = [(y.shape, y.dtype) for y in initial]
        every += [((1,), torch.float32) if one is None else _place(one) for one in site.details[kept:]]
        return tuple(replace(Interval.top(*one), nan=True, overflows=True) for one in every)
    after, rows = written[:kept], written[kept:]
    if fewest == 0 or not must_run:
        after = tuple(x.hull(y) for x, y in zip(initial, after, strict=True))
    return (*after, *(Interval.of(y.lower, y.upper, (number or 0, *y.shape)) for y in rows))


def bound_body_inputs(site: Site, *operands: Interval | None) -> tuple[Interval, ...] | None:
    """Bound what the body reads in any iteration, by the order of its inputs; None if it cannot be bounded, or run."""
    m, _, *read = operands
    known, most = tuple(x for x in read if x is not None), _count(m)[1]
    if len(known) < len(read) or most == 0:
        return None
    kept = len(site.op.proto.input) - 2
    body = _Body(site, known[:kept], known[kept:], most)
    states = body.find_states()
    return None if states is None else body.list_inputs(states)


def _place(details: TensorDetails) -> tuple[tuple[int, ...], torch.dtype]:
    return tuple(details.shape), torch_dtype(details.dtype)


def _count(m: Interval | None) -> tuple[int, int | None]:
    """Return the least and the greatest number of iterations that the trip count allows; None if it has no limit."""
    if m is None:
        return 1, None
    low, high = m.extremes
    return max(0, int(low)), max(0, int(high))


def _truth(cond: Interval | None) -> tuple[bool, bool]:
    """Return whether a condition may be true, and whether it must be."""
    return (True, True) if cond is None else (bool(cond.upper.any()), bool(cond.lower.all()))


class _Body:
    """The body of a loop, over bounds of its states, for a number of iterations at most."""

    def __init__(self, site: Site, initial: Sequence[Interval], captured: Sequence[Interval], most: int | None) -> None:
        self._site, self._graph = site, site.op.body
        self._analysis: IntervalAnalysis = analysis_of(self._graph, site.runtimes, keep=True)
        limit = torch.iinfo(torch.int64).max if most is None else most
        number = Interval.fill(0, limit - 1, (), torch.int64)
        self._steering = [number, Interval.fill(True, True, (), torch.bool)]
        self._initial, self._captured, self._most = initial, captured, most
        self._is_free = site.op.x[1] is None
        self._counted = Interval.fill(0, limit, (), torch.int64)
        self._counting = find_counting(next(a.g for a in site.op.proto.attribute if a.name == "body"))
        self._kept = slice(1, 1 + len(initial))
        self._shapes = [x.shape for x in initial]

    def find_states(self) -> States | None:
        """Return bounds of the states in which any iteration may begin; None if none are found."""
        condition, fields = self._site.op.x[1], self._site.op.x[2:]
        entered = [
            narrow_read(self._site, condition, f, x, truth=True) for f, x in zip(fields, self._initial, strict=False)
        ]
        return find_invariant(self.step, tuple(entered), self._most)

    def list_inputs(self, states: States) -> tuple[Interval, ...]:
        """Return bounds of all inputs of the body where its states have these."""
        return (*self._steering, *states, *self._captured)

    def step(self, states: States) -> States | None:
        """Return bounds of the states in which an iteration after this one begins."""
        after = self._run(states, None)
        if after is None:
            return None
        ends, *written = self._graph.output_operations[: self._kept.stop]
        # Without a condition to begin with, not every runtime heeds the one that the body computes.
        if self._is_free or isinstance(ends, (Input, OutputSelect)):
            return self._count_on(after)
        return self._count_on(
            tuple(
                self._analysis.part_of(ends, partial(_narrow, ends, op, bounds))
                for op, bounds in zip(written, after, strict=True)
            )
        )

    def prove(self, states: States) -> States | None:
        """Return bounds of the states that an iteration leaves, and of its rows; None if an operator is not proved."""
        proved = set[int]()
        after = self._run(states, proved, rows=True)
        report_open(self._site, self._analysis, proved, "")
        if after is None or not all(id(op) in proved for op in self._graph.nodes):
            return None
        return self._count_on(after)

    def _count_on(self, written: States) -> States:
        """Return bounds of what the body writes that hold after ONNX Runtime counts on in it, too."""
        return tuple(
            y.hull(self._counted) if position in self._counting else y for position, y in enumerate(written, 1)
        )

    def _run(self, states: States, proved: set[int] | None, *, rows: bool = False) -> States | None:
        def observe(visited: Visited) -> None:
            if proved is not None and _is_sound(self._analysis, visited):
                proved.add(id(visited.op))

        found = self._analysis.run(self.list_inputs(states), observe)
        kept = found[self._kept]
        if any(y is None or y.shape != shape for y, shape in zip(kept, self._shapes, strict=True)):
            return None
        wanted = found[1:] if rows else kept
        return None if None in wanted else tuple(y for y in wanted if y is not None)


def _narrow(condition: Operation, op: Operation, bounds: Interval, site: Site, *operands: object) -> Interval:
    return narrow_read(site, condition, op, bounds, truth=True)


bound_black_box("Loop", bound_loop, inputs=bound_body_inputs)
