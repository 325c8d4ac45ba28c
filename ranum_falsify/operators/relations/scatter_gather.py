"""Elements read at the places where others were added: graph networks normalise by sums over neighbours so."""

from __future__ import annotations

import math

import torch
from dnnv.nn import Operation

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.relations.matching import Field, fields_of, is_a, is_same, kind, source

_WRITERS = {"GatherND": "ScatterND", "GatherElements": "ScatterElements", "Gather": "ScatterElements"}


def what_was_added(site: Site, x: Interval, indices: Interval) -> Interval | None:
    """Bound what is read where numbers of one sign were added, by each of these numbers.

    A sum of such numbers is not nearer to 0 than any of them, however it is rounded and in whatever order.  The threads
    of ONNX Runtime's `ScatterND` do not wait for each other: they may lose all but one, and not the one in question.
    """
    writer = is_a(fields_of(site.op)[0], _WRITERS[kind(site.op)])
    if writer is None or not x.is_floating or not x.size or getattr(writer, "reduction", None) != "add":
        return None
    before, places, added = fields_of(writer)
    initial, updates = site.find_known(before), site.find_known(added)
    if initial is None or updates is None or initial.may_be_infinite or updates.may_be_infinite:
        return None
    if updates.shape != site.shape or not _reads_what_is_written(site, writer, places):
        return None
    least, greatest = updates.lower, updates.upper
    if kind(writer) == "ScatterND":
        least, greatest = least.min().expand_as(least), greatest.max().expand_as(greatest)
    if initial.extremes[0] >= 0 and updates.extremes[0] >= 0:
        return Interval.of(least, torch.full_like(greatest, math.inf), updates.shape)
    if initial.extremes[1] <= 0 and updates.extremes[1] <= 0:
        return Interval.of(torch.full_like(least, -math.inf), greatest, updates.shape)
    return None


def _reads_what_is_written(site: Site, writer: Operation, places: Field) -> bool:
    """Tell whether every element is read at the place where the update of the same position went."""
    read = fields_of(site.op)[1]
    if kind(site.op) == "GatherND":
        return is_same(read, places) and not getattr(site.op, "batch_dims", 0)
    indices = site.find_known(places)
    if indices is None or len(indices.shape) != len(site.shape):
        return False
    rank = len(site.shape)
    axis = int(writer.axis) % rank
    if int(site.op.axis) % rank != axis:
        return False
    if kind(site.op) == "GatherElements" or rank == 1:
        return is_same(read, places)
    return axis == 0 and is_same(read, _find_rows(site, places))


def _find_rows(site: Site, places: Field) -> Field:
    """Return the vector that holds the row of each update, where all elements of an update go to one row."""
    expand = is_a(places, "Expand")
    column = None if expand is None else fields_of(expand)[0]
    known = site.find_known(column)
    if known is None or math.prod(known.shape[1:]) != 1:
        return None
    while (op := is_a(column, "Unsqueeze", "Reshape")) is not None:
        column = fields_of(op)[0]
    vector, whole = site.find_known(column), site.find_known(places)
    if vector is None or whole is None or vector.shape != whole.shape[:1] or known.shape[:1] != whole.shape[:1]:
        return None
    # In front of a vector, `Expand` would add dimensions: then each row holds all of it.
    if len(known.shape) != len(whole.shape):
        return None
    return source(column)
