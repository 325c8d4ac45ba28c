"""Rows in which something is present: a choice of the largest elements is kept, a class has votes, the first is 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.softmax import has_finite_sections
from ranum_falsify.domain.rules.support.building import inherit_marks
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.operators.relations.matching import (
    EXACT,
    Field,
    behind,
    constant,
    fields_of,
    find_difference,
    find_reduction,
    is_a,
    is_same,
    kind,
    may_be_rounded_apart,
    pairs,
    reduced_dims,
    rounds_apart,
    source,
)
from ranum_falsify.operators.support.functions import ints

Dims = Callable[[Operation, int], Sequence[int]]
"""`dims(op, rank)`: the dimensions of a row."""

_LEAVING = {"Less": (0, 1), "Greater": (1, 0)}
"""Comparisons that are false of the largest element of a row: positions of the element and of the threshold."""

_KEEPING = {"GreaterOrEqual": (0, 1), "LessOrEqual": (1, 0)}
"""Comparisons that are true of it."""


def keeping_some(rule: IntervalRule, dims: Dims) -> IntervalRule:
    """Return a rule that marks bounds as NaN if a row may be all -Inf or have +Inf; see :func:`has_kept_sections`."""
    finite = has_finite_sections(dims)

    def marking(site: Site, x: Interval) -> Interval:
        y = rule(site, x)
        assert isinstance(y, Interval)
        valid = finite(site.op, {"x": x}) or _keeps_some(site, x, dims(site.op, len(x.shape)))
        return replace(y, nan=not valid)

    return inherit_marks(marking, rule)


def has_kept_sections(dims: Dims) -> Callable[[Operation, Mapping[str, Interval]], bool]:
    """Return the proof that no row of the operand `x` is all -Inf or has +Inf."""
    finite = has_finite_sections(dims)

    def holds(op: Operation, operands: Mapping[str, Interval]) -> bool:
        if finite(op, operands):
            return True
        chosen = is_a(fields_of(op)[0], "ScatterElements", "Where") is not None
        return chosen and "output" in operands and not operands["output"].nan

    return holds


def _keeps_some(site: Site, x: Interval, dims: Sequence[int]) -> bool:
    """Tell whether an element of every row is finite for a reason that lies in the nodes before."""
    if len(dims) != 1 or not x.is_floating or not x.size or bool((x.upper == math.inf).any()):
        return False
    axis = dims[0] % len(x.shape)
    written, chosen = is_a(fields_of(site.op)[0], "ScatterElements"), is_a(fields_of(site.op)[0], "Where")
    if written is not None:
        return _writes_to_all(site, written, x, axis)
    return chosen is not None and not may_be_rounded_apart(site, x) and _keeps_largest(site, chosen, x, axis)


def _is_finite(x: Interval | None) -> bool:
    return x is not None and x.is_floating and bool(x.size) and not x.may_be_infinite


def _writes_to_all(site: Site, scatter: Operation, x: Interval, axis: int) -> bool:
    """Tell whether a node writes a finite number to every row, in place of what is there."""
    _, indices, updates = fields_of(scatter)
    found, places = site.find_known(updates), site.find_known(indices)
    if places is None or not _is_finite(found) or str(getattr(scatter, "reduction", "none") or "none") != "none":
        return False
    along = scatter.axis % len(x.shape) == axis and len(places.shape) == len(x.shape)
    return along and all(n == x.shape[i] if i != axis else n > 0 for i, n in enumerate(places.shape))


def _keeps_largest(site: Site, where: Operation, x: Interval, axis: int) -> bool:
    """Tell whether a choice between x and something else leaves x where it is not below one of its largest."""
    condition, first, second = fields_of(where)
    negated = False
    while (op := is_a(condition, "Not", "Cast")) is not None:  # exporters cast conditions to what they are
        condition, negated = fields_of(op)[0], negated != (kind(op) == "Not")
    test = is_a(condition, *_LEAVING, *_KEEPING)
    if test is None:
        return False
    kept = first if (kind(test) in _KEEPING) != negated else second
    element, threshold = (_LEAVING | _KEEPING)[kind(test)]
    bounds = site.find_known(kept)
    if bounds is None or not _is_finite(bounds) or bounds.shape != x.shape:
        return False
    read = fields_of(test)
    return is_same(read[element], kept) and _is_of_row(site, read[threshold], kept, bounds, axis)


def _is_of_row(site: Site, threshold: Field, x: Field, bounds: Interval, axis: int) -> bool:
    """Tell whether a field holds one element of each row of x, which its largest is not below."""
    row = tuple(1 if i == axis else n for i, n in enumerate(bounds.shape))
    stands = site.find_known(threshold)
    if stands is None or stands.shape != row:
        return False
    largest = find_reduction(site, threshold, "ReduceMax")
    if largest is not None:
        return is_same(largest.operand, x) and largest.dims == [axis]
    read = source(threshold)
    # Nodes that change the shape alone leave the order of the rows.
    while (op := is_a(threshold, "Unsqueeze", "Squeeze", "Reshape")) is not None:
        threshold = fields_of(op)[0]
    picked = is_a(threshold, "Gather", "Slice")
    if picked is not None:
        if not _picks_along(site, picked, axis, len(bounds.shape)):
            return False
        threshold = fields_of(picked)[0]
    values = source(threshold)
    if values is not read and rounds_apart(site, bounds):
        return False
    if not isinstance(values, OutputSelect) or values.index != 0 or kind(values.operation) != "TopK":
        return False
    ranked = values.operation
    return is_same(fields_of(ranked)[0], x) and ranked.axis % len(bounds.shape) == axis


def _picks_along(site: Site, op: Operation, axis: int, rank: int) -> bool:
    """Tell whether a node picks elements along one axis of a tensor, and leaves the others alone."""
    known = site.find_known(fields_of(op)[0])
    if known is None or len(known.shape) != rank:
        return False
    if kind(op) == "Gather":
        return int(op.axis) % rank == axis
    axes = fields_of(op)[3]
    return isinstance(axes, np.ndarray) and {one % rank for one in ints(axes) or ()} == {axis}


_Summed: TypeAlias = tuple[bytes, tuple[int, ...] | None]
"""Axes and shape of a sum of votes."""

_MOVING = ("Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def sum_of_votes(site: Site, x: Interval, axes: np.ndarray | None) -> Interval | None:
    """Bound the votes for all classes together from below by one of them, as neighbours vote for their classes.

    A vote is a test `t == c` for a class c, as a number, perhaps times a weight. It counts for one class if t is chosen
    from a table of classes, and sums of numbers that are not negative are not less than any of these.
    """
    joined, rank = is_a(site.op.data, "Concat"), len(x.shape)
    if joined is None or not x.is_floating or not x.size or x.extremes[0] < 0:
        return None
    if joined.axis % rank not in reduced_dims(site.op, rank, axes):
        return None
    voter: Field = None
    weight: Field = None
    classes, summed = set[float](), set[_Summed]()
    for number, part in enumerate(fields_of(joined)):
        found = _find_vote(part)
        if found is None:
            return None
        total, tested, cast, times = found
        if number and not (is_same(tested, voter) and (is_same(times, weight) or times is weight is None)):
            return None
        voter, weight = tested, times
        classes.add(cast)
        summed.add(_read_sum(site, total))
    table = _find_table(voter)
    voters = site.find_known(voter)
    if table is None or voters is None or not {float(value) for value in table.flat} <= classes:
        return None
    # A class of more dimensions than the voters would repeat their votes, and move what is added up.
    if len(summed) != 1 or any(not axes or shape != voters.shape for axes, shape in summed):
        return None
    least = _least_weight(site, voters, weight)
    return None if least is None else Interval.fill(least, math.inf, site.shape, x.dtype)


def _read_sum(site: Site, total: Operation) -> _Summed:
    """Return along which axes a node adds up, nothing where that is not known, and the shape of what it adds up."""
    data, axes = fields_of(total)
    known = site.find_known(data)
    return axes.tobytes() if isinstance(axes, np.ndarray) else b"", None if known is None else known.shape


def _find_vote(part: Field) -> tuple[Operation, Field, float, Field] | None:
    """Return the sum of votes for a class, what is compared with the class, the class, and the weight, if any."""
    total = is_a(part, "ReduceSum")
    if total is None:
        return None
    for vote, weight in _factors(fields_of(total)[0]):
        test = is_a(behind(vote, "Cast"), "Equal")
        for tested, number in () if test is None else pairs(test):
            value = constant(number)
            if value is not None:
                return total, tested, value, weight
    return None


def _factors(term: Field) -> Iterator[tuple[Field, Field]]:
    product = is_a(term, "Mul")
    yield from [(term, None)] if product is None else pairs(product)


def _find_table(field: Field) -> np.ndarray | None:
    """Return the constant from which all elements of a field are chosen."""
    while (op := is_a(field, *_MOVING)) is not None:
        field = fields_of(op)[0]
    table = source(behind(field, "Gather", "ArrayFeatureExtractor"))
    if not isinstance(table, np.ndarray) or not table.size or table.dtype.kind not in "fiu":
        return None
    return table if bool((np.abs(table.astype(np.float64)) < EXACT).all()) else None


def _least_weight(site: Site, voters: Interval, weight: Field) -> float | None:
    """Return the least weight of a vote; None if there may be no vote, or if weights may be negative."""
    if not voters.size:
        return None
    if weight is None:
        return 1.0
    known = site.find_known(weight)
    if known is None or known.shape != voters.shape or known.may_be_infinite or known.extremes[0] < 0:
        return None
    return float(known.extremes[0])


def first_is_largest(rule: IntervalRule) -> IntervalRule:
    """Return the rule of `TopK`, which also knows the first element where all were shifted by the largest."""

    def ranked(site: Site, x: Interval, k: np.ndarray) -> tuple[Interval, Interval]:
        values, positions = cast(tuple[Interval, Interval], rule(site, x, k))
        rank = len(x.shape)
        dim = site.op.axis % rank
        descending = site.op.largest in (None, 1) and site.op.sorted != 0
        if not descending or not values.size or not _has_largest_zero(site, fields_of(site.op)[0], x, dim):
            return values, positions
        low, high = (_start_with_zero(bound, dim, values.shape[dim]) for bound in (values.lower, values.upper))
        return replace(values, lower=low, upper=high, gap=0.0), positions

    return inherit_marks(ranked, rule)


def _start_with_zero(bound: torch.Tensor, dim: int, count: int) -> torch.Tensor:
    """Return a bound that is 0 for the first element along a dimension."""
    sizes = [count if i == dim else n for i, n in enumerate(bound.shape)]
    whole = bound.expand(sizes)
    return torch.cat([torch.zeros_like(whole.narrow(dim, 0, 1)), whole.narrow(dim, 1, count - 1)], dim)


def _has_largest_zero(site: Site, field: Field, x: Interval, dim: int) -> bool:
    """Tell whether the largest element of each row along a dimension is 0."""
    if not x.is_floating or x.may_be_infinite or may_be_rounded_apart(site, x):
        return False
    while (scaled := is_a(field, "Mul", "Div")) is not None:
        first, second = fields_of(scaled)
        if is_a(scaled, "Mul") and constant(first) is not None:
            first, second = second, first
        factor, inner = constant(second), site.find_known(first)
        # A factor of more dimensions would move that which rows lie along.
        if factor is None or not 0 < factor < float("inf") or inner is None or inner.shape != x.shape:
            return False
        field = first
    found = find_difference(site, field, "ReduceMax")
    if found is None or found.x.shape != x.shape or found.x.may_be_infinite:
        return False
    return found.dims == [dim]
