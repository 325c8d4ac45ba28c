"""Bounds of the operands of every node of a problem, with explanations, and the graph around nodes."""

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
from ranum_falsify.domain.explanation import OperandHistory, explain, range_of
from ranum_falsify.domain.neighbours import Neighbours, neighbours_of
from ranum_falsify.errors import PropertyError, name_near
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.blackbox import BlackBox, body_inputs_rule
from ranum_falsify.network.order import topological_order
from ranum_falsify.operators.support.conditions import conditions_of, name_bounds
from ranum_falsify.process.deadline import NEVER, Deadline, OutOfTime
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.validity import Constraint, InvalidRange
from ranum_falsify.verify.prove.analyses import Analyses
from ranum_falsify.verify.prove.applications import Applications, box_of
from ranum_falsify.verify.prove.checked import branches_of, find_varying_after
from ranum_falsify.verify.prove.chosen_sizes import list_sizes, read_sized
from ranum_falsify.verify.prove.notices import describe_varying


@dataclass(frozen=True, kw_only=True)
class LayerBounds:
    """A node, with the least and the greatest value of its first result."""

    network: str
    node: str
    op_type: str
    bounds: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class NodeSurroundings:
    """What bounds say around a node: how each of its operands came to them, and the nodes before and after it."""

    network: str
    node: str
    histories: tuple[OperandHistory, ...]
    neighbours: Neighbours


def histories(problem: Problem, node: str, config: ProveConfig) -> Mapping[str, tuple[OperandHistory, ...]]:
    """Return the history of each operand of a node, over the first of the property's boxes.

    They go by `<network>: <node> (<operator>)`, one entry for each application of a network with this node.

    Raises:
        PropertyError: No network has this node, or it comes after a tensor whose shape depends on the input.
    """
    found = {
        f"{call.network}: {op.name} ({spec_of(op).op_type}){_describe_sizes(analysis)}": explain(analysis, op)
        for call, analysis, op in _analysed(problem, config, lambda _, op: op.name == node)
    }
    if not found:
        names = [op.name for call in problem.calls for op in call.graph.nodes]
        if holder := next((name for name in names if node.startswith(f"{name}/")), None):
            raise PropertyError(
                f"--explain {node}: an input decides what runs in {holder!r}, so that its nodes have no bounds of one "
                f"run; --explain {holder} shows what comes to it"
            )
        raise PropertyError(f"--explain {node}: no network of the property has this node; {name_near(node, names)}")
    return found


def list_varying(problem: Problem, node: str, config: ProveConfig) -> list[str]:
    """Return why bounds of a node's operands are not known, where it comes after a tensor whose shape varies.

    Args and errors are those of `histories`; the result is a sentence for each such tensor.
    """
    found = list[str]()
    for call, analysis, op in _analysed(problem, config, lambda _, op: op.name == node):
        before = {id(one) for one in topological_order([op])}
        varying = [one for one in find_varying_after(analysis) if id(one) in before]
        found += describe_varying(problem, call, analysis.graph, varying, problem.regions[0])
    return found


def surroundings(
    problem: Problem, nodes: Collection[tuple[str, str]], config: ProveConfig, *, deadline: Deadline = NEVER
) -> list[NodeSurroundings]:
    """Return what bounds over the first of the property's boxes say around nodes, which go by network and name.

    What is not known at the deadline is left out, and so are nodes of subgraphs, and those after a tensor whose shape
    depends on the input.
    """
    wanted = set(nodes)
    found: dict[tuple[str, str], NodeSurroundings] = {}
    for call, analysis, op in _analysed(problem, config, lambda call, op: (call.network, op.name) in wanted, deadline):
        if deadline.has_passed:
            break
        found[call.network, op.name] = NodeSurroundings(
            network=call.network,
            node=op.name,
            histories=explain(analysis, op),
            neighbours=neighbours_of(analysis, op),
        )
    return [found[key] for key in dict.fromkeys(nodes) if key in found]


def list_layers(problem: Problem, config: ProveConfig) -> Iterator[LayerBounds]:
    """Yield the nodes of a problem that could be analysed, in topological order.

    Args and bounds are those of `surroundings`.
    """
    for call, analysis, op in _analysed(problem, config, lambda _, op: True):
        bounds = analysis.bounds_of(op)
        if bounds is not None and bounds.size:
            yield LayerBounds(network=call.network, node=op.name, op_type=spec_of(op).op_type, bounds=range_of(bounds))


def _analysed(
    problem: Problem,
    config: ProveConfig,
    is_wanted: Callable[[NetworkCall, Operation], bool],
    deadline: Deadline = NEVER,
) -> Iterator[tuple[NetworkCall, IntervalAnalysis, Operation]]:
    """Yield the wanted nodes that could be analysed, each with a finished analysis that has kept all bounds."""
    known = _apply_written(problem, config, problem.regions[0], keep=True)
    with torch.no_grad():
        for call in problem.calls:
            wanted = [op for op in call.graph.nodes if is_wanted(call, op)]
            inputs = known.inputs(call) if wanted else None
            if inputs is None:
                continue
            analysis = known.analyses_of(call).written
            try:
                analysis.run(inputs, lambda _: deadline.check())
            except OutOfTime:
                return
            analysis = _read_sized(analysis, inputs)
            names = {op.name: op for op in analysis.graph.nodes}
            yield from ((call, analysis, names[op.name]) for op in wanted)


def _apply_written(
    problem: Problem, config: ProveConfig, box: Sequence[InputVariable], *, keep: bool = False
) -> Applications:
    """Return the applications over a box, each with the analysis of its network as written alone."""
    analyses = {
        id(call): Analyses(IntervalAnalysis(call.graph, runtimes=config.runtimes, keep=keep)) for call in problem.calls
    }
    graphs = {id(call): call.graph for call in problem.calls}
    return Applications(problem, graphs, lambda call: analyses[id(call)], box_of(box), lambda: None)


def _read_sized(analysis: IntervalAnalysis, inputs: Sequence[Interval]) -> IntervalAnalysis:
    """Return the analysis of the network as if values chose the greatest sizes that are possible."""
    while sizes := list_sizes(analysis, find_varying_after(analysis)):
        again = read_sized(analysis.graph, {**analysis.graph.options.sizes, **sizes[-1]})
        if again is None:
            break
        analysis = IntervalAnalysis(again, runtimes=analysis.runtimes, keep=True)
        analysis.run(inputs)
    return analysis


def _describe_sizes(analysis: IntervalAnalysis) -> str:
    sizes = analysis.graph.options.sizes
    return f", where values choose {', '.join(f'{size} for {name}' for name, size in sizes.items())}" if sizes else ""


# bounds of operands over the whole box --------------------------------------------------------------------------------


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
    owners = {op.name for call in problem.calls for op in call.graph.nodes if op.name in nodes and branches_of(op)}

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
    branches = branches_of(visited.op)
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
    known = _apply_written(problem, config, problem.inputs)
    with torch.no_grad():
        for call in problem.calls:
            inputs = known.inputs(call)
            if inputs is not None:
                analysis = known.analyses_of(call).written
                analysis.run(inputs, partial(observe, call.network, analysis))
