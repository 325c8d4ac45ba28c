"""Branch and bound over the operands of curves: where inputs are many, cutting these one after another leads nowhere.

A box is one of the whole input and of parts of the ranges of operands: with that of a rectifier cut at 0, both halves
know which of its two lines it is.  That an operand lies in its part reaches the bound by a multiplier of its own; the
slopes and multipliers of a box are where those of its halves begin.

Sources: S. Wang et al., Beta-CROWN: Efficient Bound Propagation with Per-neuron Split Constraints, 2021,
https://arxiv.org/abs/2103.06624; R. Bunel et al., Branch and Bound for Piecewise Linear Neural Network Verification,
2020, https://arxiv.org/abs/1909.06588 (BaBSR); A. De Palma et al., Improved Branch and Bound for Neural Network
Verification via Lagrangian Decomposition, 2021, https://arxiv.org/abs/2104.06718 (FSB).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ranum_falsify.domain.linear.backsubstitution import BoxBatch, Program, descend
from ranum_falsify.domain.linear.branching import Boxes, Branching, Cuts, Decision, halve, join
from ranum_falsify.domain.linear.functionals import Functional, LinearBounds
from ranum_falsify.domain.linear.relaxations import Lines
from ranum_falsify.domain.linear.slope_optimisation import ChosenBox, Multipliers, Planes, climb
from ranum_falsify.domain.linear.steps import CurveStep, flatten
from ranum_falsify.process.deadline import Deadline

_COEFFICIENTS = 1 << 18
"""Coefficients of one variable in one ascent over many boxes."""

_FEWEST, _MOST = 4, 256
"""Boxes of one batch."""

_ROOT_ROUNDS, _ROUNDS = 16, 4
"""Passes of the ascent on the whole box, and on others."""

_ROOT_RATE, _RATE = 0.5, 0.2
"""Lengths of their first steps."""

_TRIED = 3
"""Cuts of a box that are tried before one is made."""

_HALVINGS = 60
"""Steps of the search for a threshold."""

_LARGE = 1e30
"""In place of a bound that is infinite."""


def find_thresholds(is_proved: Decision, bounds: LinearBounds, sides: Tensor) -> Tensor | None:
    """Return bounds of some sides of a functional, each on its own, that together prove what is to be proved.

    Args:
        is_proved: Decides for each box.
        bounds: What is known, of one box.
        sides: Which rows, and then which of their negatives, may have better bounds: `(2 rows,)`, booleans.

    Returns:
        The bounds `(2 rows,)`; None if it does not suffice that each one is good enough whatever the others are.
    """
    known = torch.cat([bounds.lower, -bounds.upper], 1)[0]
    best = torch.cat([bounds.upper, -bounds.lower], 1)[0].nan_to_num(0.0, _LARGE, -_LARGE)
    best = torch.where(sides, torch.maximum(known, best), known)

    def proves(lower: Tensor) -> Tensor:
        low, high = lower.tensor_split(2, 1)
        return is_proved(replace(bounds, lower=low, upper=-high))

    chosen, number = sides.nonzero().flatten(), torch.arange(int(sides.sum()))
    low, high = known[chosen].nan_to_num(0.0, _LARGE, -_LARGE), best[chosen]
    for _ in range(_HALVINGS):
        middle, tried = (low + high) / 2, best.repeat(len(chosen), 1)
        tried[number, chosen] = middle
        enough = proves(tried)
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    together = known.index_put((chosen,), high)
    return together if bool(proves(together.unsqueeze(0)).all()) else None


class CurveBranching(Branching):
    """Boxes are cut along operands of curves, each for one side of the functional; their bounds are inherited."""

    def __init__(self, program: Program, functional: Functional, thresholds: Tensor, sides: Tensor) -> None:
        """Prepare.

        Args:
            program: The steps.
            functional: The functional.
            thresholds: Lower bounds `(2 rows,)` of its rows and their negatives that are good enough.
            sides: Those of them that are not known to hold.
        """
        super().__init__(program, functional)
        self._thresholds = thresholds
        self._curves = [i for i in self._order if isinstance(self._program.steps[i], CurveStep)]
        self._curves = [i for i in self._curves if self._program.steps[i].reads[0] in self._start]
        chosen = sides.nonzero().flatten()
        count, whole = len(chosen), BoxBatch(self._program, {})
        centre = (self.root.low[:, : self._width] + self.root.high[:, : self._width]) / 2
        multipliers = torch.zeros(count, self.root.low.shape[1] - self._width, dtype=torch.float64)
        self._plane_steps: list[tuple[int, int]] = []
        shares: list[Tensor] = []
        for number in self._order:
            step = self._program.steps[number]
            choice = step.find_choice([whole.box(v) for v in step.watched])
            starts = [] if choice is None else [x.expand(count, *x.shape[1:]) for x in choice.starts]
            self._plane_steps += [(number, len(starts))] if starts else []
            shares += starts
        own = (chosen, torch.zeros(count, dtype=torch.bool), centre.expand(count, -1), multipliers, *shares)
        self.root = Boxes(self.root.low.expand(count, -1), self.root.high.expand(count, -1), own)

    @property
    def most(self) -> int:
        """See :class:`Branching`."""
        return min(_MOST, max(_FEWEST, _COEFFICIENTS // self._largest))

    def bound(self, batch: Boxes, deadline: Deadline) -> Cuts:
        """See :meth:`Branching.bound`."""
        side, is_part = batch.own[:2]
        region, weights, constant = self._region(batch), self._weights(side), self._functional.constant[side]
        enough = self._thresholds[side]

        def is_enough(bounds: Tensor) -> bool:
            return bool((bounds + constant >= enough).all()) or deadline.has_passed

        first = not bool(is_part.any())
        rounds, rate = (_ROOT_ROUNDS, _ROOT_RATE) if first else (_ROUNDS, _RATE)
        lower = climb(weights, region, rounds=rounds, rate=rate, goes_on=True, is_enough=is_enough)
        region = _Seeing(region)
        last, ends = descend(weights, region)
        lower = torch.maximum(lower, last[:, 0]) + constant
        batch = Boxes(batch.low, batch.high, self._keep(batch, region, ends))
        open_ = ~(lower >= enough)
        scores, at = self._score(region, batch)
        return self._choose(batch[open_], scores[open_], at[open_], self._score_ends(ends, batch)[open_])

    def cut_out(self, boxes: Boxes, keep: int) -> tuple[tuple[Tensor, Tensor] | None, ...]:
        """Return the corners at which the bounds are attained."""
        corner = boxes.own[2]
        return super().cut_out(Boxes(corner, corner), keep)

    def _weights(self, side: Tensor) -> dict[int, Tensor]:
        return {v: weight[0, side].unsqueeze(1) for v, weight in self._functional.weights.items()}

    def _region(self, batch: Boxes) -> ChosenBox:
        """Return boxes with what is chosen for them, as far as that matters there."""
        variables = (*self._inputs, *self._watched)
        region = BoxBatch(self._program, {v: self._box(v, batch) for v in variables})
        multipliers, rest = batch.own[3], list(batch.own[4:])
        planes = {}
        for number, count in self._plane_steps:
            starts, rest = rest[:count], rest[count:]
            step = self._program.steps[number]
            choice = step.find_choice([region.box(v) for v in step.watched])
            if choice is not None:
                planes[number] = Planes(choice, starts)
        kept = {}
        for v in self._watched:
            part = slice(self._start[v], self._start[v] + self._size(v))
            cut = batch.low[:, part] > self.root.low[:1, part], batch.high[:, part] < self.root.high[:1, part]
            if bool((cut[0] | cut[1]).any()):
                shape = (len(batch), *self._program.variables[v].shape)
                start = multipliers[:, part.start - self._width : part.stop - self._width].reshape(shape)
                kept[v] = Multipliers(start, (cut[0].reshape(shape), cut[1].reshape(shape)), self._scale)
        return ChosenBox(region, planes, kept)

    @property
    def _scale(self) -> Tensor:
        return torch.stack([weight.abs().amax() for weight in self._functional.weights.values()]).amax()

    def _keep(self, batch: Boxes, region: _Seeing, ends: Mapping[int, Tensor]) -> tuple[Tensor, ...]:
        """Return what halves of boxes begin with."""
        multipliers, rest = batch.own[3].clone(), list(batch.own[4:])
        for v in self._watched:
            part = region.kept(v)
            if part is not None:
                start = self._start[v] - self._width
                multipliers[:, start : start + self._size(v)] = flatten(part.detach(), 1)
        shares: list[Tensor] = []
        for number, count in self._plane_steps:
            shares += [x.detach() for x in region.shares_of(number)] or rest[:count]
            rest = rest[count:]
        corners = [
            flatten(torch.where(ends[v][:, 0] > 0, *self._box(v, batch)), 1)
            if v in ends
            else flatten(self._box(v, batch)[0], 1)
            for v in self._inputs
        ]
        return batch.own[0], torch.ones_like(batch.own[1]), torch.cat(corners, 1), multipliers, *shares

    def _score(self, region: _Seeing, batch: Boxes) -> tuple[Tensor, Tensor]:
        """Return for each box and element how much a cut may give, and where it would be."""
        scores, at = torch.full_like(batch.low, -1.0), torch.zeros_like(batch.low)
        for number in self._curves:
            step = self._program.steps[number]
            assert isinstance(step, CurveStep), "only these were chosen"
            (v,) = step.reads
            box, y = region.box(v), region.prepare(number)
            assert isinstance(y, Lines), "curves are prepared to lines"
            cut, part = step.find_cut(box), slice(self._start[v], self._start[v] + self._size(v))
            gap = ((y.upper_slope - y.lower_slope) * cut + y.upper_offset - y.lower_offset).clamp(min=0)
            score = torch.where(step.find_bent(box), region.seen[number].abs() * gap, -1.0)
            scores[:, part] = torch.maximum(scores[:, part], flatten(score, 1))
            at[:, part] = flatten(cut, 1)
        return scores, at

    def _score_ends(self, ends: Mapping[int, Tensor], batch: Boxes) -> Tensor:
        return self._score_inputs([[ends.get(v, self._nothing(v, batch)) for v in self._inputs]], batch)

    def _nothing(self, variable: int, batch: Boxes) -> Tensor:
        return torch.zeros(len(batch), 1, *self._program.variables[variable].shape, dtype=torch.float64)

    def _choose(self, batch: Boxes, scores: Tensor, at: Tensor, of_inputs: Tensor) -> Cuts:
        """Return the best of some cuts of each box; along an input where no curve is bent."""
        number = torch.arange(len(batch))
        element = of_inputs.argmax(1)
        middle = ((batch.low + batch.high) / 2)[number, element]
        if not len(batch):
            return Cuts(batch, element, middle)
        value, columns = scores.topk(min(_TRIED, scores.shape[1]), dim=1)
        places = at.gather(1, columns)
        tried = range(columns.shape[1])
        halves = join([halve(batch, columns[:, i], places[:, i]) for i in tried])
        lower = descend(self._weights(halves.own[0]), self._region(halves))[0]
        worst = torch.where(value > 0, lower.reshape(len(tried), -1, 2).amin(2).t(), -math.inf)
        best, first = worst.max(1)
        # Where no bound is finite, the score decides.
        chosen = torch.where(best > -math.inf, first, 0)
        is_bent = value[:, 0] > 0
        element = torch.where(is_bent, columns[number, chosen], element)
        return Cuts(batch, element, torch.where(is_bent, places[number, chosen], middle))


class _Seeing(ChosenBox):
    """Boxes that keep what comes to their steps.

    Attributes:
        seen: The coefficients `(boxes, *shape)` of the first output of each step.
    """

    def __init__(self, region: ChosenBox) -> None:
        super().__init__(region, region.planes, region.multipliers)
        self.seen: dict[int, Tensor] = {}

    def see(self, number: int, weights: Sequence[Tensor]) -> None:
        """Keep the coefficients that come to a step."""
        self.seen[number] = weights[0][:, 0]

    def shares_of(self, number: int) -> list[Tensor]:
        """Return what is chosen of a step; nothing where there is no choice."""
        return self.planes[number].shares if number in self.planes else []
