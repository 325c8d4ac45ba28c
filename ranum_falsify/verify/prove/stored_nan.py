"""How far NaN that a model stores may get; bounds leave it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from dnnv.nn.operations import Input, OutputSelect

from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.order import operands_in
from ranum_falsify.operators.support.conditions import originates_nonfinite


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
