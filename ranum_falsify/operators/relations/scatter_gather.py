"""Elements read at the places where others were added or compared: graph networks normalise over neighbours so."""

from __future__ import annotations

import math

import torch
from dnnv.nn import Operation

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.relations.matching import (
    Field,
    behind,
    fields_of,
    is_a,
    is_same,
    is_twin,
    kind,
    rounds_apart,
    source,
)

_RISING = {"max": (True, False), "min": (False, True)}
"""Whether what is kept is at least each number, and whether at most, by the reduction."""

_WRITERS = {"GatherND": "ScatterND", "GatherElements": "ScatterElements", "Gather": "ScatterElements"}


def what_was_written(site: Site, x: Interval, indices: Interval) -> Interval | None:
    """Bound what is read where greatest or least numbers were kept, or numbers of one sign were added, by each of them.

    A sum of such numbers is not nearer to 0 than any of them, however it is rounded and in whatever order.  The threads
    of ONNX Runtime's `ScatterND` do not wait for each other: they may lose all but one, and not the one in question.
    """
    writer = is_a(fields_of(site.op)[0], _WRITERS[kind(site.op)])
    if writer is None or not x.is_floating or not x.size or site.flushes:
        return None
    before, places, written = fields_of(writer)
    initial, updates = site.find_known(before), site.find_known(written)
    if initial is None or updates is None or initial.may_be_infinite or updates.may_be_infinite:
        return None
    if updates.shape != site.shape or not _reads_what_is_written(site, site.op, writer, places):
        return None
    least, greatest = updates.lower, updates.upper
    if kind(writer) == "ScatterND":
        least, greatest = least.min().expand_as(least), greatest.max().expand_as(greatest)
    rises, falls = _RISING.get(writer.reduction, (False, False))
    if writer.reduction == "add":
        signs = [one.extremes for one in (initial, updates)]
        rises, falls = all(low >= 0 for low, _ in signs), all(high <= 0 for _, high in signs)
    if rises and writer.reduction == "add" and kind(writer) == "ScatterElements":
        least = torch.maximum(least, _greatest_share(site, written, writer, updates))
    if rises:
        return Interval.of(least, torch.full_like(greatest, math.inf), updates.shape)
    return Interval.of(torch.full_like(least, -math.inf), greatest, updates.shape) if falls else None


def difference_to_written(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound x - m from above by 0, and m - x from below, for what is read where the greatest of x was kept."""
    first, second = fields_of(site.op)
    for x, field, bounds, opposite in ((first, second, a, 1), (second, first, b, -1)):
        writer = _find_keeper(site, x, field)
        if writer is not None and bounds.shape == site.shape and not site.flushes:
            is_below = _RISING[writer.reduction][0] == (opposite > 0)
            return Interval.fill(-math.inf if is_below else 0, 0 if is_below else math.inf, site.shape, bounds.dtype)
    return None


def _find_keeper(site: Site, x: Field, field: Field) -> Operation | None:
    """Return what kept the greatest or least of finite numbers where each of them now reads it, exactly."""
    reader = is_a(field, "GatherElements", "Gather")
    writer = is_a(behind(reader, "GatherElements", "Gather"), "ScatterElements")
    if reader is None or writer is None or writer.reduction not in _RISING:
        return None
    _, places, written = fields_of(writer)
    bounds = None if x is None else site.find_known(x)
    if bounds is None or not bounds.is_floating or bounds.may_be_infinite or rounds_apart(site, bounds):
        return None
    return writer if is_same(written, x) and _reads_what_is_written(site, reader, writer, places) else None


def _greatest_share(site: Site, written: Field, writer: Operation, updates: Interval) -> torch.Tensor:
    """Bound from below what is added somewhere by one of its updates, exp(x - m) where m is the greatest x there.

    One of the numbers is m, so that exp(0) is among those that are added.
    """
    nothing = torch.zeros_like(updates.lower)
    exponential, difference = is_a(written, "Exp"), is_a(behind(written, "Exp"), "Sub")
    if exponential is None or difference is None:
        return nothing
    x, field = fields_of(difference)
    keeper = _find_keeper(site, x, field)
    if keeper is None or keeper.reduction != "max" or keeper.axis != writer.axis:
        return nothing
    places = fields_of(keeper)[1]
    bounds, initial = None if x is None else site.find_known(x), _find_initial(site, keeper)
    if bounds is None or initial is None or not _are_alike(site, places, fields_of(writer)[1]):
        return nothing
    if initial.extremes[1] > bounds.extremes[0]:
        return nothing
    zero = Interval.fill(0, 0, bounds.shape, bounds.dtype)
    return torch.maximum(nothing, site.bounds_given(exponential, [(difference, zero)]).lower.min())


def _find_initial(site: Site, keeper: Operation) -> Interval | None:
    """Return bounds of which no number was greater where others were compared with it, before they were.

    Often a number was written there just before, as PyTorch does where the first ones are not to count.
    """
    before, places, _ = fields_of(keeper)
    writer = is_a(before, "ScatterElements")
    if writer is None or writer.axis != keeper.axis or getattr(writer, "reduction", None) not in (None, "none", "min"):
        return None if before is None else site.find_known(before)
    _, others, written = fields_of(writer)
    return site.find_known(written) if _are_alike(site, others, places) and written is not None else None


def _reads_what_is_written(site: Site, reader: Operation, writer: Operation, places: Field) -> bool:
    """Tell whether every element is read at the place where the update of the same position went."""
    read, result = fields_of(reader)[1], site.find_known(reader) if reader is not site.op else None
    shape = site.shape if result is None else result.shape
    if kind(reader) == "GatherND":
        return _are_alike(site, read, places) and not getattr(reader, "batch_dims", 0)
    indices = site.find_known(places)
    if indices is None or len(indices.shape) != len(shape):
        return False
    rank = len(shape)
    axis = int(writer.axis) % rank
    if int(reader.axis) % rank != axis:
        return False
    if kind(reader) == "GatherElements" or rank == 1:
        return _are_alike(site, read, places)
    return axis == 0 and _are_alike(site, read, _find_rows(site, places))


def _are_alike(site: Site, a: Field, b: Field) -> bool:
    """Tell whether two fields hold the same positions."""
    return a is not None and b is not None and is_twin(_find_made(site, a), _find_made(site, b))


def _find_made(site: Site, field: Field) -> Field:
    """Return what made a tensor, before nodes that leave its shape and its type as they are."""
    while (op := is_a(field, "Reshape", "Cast", "CastLike", "Unsqueeze", "Squeeze", "Expand")) is not None:
        known, before = site.find_known(op), site.find_known(fields_of(op)[0])
        if known is None or before is None or (known.shape, known.dtype) != (before.shape, before.dtype):
            break
        field = fields_of(op)[0]
    return source(field)


def _find_rows(site: Site, places: Field) -> Field:
    """Return the vector that holds the row of each update, where all elements of an update go to one row."""
    column = _find_made(site, places)
    if is_a(column, "Expand"):
        column = _find_made(site, behind(column, "Expand"))
    known = site.find_known(column)
    if known is None or math.prod(known.shape[1:]) != 1:
        return None
    while (op := is_a(column, "Unsqueeze", "Reshape")) is not None:
        column = _find_made(site, fields_of(op)[0])
    vector, whole = site.find_known(column), site.find_known(places)
    if vector is None or whole is None or vector.shape != whole.shape[:1] or known.shape[:1] != whole.shape[:1]:
        return None
    # In front of a vector, `Expand` would add dimensions: then each row holds all of it.
    if len(known.shape) != len(whole.shape):
        return None
    return source(column)
