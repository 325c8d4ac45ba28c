"""The ordinary rules of a cone's nodes on cells of its source, all at once, and the bounds that are read from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input
from dnnv.nn.utils import TensorDetails
from torch import Tensor

from ranum_falsify.config import Runtime
from ranum_falsify.domain.attributes import apply_rule
from ranum_falsify.domain.cells.cones import Cone, cones_of
from ranum_falsify.domain.cells.grid import Cells, first_cells, places_of
from ranum_falsify.domain.error_bounds import tiny
from ranum_falsify.domain.infinities import Value, select_valid
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.order import SIGNED
from ranum_falsify.domain.rounding import flush
from ranum_falsify.domain.site import Site
from ranum_falsify.network import Graph, spec_of

_GROUPS = 64
"""Elements, or channels, that have cells of their own; those of more share them."""

_HALF = (torch.float16, torch.bfloat16)


class Bounding(Protocol):
    """What is asked of an analysis; see `IntervalAnalysis`."""

    graph: Graph
    runtimes: tuple[Runtime, ...]
    is_inner: bool

    def bounds_of(self, op: Operation) -> Interval | None:
        """Return the bounds of an operation's (first) output."""

    def find_known(self, field: Operation | np.ndarray) -> Interval | None:
        """Return the bounds of a field of some node."""


@dataclass(frozen=True)
class OnCells:
    """A cone's last node on some cells.

    Attributes:
        op: The node, as the cone has it.
        operands: Its operands, of one element for each cell, or of one element.
        outputs: What its rule says.
        run: The evaluation that they are of.
    """

    op: Operation
    operands: tuple[Value, ...]
    outputs: tuple[Interval, ...]
    run: _CellRun


def table_of(analysis: Bounding, cone: Cone) -> CellTable | None:
    """Return what evaluates a cone on cells, within the bounds of an analysis.

    Returns:
        None where these are not known, or hold what has no cells: infinities, and integers that torch cannot add.
    """
    fields = [field for op in cone.nodes for field in spec_of(op).operands_of(op) if isinstance(field, np.ndarray)]
    constants = {id(field): analysis.find_known(field) for field in fields}
    try:
        source = analysis.bounds_of(cone.source)
        ranges = {id(stand): analysis.find_known(field) for stand, field in cone.ranges}
    except KeyError:  # the bounds are not kept
        return None
    if source is None or source.dtype in SIGNED or not source.size:
        return None
    read = {key: x for key, x in (*constants.items(), *ranges.items()) if x is not None and x.size}
    if len(read) < len(constants) + len(ranges) or any(x.may_be_infinite for x in (source, *read.values())):
        return None
    return CellTable(analysis, cone, source, read)


class CellTable:
    """A cone whose source and ranges have bounds.

    Attributes:
        cone: The cone.
        is_closed: Whether neighbouring cells share a number.
        groups: How many groups of elements have cells of their own.
    """

    def __init__(self, analysis: Bounding, cone: Cone, source: Interval, read: dict[int, Interval]) -> None:
        self._analysis, self.cone, self.source = analysis, cone, source
        self.rank = max(len(x.shape) for x in (source, *read.values()))
        # Readers of a number in half precision may see it before it is rounded, between two numbers of the type.
        self.is_closed = source.dtype in _HALF and (analysis.is_inner or not isinstance(cone.source, Input))
        uniform = {key: _merge(x) for key, x in read.items()}
        varying = [x.lower.shape for x in uniform.values() if not x.is_scalar]
        own = np.broadcast_shapes(tuple(source.lower.shape), *varying)
        self.is_own = math.prod(own) <= _GROUPS
        shape = own if self.is_own else np.broadcast_shapes((), *varying)
        if math.prod(shape) > _GROUPS:
            uniform, shape = {key: _unite(x) for key, x in read.items()}, ()
        self.shape = (1,) * (self.rank - len(shape)) + tuple(shape)
        self.groups = math.prod(self.shape)
        self._read = {key: self._column(x) for key, x in uniform.items()}
        self.low, self.high = (self._reduce(*side) for side in ((source.lower, torch.amin), (source.upper, torch.amax)))

    def _column(self, x: Interval) -> Interval:
        """Return the bounds of something that is read: of one element, or of one for each group."""
        if x.is_scalar:
            return x
        low, high = (end.expand(self.shape).reshape(-1) for end in (x.lower, x.upper))
        return Interval(low, high, low.shape)

    def _reduce(self, bound: Tensor, extreme: object) -> Tensor:
        """Return the extreme of a bound of the source in each group."""
        bound = bound.reshape((1,) * (self.rank - bound.ndim) + tuple(bound.shape))
        dims = [dim for dim, size in enumerate(self.shape) if size == 1 and bound.shape[dim] > 1]
        for dim in dims:
            bound = bound.amin(dim, keepdim=True) if extreme is torch.amin else bound.amax(dim, keepdim=True)
        return bound.expand(self.shape).reshape(-1)

    def cut(self, count: int) -> Cells:
        """Return the first cells, `count` of equal length for each group, and others at constants that are read."""
        marks = [end for x in self._read.values() if x.is_scalar and x.is_point for end in (float(x.lower.item()),)]
        cells = first_cells(self.low, self.high, count, marks, closed=self.is_closed)
        if not self.source.gap:
            return cells
        least, greatest = cells.ends()
        return cells.select((least <= -self.source.gap) | (greatest >= self.source.gap))

    def evaluate(self, cells: Cells) -> OnCells | None:
        """Return what the rules say of the last node on some cells; None where one has nothing to say of them."""
        shape = (len(cells), *(1,) * self.rank)
        low, high = (end.reshape(shape) for end in cells.ends())
        x = Interval(low, high, shape)
        run = _CellRun(
            self._analysis, {id(self.cone.source): flush(x) if self.is_closed else x}, self._gather(cells, shape)
        )
        try:
            for op, original in zip(self.cone.nodes, self.cone.originals, strict=True):
                found = run.visit(op, original)
                if found is None:
                    return None
        except (IndexError, KeyError, OverflowError, RuntimeError, ValueError):  # not for operands of this rank
            return None
        return found

    def part(self, found: OnCells, begin: int, end: int) -> OnCells:
        """Return what is said of the cells from one to before another; of them alone, where a mark is of all."""
        if any(y.nan or y.overflows for y in found.outputs):
            alone = found.run.part(begin, end).visit(self.cone.nodes[-1], self.cone.originals[-1])
            assert alone is not None
            return alone
        operands = tuple(_slice(x, begin, end) if isinstance(x, Interval) else x for x in found.operands)
        return replace(found, operands=operands, outputs=tuple(_slice(y, begin, end) for y in found.outputs))

    def _gather(self, cells: Cells, shape: tuple[int, ...]) -> dict[int, Interval]:
        return {
            key: x
            if x.is_scalar
            else Interval(x.lower[cells.group].reshape(shape), x.upper[cells.group].reshape(shape), shape)
            for key, x in self._read.items()
        }


