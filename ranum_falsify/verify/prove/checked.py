"""Conditions of a graph's operators, checked by one interval analysis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect

from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.cells.cones import cones_of
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.nesting import nodes_with_branches
from ranum_falsify.network.order import operands_in
from ranum_falsify.operators.relations.discarded import list_doubtful
from ranum_falsify.operators.support.conditions import (
    ReadsNan,
    conditions_of,
    gradient_conditions,
    name_bounds,
    originates_nonfinite,
)
from ranum_falsify.operators.support.deciding import find_open
from ranum_falsify.validity import Bounds, Constraint, Finite

_Open: TypeAlias = Mapping[int, tuple[Constraint, ...]]
"""Conditions that are open, by `id` of the operator."""


@dataclass(frozen=True)
class Checked:
    """Bounds of the outputs, and the conditions that bounds do not prove.

    Attributes:
        outputs: Bounds of each output; None where the shape depends on the input.
        open: By `id` of the operator, its conditions that may be violated if no operator before it is invalid, except
            those on derivatives.
        open_gradient: The same for the conditions on derivatives, which break nothing after them.
        constants: Names of the operators with open conditions that make constants which the graph reads.
        varying: Operators that give shapes that are not the same on the whole box, if anything is open for that.
        inside: Names of the nodes in an operator's subgraphs that are not proved, by its name.
    """

    outputs: tuple[Interval | None, ...]
    open: _Open
    open_gradient: _Open
    constants: tuple[str, ...] = ()
    varying: tuple[Operation, ...] = ()
    inside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def check(
    analysis: IntervalAnalysis,
    inputs: Sequence[Interval],
    *,
    only: Collection[int] | None = None,
    tick: Callable[[], None] = lambda: None,
    decides: bool = True,
    cells: bool = True,
) -> Checked:
    """Analyse a graph over a box and check every condition of its operators.

    Where a condition is open after a function of one tensor, the analysis is run again with cells.

    Args:
        analysis: The analysis of the graph.
        inputs: The box.
        only: The operators to check, by `id`; all if not given.
        tick: Called at every operator; may raise to end the analysis.
        decides: Whether cells are cut for conditions that bounds do not prove.
        cells: Whether cells count at all.
    """
    found = _check_once(analysis, inputs, only, tick, decides=decides and cells)
    if not cells or analysis.uses_cells or not _may_narrow(analysis.graph, found.open):
        return found
    analysis.uses_cells = True
    try:
        again = _check_once(analysis, inputs, only, tick, decides=decides)
    finally:
        analysis.uses_cells = False
    tables = ((again.open, found.open), (again.open_gradient, found.open_gradient))
    left = [{key: kept for key, kept in _meet(*both) if kept} for both in tables]
    return replace(again, open=left[0], open_gradient=left[1])


def _meet(a: _Open, b: _Open) -> Iterator[tuple[int, tuple[Constraint, ...]]]:
    return ((key, tuple(c for c in conditions if c in b.get(key, ()))) for key, conditions in a.items())


def _may_narrow(graph: Graph, ends: Collection[int]) -> bool:
    """Tell whether cells may narrow what some operators, by `id`, depend on."""
    exits = cones_of(graph).exits if ends else frozenset()
    before = set(ends)
    for op in reversed(graph.order) if exits else ():
        if id(op) in before:
            before.update(graph.reads[id(op)])
    return not exits.isdisjoint(before - set(ends))


def _check_once(
    analysis: IntervalAnalysis,
    inputs: Sequence[Interval],
    only: Collection[int] | None,
    tick: Callable[[], None],
    *,
    decides: bool,
) -> Checked:
    graph = analysis.graph
    wanted = [op for op in graph.nodes if only is None or id(op) in only]
    found = {id(op): conditions_of(op) for op in wanted}
    of_gradient = {id(op): conditions for op in wanted if (conditions := _list_gradient_conditions(op))}

    analysed = set[int]()

    def observe(visited: Visited) -> None:
        tick()
        key = id(visited.op)
        analysed.add(key)
        if found.get(key) or of_gradient.get(key):
            for table in (found, of_gradient):
                table[key] = find_open(analysis, visited, table.get(key, ()), cells=decides)

    outputs = analysis.run(inputs, observe)
    for op in wanted:
        if id(op) in reach_of_nan(graph).readers:
            found[id(op)] = (*found[id(op)], ReadsNan())
    # Operators that were not analysed have kept all their conditions but those that other operands decide.
    for op in wanted:
        if id(op) not in analysed:
            found[id(op)] = _leave_undecided(analysis, op, found[id(op)])
    left, left_gradient = ({key: left for key, left in table.items() if left} for table in (found, of_gradient))
    constants = list_doubtful(analysis)
    matters = None in outputs or not analysed.issuperset(left)
    varying = find_varying(graph, analysed) if matters else ()
    return Checked(outputs, left, left_gradient, constants, varying, analysis.open_inside)


def find_varying(graph: Graph, analysed: Collection[int]) -> tuple[Operation, ...]:
    """Return the operators whose results have no shape of their own, without those that come after one.

    `analysed` are the operators that bounds are known of, by `id`.
    """
    blocked, found = set[int](), list[Operation]()
    for op in graph.order:
        if isinstance(op, Input) or id(op) in analysed:
            continue
        is_after = any(read in blocked for read in graph.reads[id(op)])
        if is_after or not isinstance(op, OutputSelect):
            blocked.add(id(op))
        if not is_after and not isinstance(op, OutputSelect):
            found.append(op)
    return tuple(found)


def find_varying_after(analysis: IntervalAnalysis) -> tuple[Operation, ...]:
    """Return the same after a run."""
    graph = analysis.graph
    return find_varying(graph, {id(op) for op in graph.order if analysis.is_bounded(op)})


def _leave_undecided(
    analysis: IntervalAnalysis, op: Operation, conditions: tuple[Constraint, ...]
) -> tuple[Constraint, ...]:
    """Return the conditions of an operator that what it reads does not prove, whatever it writes."""
    if not any(condition.decided_by for condition in conditions):
        return conditions
    try:
        operands = analysis.operands(op)
    except KeyError:  # their bounds are not kept
        return conditions
    if any(x is None and field is not None for x, field in zip(operands, spec_of(op).operands_of(op), strict=True)):
        return conditions
    bounds = name_bounds(spec_of(op), Visited(op=op, operands=operands, outputs=()))
    return tuple(c for c in conditions if not (c.decided_by and c.holds(op, bounds)))


@dataclass(frozen=True)
class Unprovable(Finite):
    """A condition of which bounds of the operator as written say nothing."""

    def holds(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.holds`."""
        return False


