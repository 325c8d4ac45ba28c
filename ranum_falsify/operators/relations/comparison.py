"""Comparisons of two tensors by how they are computed, a <= b: shares of a whole, unions and their parts.

`sum(p * t)` is at most `sum(p)` where t lies in [0, 1], and an intersection at most each of the sets that it is of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from dnnv.nn import Operation

from ranum_falsify.domain.error_bounds import ELEMENTWISE_ROUNDINGS, sum_error, tiny, unit
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.relations.fused import error_inside
from ranum_falsify.operators.relations.matching import constant, fields_of, is_a, is_fit, kind, reduced_dims, source
from ranum_falsify.operators.relations.views import (
    View,
    are_positive,
    is_same_place,
    is_same_view,
    kind_in,
    lies_in_section,
    list_absent,
    look_through,
    lower_end,
    operand_views,
    upper_end,
    view_of,
)

_DEEPEST = 12
"""How many nodes back an order is looked for."""

_MOST = 300
"""How many comparisons one search may take: each may ask for several others."""

_TERMS = 6
"""Sums of more terms are not compared."""

ROUNDINGS = 16
"""Units of rounding of a few products, or of two sums of as many terms."""


class UpperBoundBy(NamedTuple):
    """By how much a computed number s may exceed another, l: s <= (1 + relative) l + absolute.

    A relative excess is only ever stated of numbers that are not negative.
    """

    relative: float
    absolute: float

    @property
    def is_none(self) -> bool:
        """Whether s is at most l."""
        return self.relative == self.absolute == 0.0


_NONE = UpperBoundBy(0.0, 0.0)


@dataclass(frozen=True)
class Effort:
    """How many nodes back an order is looked for, and one for each comparison that is left to all of a search."""

    depth: int = _DEEPEST
    comparisons: Iterator[int] = field(default_factory=lambda: iter(range(_MOST)))

    @property
    def deeper(self) -> Effort:
        """The effort from the operands of a node on."""
        return replace(self, depth=self.depth - 1)

    def spend(self) -> bool:
        """Take a comparison; False if none is left."""
        return self.depth > 0 and next(self.comparisons, None) is not None


def find_sets(
    site: Site, whole: View, part: View, effort: Effort | None = None
) -> tuple[View, View, UpperBoundBy] | None:
    """Return the two summands of a whole where neither is less than a part, and by how much that may exceed either."""
    whole = look_through(site, whole)
    sum_ = is_a(whole.field, "Add")
    views = None if sum_ is None else operand_views(site, whole)
    if sum_ is None or views is None or any(error_inside(site, x, torch.float32) for x in fields_of(sum_)):
        return None
    if not are_positive(site, *views, part):
        return None
    effort = effort or Effort()
    found = [prove_at_most(site, part, view, effort) for view in views]
    if len(found) != 2 or found[0] is None or found[1] is None:
        return None
    excess = UpperBoundBy(max(x.relative for x in found if x), max(x.absolute for x in found if x))
    return (views[0], views[1], excess) if excess.relative < 0.5 else None


# the order ------------------------------------------------------------------------------------------------------


def prove_at_most(site: Site, small: View, large: View, effort: Effort | None = None) -> UpperBoundBy | None:
    """Return by how much one view may exceed another of the same shape at each place; None if that is not known."""
    small, large = look_through(site, small), look_through(site, large)
    if is_same_view(small, large):
        return _NONE
    known, other = site.find_known(small.field), site.find_known(large.field)
    if known is None or other is None or not is_fit(known, other) or small.shape != large.shape:
        return None
    if known.extremes[1] <= other.extremes[0]:
        return _NONE
    effort = effort or Effort()
    if not effort.spend():
        return None
    for rule in (_by_both, _by_large, _by_small, _by_all, _by_addends, _by_terms, _by_union):
        found = rule(site, small, large, effort.deeper)
        if found is not None and math.isfinite(found.relative + found.absolute):
            return found
    return None


def _by_both(site: Site, small: View, large: View, effort: Effort) -> UpperBoundBy | None:
    """Compare what two nodes of one operator read."""
    name = kind_in(small)
    if name != kind_in(large):
        return _by_extremes(site, small, large)
    if name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"):
        return _by_reductions(site, small, large, effort)
    if name not in ("Mul", "Sub", "Clip", "Relu"):
        return None
    views, others = operand_views(site, small), operand_views(site, large)
    if views is None or others is None or len(views) != len(others):
        return None
    if name == "Mul":
        pairings = ((others[0], others[1]), (others[1], others[0]))
        return next(_present(_by_factors(site, views, pairing, effort) for pairing in pairings), None)
    if name == "Sub":
        rises = prove_at_most(site, views[0], others[0], effort)
        falls = None if rises != _NONE else prove_at_most(site, others[1], views[1], effort)
        return _NONE if falls == _NONE else None
    limits = zip(views[1:], others[1:], strict=True)
    if list_absent(small) != list_absent(large) or not all(is_same_view(*pair) or _is_equal(*pair) for pair in limits):
        return None
    found = prove_at_most(site, views[0], others[0], effort)
    return found if found is None or found.is_none or are_positive(site, small, large) else None


def _by_factors(site: Site, views: list[View], others: tuple[View, View], effort: Effort) -> UpperBoundBy | None:
    if not are_positive(site, *views, *others):
        return None
    found = [prove_at_most(site, view, other, effort) for view, other in zip(views, others, strict=True)]
    a, b = found
    if a is None or b is None:
        return None
    sizes = [upper_end(site, view) for view in others]
    relative = (1 + a.relative) * (1 + b.relative) - 1
    absolute = a.absolute * sizes[1] * (1 + b.relative) + b.absolute * sizes[0] * (1 + a.relative)
    return _rounded(site, others[0], relative, absolute + a.absolute * b.absolute)


def _by_reductions(site: Site, small: View, large: View, effort: Effort) -> UpperBoundBy | None:
    op, other = small.field, large.field
    assert isinstance(op, Operation) and isinstance(other, Operation)
    whole = _reduces_alike(site, small, large)
    views = None if whole is None else [view_of(site, fields_of(one)[0]) for one in (op, other)]
    if whole is None or views is None or views[0] is None or views[1] is None:
        return None
    found = prove_at_most(site, views[0], views[1], effort)
    if found is None or kind(op) in ("ReduceMax", "ReduceMin"):
        return found if found is None or found.is_none or are_positive(site, views[0], views[1]) else None
    if not are_positive(site, views[0], views[1]):
        return None
    error = sum_error(whole[1], whole[0].dtype, ELEMENTWISE_ROUNDINGS)
    if error > 0.1:
        return None
    lost = whole[1] * tiny(whole[0].dtype)
    share = whole[1] if kind(op) == "ReduceSum" else 1
    relative = (1 + found.relative) * (1 + error) / (1 - error) - 1
    return UpperBoundBy(relative, 2 * (found.absolute * share + 2 * lost))


def _reduces_alike(site: Site, small: View, large: View) -> tuple[Interval, int] | None:
    """Return bounds of what a node reduces, and how many numbers to one, where another reduces the same dimensions."""
    if not is_same_place(small, large):
        return None
    shapes, dims = list[Interval](), list[list[int]]()
    for view in (small, large):
        assert isinstance(view.field, Operation)
        operand, *axes = fields_of(view.field)
        x = site.find_known(operand)
        if x is None or not is_fit(x) or any(isinstance(field, Operation) for field in axes):
            return None
        shapes.append(x)
        dims.append(reduced_dims(view.field, len(x.shape), axes[0] if axes else None))
    if shapes[0].shape != shapes[1].shape or dims[0] != dims[1] or not dims[0]:
        return None
    return shapes[0], math.prod(shapes[0].shape[dim] for dim in dims[0])


def _by_extremes(site: Site, small: View, large: View) -> UpperBoundBy | None:
    """Compare the least element of a section with its greatest."""
    if (kind_in(small), kind_in(large)) != ("ReduceMin", "ReduceMax") or _reduces_alike(site, small, large) is None:
        return None
    views = [view_of(site, fields_of(view.field)[0]) for view in (small, large)]
    if views[0] is None or views[1] is None:
        return None
    return _NONE if is_same_view(*(look_through(site, view) for view in views if view)) else None


def _by_large(site: Site, small: View, large: View, effort: Effort) -> UpperBoundBy | None:
    """Compare with what the larger one is a maximum, a multiple, or the sum of."""
    name = kind_in(large)
    if name == "ReduceSum":
        return _NONE if are_positive(site, small) and lies_in_section(site, small, large) else None
    if name not in ("Max", "Relu", "Clip", "Mul"):
        return None
    views = operand_views(site, large)
    if views is None or (name == "Clip" and list_absent(large)[1:] != [True]):
        return None
    if name == "Mul":
        for view, factor in (views, views[::-1]):
            if are_positive(site, small, view) and lower_end(site, factor) >= 1:
                found = prove_at_most(site, small, view, effort)
                if found is not None:
                    return found if found.is_none else _rounded(site, large, found.relative, found.absolute)
        return None
    candidates = views if name == "Max" else views[:1]
    found_any = _present(prove_at_most(site, small, view, effort) for view in candidates)
    return next((x for x in found_any if x.is_none or are_positive(site, small, *candidates)), None)


def _by_small(site: Site, small: View, large: View, effort: Effort) -> UpperBoundBy | None:
    """Compare what the smaller one is a minimum or a share of, or what something was taken from."""
    name = kind_in(small)
    if name not in ("Min", "Mul", "Sub"):
        return None
    views = operand_views(site, small)
    if views is None:
        return None
    if name == "Mul":
        for view, factor in (views, views[::-1]):
            if are_positive(site, view, factor, large) and upper_end(site, factor) <= 1:
                found = prove_at_most(site, view, large, effort)
                if found is not None:
                    return _rounded(site, large, found.relative, found.absolute)
        return None
    if name == "Sub" and lower_end(site, views[1]) < 0:
        return None
    found_any = _present(prove_at_most(site, view, large, effort) for view in (views if name == "Min" else views[:1]))
    return next((x for x in found_any if x.is_none or are_positive(site, large, *views[:1])), None)


def _by_all(site: Site, small: View, large: View, effort: Effort) -> UpperBoundBy | None:
    """Compare a maximum, all of which must be less, or with a minimum, all of which must be more."""
    least = kind_in(small) != "Max"
    views = operand_views(site, large if least else small) if not least or kind_in(large) == "Min" else None
    if not views:
        return None
    found = [prove_at_most(site, *((small, view) if least else (view, large)), effort) for view in views]
    known = list(_present(iter(found)))
    if len(known) < len(found):
        return None
    worst = UpperBoundBy(max(x.relative for x in known), max(x.absolute for x in known))
    return worst if worst.is_none or are_positive(site, small, large) else None


def _by_addends(site: Site, small: View, large: View, effort: Effort) -> UpperBoundBy | None:
    """Compare a sum with a larger one, or with one of its terms, where both are added up as they are written."""
    views = _list_addends(site, large)
    if views is None:
        return None
    others = _list_addends(site, small)
    for view, beside in (views, views[::-1]):
        if others is not None:
            first = prove_at_most(site, others[0], view, effort)
            if first == _NONE and prove_at_most(site, others[1], beside, effort) == _NONE:
                return _NONE
        if are_positive(site, beside) and prove_at_most(site, small, view, effort) == _NONE:
            return _NONE
    return None


def _list_addends(site: Site, view: View) -> list[View] | None:
    """Return the two terms of a sum that every runtime rounds once: sums of three may be added up in another order."""
    if kind_in(view) != "Add":
        return None
    assert isinstance(view.field, Operation)
    fields, known = fields_of(view.field), site.find_known(view.field)
    regrouped = known is None or (len(known.shape) > 1 and any(is_a(field, "Add") for field in fields))
    if regrouped or any(error_inside(site, field, torch.float32) for field in fields):
        return None
    return operand_views(site, view)


def _by_terms(site: Site, small: View, large: View, effort: Effort) -> UpperBoundBy | None:
    """Compare the terms of a sum with those of another that has as many or more, none of them negative."""
    terms, others = _list_terms(site, small), _list_terms(site, large)
    if terms is None or others is None or not len(terms) <= len(others) or len(others) == 1:
        return None
    if not are_positive(site, *terms, *others):
        return None
    relative = absolute = 0.0
    for term in terms:
        for number, other in enumerate(others):
            found = prove_at_most(site, term, other, effort)
            if found is not None:
                relative, absolute = max(relative, found.relative), absolute + found.absolute
                del others[number]
                break
        else:
            return None
    return _rounded(site, large, relative, absolute)


def _list_terms(site: Site, view: View) -> list[View] | None:
    """Return the terms of a sum of a few numbers; None if there are many, or if products of matrices are among them."""
    waiting, found = [view], list[View]()
    while waiting:
        one = look_through(site, waiting.pop())
        if kind_in(one) != "Add":
            found.append(one)
        else:
            assert isinstance(one.field, Operation)
            views = operand_views(site, one)
            if views is None or any(error_inside(site, x, torch.float32) for x in fields_of(one.field)):
                return None
            waiting += views
        if len(waiting) + len(found) > _TERMS:
            return None
    return found


def _by_union(site: Site, small: View, large: View, effort: Effort) -> UpperBoundBy | None:
    """Compare c with a + b - c where c is at most each of a and b."""
    if kind_in(large) != "Sub":
        return None
    views = operand_views(site, large)
    if views is None or not is_same_view(look_through(site, views[1]), small):
        return None
    sets = find_sets(site, views[0], views[1], effort)
    if sets is None:
        return None
    excess, dtype = sets[2], _type_of(site, small)
    unions = (1 + excess.relative) / (1 - excess.relative - ROUNDINGS * unit(dtype))
    absolute = unions * (excess.absolute + 4 * tiny(dtype)) + excess.absolute
    return _rounded(site, large, unions - 1, absolute)


# views ----------------------------------------------------------------------------------------------------------


def _present(found: Iterator[UpperBoundBy | None]) -> Iterator[UpperBoundBy]:
    return (x for x in found if x is not None)


def _rounded(site: Site, view: View, relative: float, absolute: float) -> UpperBoundBy:
    """Return an excess with the roundings of a few operations."""
    dtype = _type_of(site, view)
    u = ROUNDINGS * unit(dtype)
    return UpperBoundBy((1 + relative) * (1 + u) - 1, absolute * (1 + u) + 4 * tiny(dtype))


def _type_of(site: Site, view: View) -> torch.dtype:
    known = site.find_known(view.field)
    assert known is not None
    return known.dtype


def _is_equal(a: View, b: View) -> bool:
    values = [constant(view.field) for view in (a, b)]
    return values[0] is not None and values[0] == values[1]


def bound_difference(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound a - b from below by 0 where b <= a is proved: max - min, |A| + |B| - |A and B|."""
    if not is_fit(a, b) or not _are_computed(site) or a.extremes[0] >= b.extremes[1]:
        return None
    whole, part = (view_of(site, field, site.shape) for field in fields_of(site.op))
    if whole is None or part is None:
        return None
    low = _bound_union(site, whole, part, a.dtype)
    if low is None:
        found = prove_at_most(site, part, whole)
        if found is None:
            return None
        low = 0.0 if found.is_none else -found.relative * a.extremes[1] - found.absolute
    bound = torch.full((1,) * len(site.shape), low, dtype=torch.float64)
    return round_outward(bound, torch.full_like(bound, math.inf), a.dtype, site.shape)


