"""Bounds of the operands of every node of a problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import torch
from dnnv.nn import Operation

from ranum_falsify.config import ProveConfig
from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.explanation import range_of
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.blackbox import BlackBox, body_inputs_rule
from ranum_falsify.operators.support.conditions import conditions_of, name_bounds
from ranum_falsify.process.deadline import NEVER, Deadline, OutOfTime
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.validity import Constraint, InvalidRange
from ranum_falsify.verify.prove.analyses import Analyses
from ranum_falsify.verify.prove.applications import Applications, box_of


@dataclass(frozen=True)
class OperandRanges:
    """What bounds say of the operands of a node.

    Attributes:
        bounds: The least and the greatest value of each.
        margins: How far the bounds are from where a condition fails, by the condition in words; negative where they
            reach beyond.  Conditions that are not about single numbers have none.
    """

    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    margins: Mapping[str, float] = field(default_factory=dict)


OperandBounds = Mapping[tuple[str, str], OperandRanges]
"""What is known by network and node."""


def operand_bounds(problem: Problem, config: ProveConfig, *, deadline: Deadline = NEVER) -> OperandBounds:
    """Return the operand bounds of each network as written over the box, as far as known at the deadline."""
    found: dict[tuple[str, str], OperandRanges] = {}

    def observe(network: str, analysis: IntervalAnalysis, visited: Visited) -> None:
        deadline.check()
        bounds = {name: range_of(x) for name, x in _intervals(visited).items()}
        found[network, visited.op.name] = OperandRanges(bounds, dict(_margins(visited)))

    with suppress(OutOfTime):
        _observe(problem, config, observe)
    return found


def _margins(visited: Visited) -> Iterator[tuple[str, float]]:
    bounds = name_bounds(spec_of(visited.op), visited)
    for condition in conditions_of(visited.op):
        ranges = condition.ranges_beside(visited.op, bounds)
        gaps = [_distance(x, one) for one in ranges if isinstance(x := bounds.get(one.operand), Interval) and x.size]
        if gaps:
            yield condition.describe(), min(gaps)


def _distance(x: Interval, invalid: InvalidRange) -> float:
    """Return the least distance of an element from a range; negative where it may lie in it, by how far."""
    gaps = torch.maximum(x.lower.double() - invalid.upper, invalid.lower - x.upper.double())
    return float(gaps.nan_to_num(math.inf, math.inf, -math.inf).min())


def operand_intervals(
    problem: Problem, config: ProveConfig, nodes: Collection[tuple[str, str]]
) -> Mapping[tuple[str, str], Mapping[str, Interval]]:
    """Return the same of each element, for some nodes, by network and name; the names of operands are those of rows.

    Nodes in branches that an input chooses between count, too, as do those in loops that an input steers.
    """
    found: dict[tuple[str, str], Mapping[str, Interval]] = {}

    def observe(network: str, analysis: IntervalAnalysis, visited: Visited) -> None:
        if (network, visited.op.name) in nodes:
            found[network, visited.op.name] = _intervals(visited)
        _visit_inside(analysis, visited, partial(observe, network))

    _observe(problem, config, observe)
    return found


def open_inside(
    problem: Problem, config: ProveConfig, nodes: Collection[str]
) -> Mapping[str, Mapping[str, tuple[Constraint, ...]]]:
    """Return the conditions that are not proved in branches and loops, by the name of the node that has these."""
    found: dict[str, dict[str, tuple[Constraint, ...]]] = {}
    owners = {op.name for call in problem.calls for op in call.graph.nodes if op.name in nodes and _branches(op)}

    def collect(owner: str, analysis: IntervalAnalysis, visited: Visited) -> None:
        bounds = name_bounds(spec_of(visited.op), visited)
        unmet = tuple(c for c in conditions_of(visited.op) if not c.holds(visited.op, bounds))
        if unmet:
            found.setdefault(owner, {})[visited.op.name] = unmet

    def observe(network: str, analysis: IntervalAnalysis, visited: Visited) -> None:
        if visited.op.name in owners:
            _visit_inside(analysis, visited, partial(collect, visited.op.name))

    if owners:
        _observe(problem, config, observe)
    return found


def _branches(op: Operation) -> list[Graph]:
    return [value for value in vars(op).values() if isinstance(value, Graph)]


def _visit_inside(
    analysis: IntervalAnalysis, visited: Visited, observe: Callable[[IntervalAnalysis, Visited], None]
) -> None:
    """Analyse the branches of a node, or the body that it repeats, and those within them."""
    for graph, inputs in _list_inside(analysis, visited):
        inner = IntervalAnalysis(graph, runtimes=analysis.runtimes)

        def visit(found: Visited, inner: IntervalAnalysis = inner) -> None:
            observe(inner, found)
            _visit_inside(inner, found, observe)

        inner.run(inputs, visit)


def _list_inside(analysis: IntervalAnalysis, visited: Visited) -> list[tuple[Graph, Sequence[Interval]]]:
    """Return the graphs that a node holds, with bounds of what they read; none where these are not known."""
    branches = _branches(visited.op)
    if isinstance(visited.op, BlackBox):
        inputs = analysis.ask(visited.op, body_inputs_rule(visited.op)) if branches else None
        return [] if inputs is None else [(body, inputs) for body in branches]
    captured = visited.operands[len(visited.operands) - len(visited.op.captured) :] if branches else ()
    known = [x if isinstance(x, Interval) else Interval.point(x) for x in captured if x is not None]
    return [(branch, known) for branch in branches]


def _intervals(visited: Visited) -> Mapping[str, Interval]:
    bounds = name_bounds(spec_of(visited.op), visited)
    return {name: x for name, x in bounds.items() if isinstance(x, Interval)}


def _observe(problem: Problem, config: ProveConfig, observe: Callable[[str, IntervalAnalysis, Visited], None]) -> None:
    """Analyse each network as written over the whole box."""
    analyses = {id(call): IntervalAnalysis(call.graph, runtimes=config.runtimes) for call in problem.calls}
    graphs = {id(call): call.graph for call in problem.calls}
    known = Applications(
        problem, graphs, lambda call: Analyses(analyses[id(call)]), box_of(problem.inputs), lambda: None
    )
    with torch.no_grad():
        for call in problem.calls:
            inputs = known.inputs(call)
            if inputs is not None:
                analyses[id(call)].run(inputs, partial(observe, call.network, analyses[id(call)]))
