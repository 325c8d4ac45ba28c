"""Sizes that values choose: a network is analysed once for each that the box allows.

`NonZero` of a mask has as many columns as the mask has elements that are not 0.  For each such number the model is read
again, as if that were the number, so that all shapes after it are known; what is proved in all these readings holds.
Where the same mask is computed again, the size is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dnnv.nn import Operation

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.errors import ModelError
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.order import operands_in, topological_order
from ranum_falsify.operators.relations.matching import fields_of, is_twin
from ranum_falsify.operators.relations.rewrites import have_same_attributes
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.prove.checked import Checked

MOST_SIZES = 256
"""How many readings there are at most, of all combinations of sizes."""


def read_sized(graph: Graph, sizes: Mapping[str, int]) -> Graph | None:
    """Return a graph as if values chose some sizes, by name of the tensor; None where it cannot be read so."""
    if graph.read_again is None:
        return None
    try:
        again = graph.read_again(replace(graph.options, sizes=sizes))
    except ModelError:
        return None
    return again if isinstance(again, Graph) else None


def list_sizes(analysis: IntervalAnalysis, varying: Sequence[Operation]) -> list[dict[str, int]]:
    """Return the sizes that values may choose for an operator, and for those that choose alike, the least first.

    They go by names of tensors; `varying` are the operators whose results had no shape of their own in a run.  There
    are none where nothing is known of one of these.
    """
    known = analysis.graph.options.sizes
    if not varying or any(spec_of(op).chosen is None or op.output_names[0] in known for op in varying):
        return []
    chosen, operands = spec_of(varying[0]).chosen, analysis.operands(varying[0])
    if chosen is None or not all(isinstance(x, Interval) for x in operands):
        return []
    names = [op.output_names[0] for op in analysis.graph.nodes if _choose_alike(analysis.graph, op, varying[0])]
    least, most = chosen.limits(varying[0], *operands)
    return [dict.fromkeys(names, size) for size in range(least, most + 1)]


def _choose_alike(graph: Graph, op: Operation, other: Operation) -> bool:
    """Tell whether two operators read the same numbers, or compute them twice in the same way, without roundings."""
    if type(op) is not type(other) or not have_same_attributes(op, other):
        return False
    if not all(is_twin(a, b) for a, b in zip(fields_of(op), fields_of(other), strict=True)):
        return False
    common = {id(one) for one in topological_order(operands_in(other))}
    apart = [one for one in topological_order(operands_in(op)) if id(one) not in common]
    return all(graph.details_of(one).dtype.kind in "biu" for one in apart)


def join_readings(graph: Graph, readings: Sequence[tuple[Graph, Checked]]) -> Checked:
    """Return what holds in all readings of a graph: each as if values chose some size, with what holds then."""
    found = [checked for _, checked in readings]
    return Checked(
        outputs=tuple(_hull(bounds) for bounds in zip(*(one.outputs for one in found), strict=True)),
        open=_join(graph, [(of, one.open) for of, one in readings]),
        open_gradient=_join(graph, [(of, one.open_gradient) for of, one in readings]),
        constants=tuple(dict.fromkeys(name for one in found for name in one.constants)),
        inside={
            name: tuple(dict.fromkeys(node for one in found for node in one.inside.get(name, ())))
            for name in dict.fromkeys(name for one in found for name in one.inside)
        },
    )


def _hull(bounds: Sequence[Interval | None]) -> Interval | None:
    known = [one for one in bounds if one is not None]
    if len(known) < len(bounds) or len({one.shape for one in known}) > 1:
        return None
    whole = known[0]
    for one in known[1:]:
        whole = whole.hull(one)
    return whole


def _join(
    graph: Graph, tables: Sequence[tuple[Graph, Mapping[int, tuple[Constraint, ...]]]]
) -> dict[int, tuple[Constraint, ...]]:
    """Return the open conditions of the operators of a graph, by `id`, of those of readings of it."""
    keys, joined = {op.name: id(op) for op in graph.nodes}, dict[int, tuple[Constraint, ...]]()
    for of, table in tables:
        for op in (op for op in of.nodes if id(op) in table):
            key = keys[op.name]
            joined[key] = tuple(dict.fromkeys((*joined.get(key, ()), *table[id(op)])))
    return joined
