"""Proofs of an operator's conditions: by bounds of its operands, or by the cells of a tensor before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.cells.cones import Cone, cones_of, is_pointwise
from ranum_falsify.domain.cells.grid import Cells
from ranum_falsify.domain.cells.table import CellTable, OnCells, table_of
from ranum_falsify.network import spec_of
from ranum_falsify.operators.support.conditions import conditions_of, name_bounds
from ranum_falsify.validity import Constraint

_SOURCES = 4
"""How many tensors before an operator are tried, one after another."""

_FIRST = 64
"""Cells of a group, at first; with many groups fewer."""

_MOST = 4096
"""Cells that are looked at together."""

_PARTS = 8
"""Parts of a cell for which a condition stays open."""

_ROUNDS = 24
"""How often cells are cut; after these, those of float64 are single numbers."""


def find_open(
    analysis: IntervalAnalysis, visited: Visited, conditions: Sequence[Constraint], *, cells: bool = True
) -> tuple[Constraint, ...]:
    """Return those of an operator's conditions that are not proved, by an analysis that has just bounded it.

    Those that bounds do not prove are tried on cells, unless they are not to be.
    """
    bounds = name_bounds(spec_of(visited.op), visited)
    # Where there are no elements, none can be wrong; ONNX Runtime may refuse to run all the same.
    read = [x for x in visited.operands if isinstance(x, Interval)]
    is_empty = spec_of(visited.op).elementwise and bool(read) and not any(x.size for x in read)
    unmet = [c for c in conditions if not c.holds(visited.op, bounds) and (c.refuses or not is_empty)]
    for cone in _list_cones(analysis, visited) if unmet and cells else ():
        table = table_of(analysis, cone)
        if table is not None:
            unmet = _Decision(table, unmet).run()
        if not unmet:
            break
    return tuple(unmet)


def is_proved(analysis: IntervalAnalysis, visited: Visited) -> bool:
    """Tell whether all conditions of an operator hold; see :func:`conditions_of`."""
    return not find_open(analysis, visited, conditions_of(visited.op))


def _list_cones(analysis: IntervalAnalysis, visited: Visited) -> Iterator[Cone]:
    """Yield the cones of an operator whose sources may tell more than its operands, the furthest source first."""
    op = visited.op
    if not is_pointwise(op):
        return
    cones = cones_of(analysis.graph)
    operands = [field for field in spec_of(op).operands_of(op) if isinstance(field, Operation)]
    found = {id(source): source for top in (op, *operands) for source in cones.sources_of(top)}
    for source in list(reversed(found.values()))[:_SOURCES]:
        cone = cones.cone(source, op)
        if cone is not None and len(cone.nodes) > 1:
            yield cone


class _Decision:
    """Conditions of a cone's last node, each of which holds where it holds on all cells."""

    def __init__(self, table: CellTable, conditions: Sequence[Constraint]) -> None:
        self._table, self._open = table, list(conditions)
        self._refuted: list[Constraint] = []

    def run(self) -> list[Constraint]:
        """Cut the cells on which a condition is open until none is, or one fails on a single number."""
        cells = self._table.cut(max(_FIRST // self._table.groups, _PARTS))
        for _ in range(_ROUNDS):
            # One evaluation spares the search for open cells where no cell can prove a condition.
            self._refute(cells)
            found = self._table.evaluate(cells) if self._open else None
            if found is None:
                break
            cells = cells.select(self._find_open_cells(found, len(cells)))
            if not self._open or not len(cells):
                return self._refuted
            parts = cells.split(_PARTS, closed=self._table.is_closed)
            if len(parts) > _MOST or parts.count_widest() == cells.count_widest():
                break
            cells = parts
        return [*self._refuted, *self._open]

    def _find_open_cells(self, found: OnCells, count: int) -> Tensor:
        """Return where some condition is open, as booleans; forget the conditions that are open nowhere."""
        is_open = torch.zeros(count, dtype=torch.bool)
        for condition in list(self._open):
            own = list(_search(self._table, found, condition, count))
            if not own:
                self._open.remove(condition)
            is_open[own] = True
        return is_open

    def _refute(self, cells: Cells) -> None:
        """Give up the conditions that no cells prove, because they are open at a single number."""
        found = self._table.evaluate(cells.points())
        for condition in list(self._open):
            # A mark of all numbers together, such as that of an overflow, may be none of a single one.
            if found is None or any(True for _ in _search(self._table, found, condition, len(cells))):
                self._open.remove(condition)
                self._refuted.append(condition)


def _holds(found: OnCells, condition: Constraint) -> bool:
    visited = Visited(op=found.op, operands=found.operands, outputs=found.outputs)
    return condition.holds(found.op, name_bounds(spec_of(found.op), visited))


def _search(table: CellTable, found: OnCells, condition: Constraint, count: int) -> Iterator[int]:
    """Yield the cells on which a condition is open, by halves."""
    waiting = [(0, count)]
    while waiting:
        begin, end = waiting.pop()
        if _holds(table.part(found, begin, end), condition):
            continue
        if end - begin == 1:
            yield begin
        else:
            middle = (begin + end) // 2
            waiting += [(begin, middle), (middle, end)]
