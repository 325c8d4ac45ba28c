"""Products of two operands: a step between McCormick's planes, in the middle of these or wherever each term is closest.

Source: G. McCormick, Computability of Global Solutions to Factorable Nonconvex Programs, 1976.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import double_share
from ranum_falsify.domain.linear.steps import Box, PlaneChoice, Step, dot, pull_back
from ranum_falsify.lazy import cached_property

_MOST_TERMS = 1 << 16
"""Terms of a product above which planes are not chosen."""

_MOST_TRIED = 1 << 24
"""Results of all products with one element of the first operand, where terms are looked for."""

_ROUNDING = 1e-12
"""The most, relative, by which a factor times a number may differ from what the function makes of it."""


@dataclass(frozen=True)
class _Terms:
    """What a bilinear function adds up: `result[i] += factor * first[j] * second[k]`; all are `(terms,)`.

    Attributes:
        results: The elements i, by their place in the flat tensor.
        first: The elements j.
        second: The elements k.
        factors: What each term is multiplied by.
    """

    results: Tensor
    first: Tensor
    second: Tensor
    factors: Tensor

    @classmethod
    def find(
        cls, function: Callable[[Tensor, Tensor], Tensor], shapes: Sequence[tuple[int, ...]], size: int
    ) -> _Terms | None:
        """Return the terms of a function; None if there are too many, or several of one result and first element.

        Args:
            function: The function; its constant is left out.
            shapes: Shapes of its operands.
            size: How many results it has.
        """
        first, second = (math.prod(shape) for shape in shapes)
        if not 0 < first * size <= _MOST_TRIED:
            return None
        nothing = function(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))
        alone = torch.eye(first, dtype=torch.float64).reshape(first, *shapes[0])

        def multiply(second: Tensor) -> Tensor:
            return (torch.func.vmap(function, (0, None))(alone, second.reshape(shapes[1])) - nothing).reshape(first, -1)

        ones, places = torch.ones(second, dtype=torch.float64), torch.arange(1.0, second + 1, dtype=torch.float64)
        factors = multiply(ones)
        at, results = factors.nonzero(as_tuple=True)
        if len(at) > _MOST_TERMS:
            return None
        factors = factors[at, results]
        found = cls(results, at, (multiply(places)[at, results] / factors).round().long() - 1, factors)
        # Several terms of one result and element look like one to the sums above, but not to any others.
        some = torch.rand(second, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1
        is_known = bool(((found.second >= 0) & (found.second < second)).all())
        expected = torch.zeros(first, size, dtype=torch.float64)
        if is_known:
            expected[at, results] = factors * some[found.second]
        return found if is_known and torch.allclose(multiply(some), expected, rtol=_ROUNDING, atol=0.0) else None


@dataclass(frozen=True)
class _ChosenPlanes:
    """Boxes of both operands, and where each term is expanded: `(boxes, terms)`, from 0 to 1."""

    boxes: Sequence[Box]
    shares: Tensor


class ProductStep(Step):
    """A function of two operands that is linear in each, expanded around the centres of their boxes.

    With f = g + constant, centres c and radii r, g(x, y) = g(x, cy) + g(cx, y) - g(cx, cy) + g(x - cx, y - cy), and
    the last is at most |g|(rx, ry): the mean of McCormick's two planes on either side.  Where planes are chosen, each
    term is expanded around c + s r of both operands or around c + s r and c - s r, for an s from -1 to 1: then the last
    is at most rx ry (1 - s^2).
    """

    def __init__(
        self,
        reads: tuple[int, int],
        write: int,
        function: Callable[[Tensor, Tensor], Tensor],
        shapes: Sequence[tuple[int, ...]],
        magnitude: Callable[[Tensor, Tensor], Tensor],
        error: Callable[[], Tensor],
        work: int,
    ) -> None:
        """Prepare.

        Args:
            reads: Variables of the operands.
            write: Variable of the result.
            function: The function, constant included.
            shapes: Shapes of the operands.
            magnitude: The part that depends on both operands, given their magnitudes, with all terms of one sign.
            error: Returns the most by which results may stray from it.
            work: See :class:`Step`.
        """
        self.reads, self.writes, self.watched = reads, (write,), reads
        self._function, self._magnitude, self._error_of, self._shapes = function, magnitude, error, shapes
        self._offset = function(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes)).unsqueeze(0)
        self.work = work
        self.choices = work // 2 if work <= 2 * _MOST_TERMS else 0

    @cached_property
    def _error(self) -> Tensor:
        return self._error_of().expand(self._offset.shape)

    @cached_property
    def _terms(self) -> _Terms | None:
        return _Terms.find(self._function, self._shapes, self._offset.numel()) if self.choices else None

    def find_choice(self, boxes: Sequence[Box]) -> PlaneChoice | None:
        """See :meth:`Step.find_choice`: where each term is expanded."""
        if self._terms is None:
            return None
        middle = torch.full((1, len(self._terms.factors)), 0.5, dtype=torch.float64)
        return PlaneChoice([middle], lambda shares: _ChosenPlanes(boxes, shares[0]))

    def back(self, weights: Sequence[Tensor], known: object) -> tuple[tuple[Tensor, ...], Tensor]:
        """See :meth:`Step.back`."""
        if isinstance(known, _ChosenPlanes):
            return self._expand(weights[0], known)
        return self._expand_centrally(weights[0], cast(Sequence[Box], known))

    def _expand_centrally(self, weight: Tensor, boxes: Sequence[Box]) -> tuple[tuple[Tensor, ...], Tensor]:
        centres, radii = zip(*map(_centre, boxes), strict=True)
        count = weight.shape[0]
        sized = [c.expand(count, *c.shape[1:]).clone().requires_grad_() for c in centres]
        with torch.enable_grad():
            middle = torch.func.vmap(self._function)(*sized)
        # Boxes do not mix, so that one product with the derivative serves all of them.
        pulled = tuple(x.transpose(0, 1) for x in pull_back([middle], sized, [weight.transpose(0, 1)]))
        middle = middle.detach()
        spare = torch.func.vmap(self._magnitude)(*(r.expand(count, *r.shape[1:]) for r in radii))
        constant = dot(weight, 2 * self._offset - middle) - dot(weight.abs(), spare + self._error)
        return pulled, constant

    def _expand(self, weight: Tensor, known: _ChosenPlanes) -> tuple[tuple[Tensor, ...], Tensor]:
        of = self._terms
        assert of is not None, "only terms are chosen for"
        (first, reach), (second, span) = (
            [part.reshape(len(part), 1, -1)[..., places] for part in _centre(box)]
            for box, places in zip(known.boxes, (of.first, of.second), strict=True)
        )
        at = (2 * known.shares - 1).unsqueeze(1)
        each = weight.reshape(*weight.shape[:2], -1)[..., of.results] * of.factors
        x, y = first + at * reach, second + torch.where(each < 0, -at, at) * span
        # Factors, too, are known but for their rounding.
        rounding = 4 * (double_share(len(of.factors)) + _ROUNDING)
        size = (first.abs() + reach) * (second.abs() + span)
        lost = each.abs() * (reach * span * (1 - at.square()) + rounding * size)
        constant = dot(weight, self._offset) - dot(weight.abs(), self._error)
        constant = constant - (each * x * y).sum(-1) - lost.sum(-1)
        passed = (each * y, of.first), (each * x, of.second)
        rows = weight.shape[:2]
        return tuple(
            torch.zeros(*rows, math.prod(shape), dtype=torch.float64).index_add(2, places, part).reshape(*rows, *shape)
            for (part, places), shape in zip(passed, self._shapes, strict=True)
        ), constant


def _centre(box: Box) -> Box:
    """Return the centre and the radius of a box."""
    low, high = box
    centre = (low + high) / 2
    return centre, torch.maximum(high - centre, centre - low) * (1 + double_share(1))
