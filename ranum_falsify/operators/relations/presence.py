"""Rows of which some elements are set to minus infinity, yet never all: a choice of the largest ones is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.softmax import has_finite_sections
from ranum_falsify.domain.rules.support.building import inherit_marks
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.operators.relations.matching import (
    Field,
    fields_of,
    find_reduction,
    is_a,
    is_same,
    kind,
    may_be_rounded_apart,
    rounds_apart,
    source,
)
from ranum_falsify.operators.support.functions import ints

__all__ = ["has_kept_sections", "keeping_some"]

Dims = Callable[[Operation, int], Sequence[int]]
"""`dims(op, rank)`: the dimensions of a row."""

_LEAVING = {"Less": (0, 1), "Greater": (1, 0)}
"""Comparisons that are false of the largest element of a row: positions of the element and of the threshold."""

_KEEPING = {"GreaterOrEqual": (0, 1), "LessOrEqual": (1, 0)}
"""Comparisons that are true of it."""


def keeping_some(rule: IntervalRule, dims: Dims) -> IntervalRule:
    """Return a rule that says by `nan` whether a row may be all -Inf or have +Inf; :func:`has_kept_sections` reads it.

    Args:
        rule: Rule of an operator that normalises rows.
        dims: The dimensions of a row.
    """
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
