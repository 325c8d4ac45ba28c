"""Functions of rows that a graph spells out, as what they are together.

What is standardised has closer bounds by its parts, whose variance passes narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from dnnv.nn import Operation

from ranum_falsify.domain.kernels.envelopes import Runtime, envelope
from ranum_falsify.domain.linear.forms import Quotient, Spelled, SpelledRows
from ranum_falsify.domain.linear.probabilities import softmax_rows
from ranum_falsify.domain.linear.rows import RowFunction
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.relations.matching import (
    Field,
    fields_of,
    find_reduction,
    is_a,
    is_same,
    reach_reduction,
    source,
)

__all__ = ["quotient_or_rows"]

_Reduction = tuple[Field, Sequence[int]]
_Reduce = Callable[[Field, str], _Reduction | None]
"""Returns what a field reduces by an operator, and over which dimensions."""

_Function = Callable[[torch.dtype, tuple[Runtime, ...], int], RowFunction]


@dataclass(frozen=True)
class _Match:
    """A function of rows of x.

    Attributes:
        x: The field x.
        dims: The dimensions of a row.
        function: The function, of a type, runtimes and the size of a row.
    """

    x: Field
    dims: Sequence[int]
    function: _Function


_Find = Callable[[_Reduce], _Match | None]


def quotient_or_rows(op: Operation) -> Quotient | Spelled:
    """Return how a quotient depends on its operands."""
    a, b = fields_of(op)
    return _spelled(partial(_find_shares, a, b), Quotient()) or Quotient()


def _spelled(find: _Find, otherwise: Quotient) -> Spelled | None:
    """Return the form of a node that may compute a function of rows; None if it is spelled in another way."""
    match = find(_reach)
    operand = None if match is None else source(match.x)
    if not isinstance(operand, Operation):
        return None

    def rows_of(site: Site, *operands: object) -> SpelledRows | None:
        known = find(partial(_find, site))
        return None if known is None else SpelledRows(known.dims, known.function)

    return Spelled(operand=operand, rows=rows_of, otherwise=otherwise)


def _reach(field: Field, op_type: str) -> _Reduction | None:
    """Return what a field may reduce, before shapes are known."""
    op = reach_reduction(field, op_type)
    return None if op is None else (source(fields_of(op)[0]), ())


def _find(site: Site, field: Field, op_type: str) -> _Reduction | None:
    found = find_reduction(site, field, op_type)
    return None if found is None else (found.operand, tuple(found.dims))


def _find_shares(a: Field, b: Field, reduce: _Reduce) -> _Match | None:
    """Return the softmax that exp(x - max(x)) divided by its sum is."""
    exponential, total = is_a(a, "Exp"), reduce(b, "ReduceSum")
    difference = None if exponential is None else is_a(fields_of(exponential)[0], "Sub")
    if total is None or difference is None or not is_same(total[0], a):
        return None
    x, greatest = fields_of(difference)
    found = reduce(greatest, "ReduceMax")
    if found is None or not is_same(found[0], x) or found[1] != total[1]:
        return None
    return _Match(x, total[1], _shares)


def _shares(dtype: torch.dtype, runtimes: tuple[Runtime, ...], size: int) -> RowFunction:
    return softmax_rows(size, dtype, envelope("Exp", dtype, runtimes))
