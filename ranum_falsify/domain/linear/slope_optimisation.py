"""Bounds of steps, improved for each functional by gradient ascent on its lower bound.

Lines of any slope are sound, and so are planes at any point; each bound comes of a whole pass with these as they are,
so that bounds hold however far the ascent gets.

Source: K. Xu et al., Fast and Complete: Enabling Complete Verification with Massively Parallel Incomplete Verifiers,
2021, https://arxiv.org/abs/2011.13824 (alpha-CROWN).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ranum_falsify.domain.linear.backsubstitution import BoxBatch, descend
from ranum_falsify.domain.linear.steps import PlaneChoice

_ROUNDS = 8
"""Passes of one ascent."""

_NARROWING_ROUNDS = 4
"""Passes of the ascent on each element of a tensor inside the network."""

NARROWING_PASSES = 4 * _NARROWING_ROUNDS - 3
"""The time of that, in passes without derivatives."""

_MOST_KEPT = 1 << 28
"""Bytes of what a record keeps."""

_LEVELS = 255
"""What is kept is rounded to this many steps from 0 to 1."""

_RATE, _DECAY = 0.5, 0.75
"""Length of the first step, as a share of the range of what is chosen, and that of each later one of the one before."""

_MEMORY = 0.5
"""Share of earlier gradients in the direction of a step."""


def ascend(weights: dict[int, Tensor], region: BoxBatch) -> Tensor:
    """Return lower bounds of linear functionals over one box, each with bounds of steps of its own.

    Args:
        weights: Coefficients `(1, rows, *shape)` by variable, of at least one.
        region: The box.

    Returns:
        The bounds `(rows,)`, the best of all passes.
    """
    turned = _turn(weights)
    return climb(turned, _choose_for(turned, region))


def _turn(weights: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """Return coefficients of rows as those of boxes: what is done for each box is done for each row, then."""
    return {v: weight.transpose(0, 1).contiguous() for v, weight in weights.items()}


def _choose_for(turned: Mapping[int, Tensor], region: BoxBatch) -> ChosenBox:
    """Return a box in which each functional may choose."""
    return ChosenBox(region, _find_choices(region, list(turned), len(next(iter(turned.values())))))


class TensorSlopes:
    """What ascents chose for elements of one tensor and their negatives.

    Attributes:
        shape: Its shape.
    """

    def __init__(self, shape: tuple[int, ...], room: int) -> None:
        """Start with nothing.

        Args:
            shape: The tensor's shape.
            room: Bytes that may be kept.
        """
        self.shape, self._room = shape, room
        self._row_of = torch.full((math.prod(shape),), -1)
        self._shares: list[Tensor] = []

    @property
    def bytes(self) -> int:
        """Memory of all."""
        return sum(share.numel() for share in self._shares)

    def knows(self, elements: Tensor) -> bool:
        """Tell whether something is kept for each of some elements, given by their places."""
        return bool((self._row_of[elements] >= 0).all())

    def ascend(self, elements: Tensor, weights: dict[int, Tensor], region: BoxBatch) -> Tensor:
        """Return lower bounds of elements and of their negatives, with what is kept for them if that is known.

        Args:
            elements: Their places.
            weights: See :func:`ascend`; rows of the elements, then of their negatives.
            region: Likewise.

        Returns:
            The bounds `(2 elements,)`.
        """
        turned = _turn(weights)
        region = _choose_for(turned, region)
        shares = [share for of in region.chosen for share in of.shares]
        if self.knows(elements) and [x.shape[1:] for x in shares] == [x.shape[2:] for x in self._shares]:
            for share, kept in zip(shares, self._shares, strict=True):
                share.detach().copy_(kept[self._row_of[elements]].transpose(0, 1).flatten(0, 1) / _LEVELS)
            return climb(turned, region, rounds=1)
        found = climb(turned, region, rounds=_NARROWING_ROUNDS)
        self._keep(elements, shares)
        return found

    def _keep(self, elements: Tensor, shares: Sequence[Tensor]) -> None:
        count = len(elements)
        rows = [share.detach().mul(_LEVELS).round().to(torch.uint8) for share in shares]
        rows = [row.unflatten(0, (2, count)).transpose(0, 1) for row in rows]
        if self.bytes + sum(row.numel() for row in rows) > self._room:
            return
        before = len(self._shares[0]) if self._shares else 0
        fits = [x.shape[1:] for x in rows] == [x.shape[1:] for x in self._shares]
        if not fits:
            self._row_of.fill_(-1)
            before = 0
        self._row_of[elements] = torch.arange(before, before + count)
        self._shares = [torch.cat(pair) for pair in zip(self._shares, rows, strict=True)] if fits else rows


class SlopeRecord:
    """What ascents inside a network chose, for another analysis of much the same graph to begin with.

    The tensors of both correspond by order and shape.  Any choice is sound: a wrong guess costs closeness alone.
    """

    def __init__(self) -> None:
        self._tensors: list[TensorSlopes] = []
        self._position = 0

    def rewind(self) -> None:
        """Begin with the first tensor again."""
        self._position = 0

    def follow(self, shape: tuple[int, ...]) -> TensorSlopes:
        """Return what is kept of the next tensor, which is of some shape."""
        known = self._tensors[self._position :]
        if not known or known[0].shape != shape:
            del self._tensors[self._position :]
            self._tensors.append(TensorSlopes(shape, _MOST_KEPT - sum(of.bytes for of in self._tensors)))
        self._position += 1
        return self._tensors[self._position - 1]


def climb(
    weights: dict[int, Tensor],
    region: ChosenBox,
    *,
    rounds: int = _ROUNDS,
    rate: float = _RATE,
    goes_on: bool = False,
    is_enough: Callable[[Tensor], bool] = lambda bounds: False,
) -> Tensor:
    """Return lower bounds of linear functionals, the best of all passes; what is chosen for the region gets better.

    Args:
        weights: Coefficients `(functionals, 1, *shape)` by variable, of at least one.
        region: One box for all functionals or one for each, and what is chosen for them.
        rounds: How many passes, at most.
        rate: Length of the first step.
        goes_on: Whether the last pass is followed by a step, too.
        is_enough: Tells whether some bounds `(functionals,)` need not be better.
    """
    count = len(next(iter(weights.values())))
    best = torch.full((count,), -torch.inf, dtype=torch.float64)
    chosen = region.chosen
    last = rounds - 1 if chosen else 0
    for number in range(last + 1):
        region.renew()
        steps = goes_on or number < last
        with torch.set_grad_enabled(steps):
            bound = descend(weights, region)[0][:, 0]
            # A functional without a bound has no direction either.
            total = torch.where(bound.isfinite(), bound, 0.0).sum()
        best = torch.maximum(best, bound.detach())
        if is_enough(best) or not steps:
            break
        if total.requires_grad:
            shares = [share for of in chosen for share in of.shares]
            gradients = iter(torch.autograd.grad(total, shares, allow_unused=True))
            for of in chosen:
                of.step([next(gradients) for _ in of.shares], rate)
        rate *= _DECAY
    return best


class Chosen:
    """Numbers that are chosen for each of some functionals.

    Attributes:
        shares: The numbers, `(functionals, ...)` each.
    """

    def __init__(self, starts: Sequence[Tensor]) -> None:
        self.shares = [x.clone().requires_grad_() for x in starts]
        self._directions = [torch.zeros_like(share) for share in self.shares]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor | None], rate: float) -> None:
        """Move the numbers along the signs of the gradients."""
        for share, direction, gradient in zip(self.shares, self._directions, gradients, strict=True):
            if gradient is not None:
                direction.mul_(_MEMORY).add_(gradient.nan_to_num(0.0, 0.0, 0.0).sign())
                share.add_(direction * self.scale, alpha=rate * (1 - _MEMORY))
                self.restrict(share)

    @property
    def scale(self) -> Tensor:
        """The range of the numbers."""
        return torch.ones((), dtype=torch.float64)

    def restrict(self, share: Tensor) -> None:
        """Move numbers to where they may be."""
        share.clamp_(0, 1)


class Planes(Chosen):
    """The bounds of one step."""

    def __init__(self, choice: PlaneChoice, starts: Sequence[Tensor]) -> None:
        super().__init__(starts)
        self._make = choice.make

    def make(self) -> object:
        """Return what the step knows of the box."""
        return self._make(self.shares)


class Multipliers(Chosen):
    """Parts of the coefficients of one variable that meet its bounds; see :meth:`BoxBatch.kept`.

    Source: S. Wang et al., Beta-CROWN: Efficient Bound Propagation with Per-neuron Split Constraints, 2021,
    https://arxiv.org/abs/2103.06624.
    """

    def __init__(self, start: Tensor, cut: tuple[Tensor, Tensor], scale: Tensor) -> None:
        """Start.

        Args:
            start: The parts, `(functionals, *shape)`.
            cut: Where the lower bound is from a cut, and where the upper one is; elsewhere there are no parts.
            scale: What coefficients there may be, roughly.
        """
        super().__init__([start])
        below, above = cut
        self._range = torch.where(above, -torch.inf, 0.0), torch.where(below, torch.inf, 0.0)
        self._scale = scale

    @property
    def scale(self) -> Tensor:
        """See :class:`Chosen`."""
        return self._scale

    def restrict(self, share: Tensor) -> None:
        """See :class:`Chosen`."""
        share.clamp_(*self._range)


class ChosenBox(BoxBatch):
    """Boxes, with what is chosen for some steps and variables.

    Attributes:
        planes: What is chosen of steps, by their number.
        multipliers: What is chosen for variables.
        chosen: All of it.
    """

    def __init__(
        self, region: BoxBatch, planes: Mapping[int, Planes], multipliers: Mapping[int, Multipliers] | None = None
    ) -> None:
        super().__init__(region.program, region.boxes)
        self.planes, self.multipliers = planes, multipliers or {}
        self.chosen: list[Chosen] = [*self.planes.values(), *self.multipliers.values()]

    def renew(self) -> None:
        """Have the steps prepared anew."""
        for number in self.planes:
            self._prepared.pop(number, None)

    def compute(self, number: int) -> object:
        """Return what a step knows of the box."""
        return self.planes[number].make() if number in self.planes else super().compute(number)

    def kept(self, variable: int) -> Tensor | None:
        """See :class:`BoxBatch`."""
        return self.multipliers[variable].shares[0] if variable in self.multipliers else None


def _find_choices(region: BoxBatch, targets: Sequence[int], rows: int) -> dict[int, Planes]:
    """Return the choices that steps before some variables leave."""
    found = {}
    for number in region.program.select_before(targets):
        step = region.program.steps[number]
        choice = step.find_choice([region.box(v) for v in step.watched])
        if choice is not None:
            found[number] = Planes(choice, [x.expand(rows, *x.shape[1:]) for x in choice.starts])
    return found
