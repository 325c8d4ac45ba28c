"""Control flow.  The reader inlines an `If` whose condition no input reaches; this row is for the others."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.config import Runtime
from ranum_falsify.domain import Interval, IntervalAnalysis, Site, Visited
from ranum_falsify.domain.rules.support.building import infinity_aware, shape_aware
from ranum_falsify.network import Graph
from ranum_falsify.network.trace import UnfitBranch
from ranum_falsify.operators.relations.guards import narrow_read
from ranum_falsify.operators.relations.repeated import narrow_repeated
from ranum_falsify.operators.support.deciding import is_proved
from ranum_falsify.operators.support.families import plain

__all__ = ["If", "analysis_of", "report_open"]

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
        flagged = any(y.nan or y.overflows for y in visited.outputs)
        if not flagged and is_proved(analysis, visited):
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


def report_open(site: Site, analysis: IntervalAnalysis, proved: Collection[int], path: str) -> None:
    """Note which nodes of a subgraph that was analysed are not proved, or those in subgraphs of theirs.

    Args:
        site: The node that has the subgraph.
        analysis: The analysis of the subgraph.
        proved: Its nodes that are proved, by `id`.
        path: What comes before their names.
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
