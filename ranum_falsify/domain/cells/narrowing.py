"""Bounds of each element of a tensor from the cells of its source: the extremes over those that its range meets."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.cells.cones import cones_of
from ranum_falsify.domain.cells.grid import Cells, places_of
from ranum_falsify.domain.cells.table import Bounding, CellTable, table_of
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.slack import tiny

__all__ = ["narrow_by_cells"]

_CELLS = 1 << 14
"""Cells of all groups together."""

_MOST = 1 << 10
"""Cells of one group."""

_ELEMENTS = 1 << 21
"""Larger tensors keep the bounds that they have."""


def narrow_by_cells(analysis: Bounding, op: Operation, y: Interval) -> Interval:
    """Return bounds of a node's result that are at least as close as those that its rule gives, `y`."""
    for cone in cones_of(analysis.graph).joined(op):
        table = table_of(analysis, cone)
        y = y if table is None else _narrow(table, y)
    return y


def _narrow(table: CellTable, y: Interval) -> Interval:
    elements = table.source.lower.numel()
    if not y.is_floating or elements > _ELEMENTS:
        return y
    cells = table.cut(min(_MOST, _CELLS // table.groups))
    found = table.evaluate(cells)
    if found is None:
        return y
    (of_cells,) = found.outputs
    low, high = (end.expand(of_cells.shape).reshape(-1).double() for end in (of_cells.lower, of_cells.upper))
    least, greatest = _Rows(table, cells).extremes(low, -high)
    bounds = Interval.of(least.to(y.dtype), (-greatest).to(y.dtype), y.shape)
    near = y.meet(bounds)
    gap = float(torch.maximum(low, -high).amin())
    return replace(
        near,
        nan=y.nan and of_cells.nan,
        overflows=y.overflows and of_cells.overflows,
        gap=max(near.gap, gap) if tiny(y.dtype) <= gap < math.inf else near.gap,
    )


class _Rows:
    """The cells of each group in a row, and which of them each element's range meets."""

    def __init__(self, table: CellTable, cells: Cells) -> None:
        self._table, self._cells = table, cells
        counts = torch.bincount(cells.group, minlength=table.groups)
        starts = counts.cumsum(0) - counts
        self._column = torch.arange(len(cells)) - starts[cells.group]
        self._size = table.groups, int(counts.max())

    def extremes(self, *values: Tensor) -> list[Tensor]:
        """Return, for each element, the least of the values of its cells, for each of some values of all cells."""
        rows = [self._fill(value, math.inf) for value in values]
        if self._table.is_own:
            return [row.amin(1).reshape(self._table.shape) for row in rows]
        low, high, order = self._arrange()
        first = self._fill(self._cells.first, torch.iinfo(torch.int64).max)
        begin = (torch.searchsorted(first, low, right=True) - 1).clamp(min=0)
        end = (torch.searchsorted(first, high, right=True) - 1).clamp(min=0)
        return [_find_least(row, begin, end).reshape(order[1]).permute(order[0]) for row in rows]

    def _fill(self, value: Tensor, beyond: float | int) -> Tensor:
        row = torch.full(self._size, beyond, dtype=value.dtype)
        row[self._cells.group, self._column] = value
        return row

    def _arrange(self) -> tuple[Tensor, Tensor, tuple[list[int], list[int]]]:
        """Return places of the ends of all elements, in a row for each group, and how to undo that order."""
        table, source = self._table, self._table.source
        stored = (1,) * (table.rank - len(source.shape)) + tuple(source.lower.shape)
        full = np.broadcast_shapes(stored, table.shape)
        apart = [dim for dim, size in enumerate(table.shape) if size > 1]
        order = [*apart, *(dim for dim in range(table.rank) if dim not in apart)]
        ends = [
            places_of(end).reshape(stored).expand(full).permute(order).reshape(table.groups, -1)
            for end in (source.lower, source.upper)
        ]
        back = sorted(range(table.rank), key=order.__getitem__)
        return ends[0].contiguous(), ends[1].contiguous(), (back, [full[dim] for dim in order])


def _find_least(rows: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    """Return the least of `rows[g, begin[g, i]:end[g, i] + 1]` for all g and i: of two spans, powers of 2 long."""
    levels = [rows]
    while 2 ** len(levels) <= rows.shape[1]:
        last, step = levels[-1], 2 ** (len(levels) - 1)
        moved = torch.cat([last[:, step:], last[:, -1:].expand(-1, step)], 1)
        levels.append(torch.minimum(last, moved))
    level = (end - begin + 1).double().log2().floor().long()
    groups = torch.arange(len(rows)).unsqueeze(1)
    table = torch.stack(levels)
    return torch.minimum(table[level, groups, begin], table[level, groups, end + 1 - 2**level])