@dataclass(frozen=True)
class _InSubgraph(Unprovable):
    """The derivatives of the operators in a subgraph are finite, about which the bounds outside say nothing."""

    reason: str = "a derivative in a subgraph that may not be finite"

    def describe(self) -> str:
        """See :meth:`Constraint.describe`."""
        return "the derivatives in its subgraphs are finite"


def _list_gradient_conditions(op: Operation) -> tuple[Constraint, ...]:
    if any(gradient_conditions(child) for graph in branches_of(op) for child in nodes_with_branches(graph)):
        return (*gradient_conditions(op), _InSubgraph())
    return gradient_conditions(op)


def branches_of(op: Operation) -> list[Graph]:
    """Return the graphs that a node holds: branches that it chooses between, or a body that it repeats."""
    return [value for value in vars(op).values() if isinstance(value, Graph)]


# NaN that a model stores, which bounds leave out ----------------------------------------------------------------------


@dataclass(frozen=True)
class StoredNanReach:
    """Where NaN of constants may get, by `id` of the operation.

    Attributes:
        carriers: Operators that cannot be the first to be invalid, which hand it on.
        readers: Operators that may compute with it.
    """

    carriers: frozenset[int]
    readers: frozenset[int]


_known: WeakKeyDictionary[Graph, StoredNanReach] = WeakKeyDictionary()


def reach_of_nan(graph: Graph) -> StoredNanReach:
    """Return how far NaN that a graph stores may get before an operator computes with it."""
    if graph not in _known:
        _known[graph] = _follow(graph)
    return _known[graph]


def _follow(graph: Graph) -> StoredNanReach:
    carriers, readers = set[int](), set[int]()
    nan: dict[int, bool] = {}
    for op in graph.order:
        if isinstance(op, Input):
            continue
        fed = any(id(operand) in carriers for operand in operands_in(op))
        if isinstance(op, OutputSelect):
            carriers |= {id(op)} if fed else set()
        elif not spec_of(op).shape_only and (fed or _reads_nan(spec_of(op).operands_of(op), nan)):
            (readers if originates_nonfinite(op) else carriers).add(id(op))
    return StoredNanReach(frozenset(carriers), frozenset(readers))


def _reads_nan(operands: Sequence[object], known: dict[int, bool]) -> bool:
    arrays = [x for x in operands if isinstance(x, np.ndarray) and x.dtype.kind in "fV" and not x.dtype.names]
    for array in arrays:
        if id(array) not in known:
            # A sum is NaN if an element is, and needs no array of its own.
            with np.errstate(all="ignore"):
                total = array.sum(dtype=np.float32) if array.dtype.kind == "f" else np.float32(np.nan)
            known[id(array)] = bool(np.isnan(total)) and bool(np.isnan(array.astype(np.float64)).any())
    return any(known[id(array)] for array in arrays)
