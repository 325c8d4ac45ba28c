"""Explanations of the bounds of a problem's operands, and the graph around its nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from dnnv.nn import Operation

from ranum_falsify.config import ProveConfig
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.explanation import OperandHistory, explain, range_of
from ranum_falsify.domain.neighbours import Neighbours, neighbours_of
from ranum_falsify.errors import PropertyError, name_near
from ranum_falsify.network import spec_of
from ranum_falsify.network.order import topological_order
from ranum_falsify.process.deadline import NEVER, Deadline, OutOfTime
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.prove.analyses import Analyses
from ranum_falsify.verify.prove.applications import Applications, box_of
from ranum_falsify.verify.prove.chosen_sizes import list_sizes, read_sized
from ranum_falsify.verify.prove.varying import describe_varying, find_varying


@dataclass(frozen=True, kw_only=True)
class LayerBounds:
    """A node, with the least and the greatest value of its first result."""

    network: str
    node: str
    op_type: str
    bounds: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class NodeSurroundings:
    """What bounds say around a node.

    Attributes:
        network: Name of its network.
        node: Its name.
        histories: How each of its operands came to its bounds.
        neighbours: The nodes before and after it.
    """

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
        varying = [one for one in _find_varying(analysis) if id(one) in before]
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
    analyses = {id(call): IntervalAnalysis(call.graph, runtimes=config.runtimes, keep=True) for call in problem.calls}
    graphs = {id(call): call.graph for call in problem.calls}
    written = {key: Analyses(analysis) for key, analysis in analyses.items()}
    known = Applications(problem, graphs, lambda call: written[id(call)], box_of(problem.regions[0]), lambda: None)
    with torch.no_grad():
        for call in problem.calls:
            wanted = [op for op in call.graph.nodes if is_wanted(call, op)]
            inputs = known.inputs(call) if wanted else None
            if inputs is None:
                continue
            try:
                analyses[id(call)].run(inputs, lambda _: deadline.check())
            except OutOfTime:
                return
            analysis = _read_sized(analyses[id(call)], inputs)
            names = {op.name: op for op in analysis.graph.nodes}
            yield from ((call, analysis, names[op.name]) for op in wanted)


def _find_varying(analysis: IntervalAnalysis) -> tuple[Operation, ...]:
    graph = analysis.graph
    return find_varying(graph, {id(one) for one in graph.nodes if analysis.is_bounded(one)})


def _read_sized(analysis: IntervalAnalysis, inputs: Sequence[Interval]) -> IntervalAnalysis:
    """Return the analysis of the network as if values chose the greatest sizes that are possible."""
    while sizes := list_sizes(analysis, _find_varying(analysis)):
        again = read_sized(analysis.graph, {**analysis.graph.options.sizes, **sizes[-1]})
        if again is None:
            break
        analysis = IntervalAnalysis(again, runtimes=analysis.runtimes, keep=True)
        analysis.run(inputs)
    return analysis


def _describe_sizes(analysis: IntervalAnalysis) -> str:
    sizes = analysis.graph.options.sizes
    return f", where values choose {', '.join(f'{size} for {name}' for name, size in sizes.items())}" if sizes else ""
