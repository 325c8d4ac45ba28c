"""Functions of rows that a graph spells out, as what they are together: softmax, standard scores, roots of squares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from dnnv.nn import Operation

from ranum_falsify.domain.kernels.envelopes import Runtime, envelope
from ranum_falsify.domain.linear.forms import Affine, Gated, Quotient, Spelled, SpelledRows
from ranum_falsify.domain.linear.probabilities import softmax_rows
from ranum_falsify.domain.linear.rows import RowFunction
from ranum_falsify.domain.linear.standardised import StandardisedRows
from ranum_falsify.domain.site import Site
from ranum_falsify.domain.slack import unit
from ranum_falsify.operators.relations.matching import (
    Field,
    fields_of,
    find_reduction,
    is_a,
    is_same,
    pairs,
    reach_reduction,
    source,
    square_of,
)
from ranum_falsify.operators.relations.quotients import find_inverse, root_of
from ranum_falsify.operators.relations.self_gated import product_form

__all__ = ["product_or_rows", "quotient_or_rows"]

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
    return _spelled(partial(_find_quotient, a, b), Quotient()) or Quotient()


def product_or_rows(op: Operation) -> Affine | Gated | Spelled:
    """Return how a product depends on its operands, one of which may be a reciprocal."""
    form = product_form(op)
    for x, factor in pairs(op):
        divisor = find_inverse(factor)
        if divisor is not None and isinstance(form, Affine):
            found = _spelled(partial(_find_score, x, divisor, inverted=True), form)
            if found is not None:
                return found
    return form


def _spelled(find: _Find, otherwise: Affine | Quotient) -> Spelled | None:
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


def _find_quotient(a: Field, b: Field, reduce: _Reduce) -> _Match | None:
    return _find_shares(a, b, reduce) or _find_score(a, b, reduce)


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


def _find_score(a: Field, b: Field, reduce: _Reduce, *, inverted: bool = False) -> _Match | None:
    """Return x, less its mean or not, divided by the root of the mean of its squares and an epsilon."""
    root = root_of(b)
    if root is None:
        return None
    inner, epsilon, added = root
    squares = reduce(inner, "ReduceMean")
    if squares is None or added or not epsilon > 0 or not is_same(square_of(squares[0]), a):
        return None
    function = partial(_scores, epsilon, inverted)
    difference = is_a(a, "Sub")
    if difference is not None:
        x, centre = fields_of(difference)
        mean = reduce(centre, "ReduceMean")
        if mean is not None and is_same(mean[0], x) and mean[1] == squares[1]:
            return _Match(x, squares[1], partial(function, True))
    return _Match(a, squares[1], partial(function, False))


def _scores(
    epsilon: float, inverted: bool, centred: bool, dtype: torch.dtype, runtimes: tuple[Runtime, ...], size: int
) -> RowFunction:
    # A product with a reciprocal rounds once more, and kernels of the reciprocal stray.
    further = 4 * unit(dtype) + 2 * envelope("Reciprocal", dtype, runtimes).relative if inverted else 0.0
    return StandardisedRows(epsilon, dtype, centred=centred, further=further)
