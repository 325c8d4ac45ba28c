"""Votes for classes: whoever votes, votes for one of them, so that all classes together have votes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from dnnv.nn import Operation

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.relations.matching import (
    Field,
    constant,
    fields_of,
    is_a,
    is_same,
    pairs,
    reduced_dims,
    source,
)

__all__ = ["sum_of_votes"]

_EXACT = 2.0**53
"""Whole numbers below it are told apart as float64."""

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
        cast = is_a(vote, "Cast")
        test = None if cast is None else is_a(fields_of(cast)[0], "Equal")
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
    chosen = is_a(field, "Gather", "ArrayFeatureExtractor")
    table = None if chosen is None else source(fields_of(chosen)[0])
    if not isinstance(table, np.ndarray) or not table.size or table.dtype.kind not in "fiu":
        return None
    return table if bool((np.abs(table.astype(np.float64)) < _EXACT).all()) else None


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