def bound_ratio(site: Site, a: Interval, b: Interval) -> Interval | None:
    """Bound a / b from above by 1, but for rounding, where a is never more than b, and neither is negative."""
    if not is_fit(a, b) or not _are_computed(site) or a.extremes[0] < 0 or b.extremes[0] <= 0:
        return None
    if a.extremes[1] <= b.extremes[0]:
        return None
    part, whole = (view_of(site, field, site.shape) for field in fields_of(site.op))
    found = None if part is None or whole is None else prove_at_most(site, part, whole)
    if found is None:
        return None
    most = 1 + found.relative + found.absolute / b.extremes[0]
    most = 1.0 if found.is_none else most * (1 + 2 * unit(a.dtype))
    return Interval.fill(0, most, site.shape, a.dtype) if most < torch.finfo(a.dtype).max else None


def _are_computed(site: Site) -> bool:
    return all(isinstance(source(field), Operation) for field in fields_of(site.op))


def _bound_union(site: Site, whole: View, part: View, dtype: torch.dtype) -> float | None:
    """Return a lower bound of a + b - c: that of the larger one of a and b where c is at most each of them."""
    sets = find_sets(site, whole, part)
    if sets is None:
        return None
    first, second, excess = sets
    low = max(lower_end(site, first), lower_end(site, second))
    return low * (1 - excess.relative - ROUNDINGS * unit(dtype)) - excess.absolute - 4 * tiny(dtype)