class _CellRun:
    """One evaluation of a cone.

    Rules may look at the nodes around theirs; what lies before the source has the bounds that the analysis knows.
    """

    def __init__(self, analysis: Bounding, values: dict[int, Interval], read: dict[int, Interval]) -> None:
        self._analysis, self._values, self._read = analysis, values, read
        self._shape = next(iter(values.values())).shape

    def visit(self, op: Operation, original: Operation) -> OnCells | None:
        """Bound a node whose operands are bounded already."""
        spec, graph = spec_of(op), self._analysis.graph
        fields = spec.operands_of(op)
        names = (*spec.operands, *[""] * len(fields))
        operands = tuple(
            field if field is None or name in spec.static else self._operand(field)
            for field, name in zip(fields, names, strict=False)
        )
        if any(isinstance(x, Interval) and x.may_be_infinite for x in operands):
            return None
        site = Site(
            op=op,
            details=(TensorDetails(self._shape, graph.details_of(original).dtype),),
            runtimes=self._analysis.runtimes,
            bounds_of=self._bounds_of,
            bounds_given=lambda inner, facts: cast(Interval, self._bounds_of(inner)),
        )
        outputs = apply_rule(spec.interval, site, operands)
        if outputs is None or outputs[0].shape != self._shape:
            return None
        outputs[0].check()
        (self._values[id(op)],) = select_valid(op, outputs, operands)
        return OnCells(op, operands, outputs, self)

    def part(self, begin: int, end: int) -> _CellRun:
        """Return the same of the cells from one to before another."""
        values, read = (
            {key: _slice(x, begin, end) for key, x in known.items()} for known in (self._values, self._read)
        )
        return _CellRun(self._analysis, values, read)

    def _operand(self, field: Operation | np.ndarray) -> Interval:
        return self._read[id(field)] if id(field) in self._read else self._values[id(field)]

    def _bounds_of(self, field: Operation | np.ndarray) -> Interval | None:
        known = self._values if isinstance(field, Operation) and id(field) in self._values else self._read
        # Patterns read the rank and the elements of constants.
        if isinstance(field, Operation) and id(field) in known:
            return known[id(field)]
        return self._analysis.find_known(field)


def _merge(x: Interval) -> Interval:
    """Return the same bounds; those of one number for all elements are stored once."""
    if x.is_scalar:
        return x
    least, greatest = x.extremes
    return _unite(x) if least == greatest and x.dtype not in SIGNED else x


def _slice(x: Interval, begin: int, end: int) -> Interval:
    """Return some of the elements along the first dimension; of one element, which stands for all, that one."""
    if x.shape[:1] == (1,) or not x.shape:
        return x
    if x.lower.shape[0] == 1:
        return replace(x, shape=(end - begin, *x.shape[1:]))
    return replace(x, lower=x.lower[begin:end], upper=x.upper[begin:end], shape=(end - begin, *x.shape[1:]))


def _unite(x: Interval) -> Interval:
    """Return bounds of every element, in a tensor of one element of the same rank."""
    shape = (1,) * len(x.shape)
    return replace(Interval.fill(*x.extremes, shape, x.dtype), gap=x.gap)


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
