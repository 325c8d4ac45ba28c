"""Searches for training data after which operands are exact numbers: 0 to the last bit, or such as kernels fail at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.verify.replay.confirmer import feeds_of
from ranum_falsify.verify.search.aiming import Aiming
from ranum_falsify.verify.search.bisection import Bisection, Observation
from ranum_falsify.verify.search.kernels import find_paths
from ranum_falsify.verify.search.scan import NEAR
from ranum_falsify.verify.search.starts import Box
from ranum_falsify.witness.training.search import DataSearch, Found

_SOLVED = 3
"""Elements for which a round computes a Jacobian."""

_WITHIN = 0.9
"""Share of a sample of the weights that data have to be able to take to 0, each on its own."""

_NEAR = 1e-4
"""How near to 0 all weights have to come at first."""

_ELEMENTS = 16
"""Elements of the operand that a round tries, most of which no datum moves."""

_MOST = 2048
"""Weights that are aimed at together; the cost of a Jacobian grows with their square."""

_ROWS = 64
"""Rows of the Jacobian that are computed together."""

_STEPS = 40
"""Steps with one Jacobian."""

_WHOLE = 6
"""Steps before those that go only half way for some weights."""

_STEP_SHARES: tuple[float, ...] = tuple(2.0 ** (exponent / 2) for exponent in range(-12, 13))
"""Shares of a step that are compared while weights are far from 0."""

_SHAKES = 8
"""Trials after which weights that rounding keeps from 0 are given up."""

_BELOW = 1 - 2.0**-19
"""How far below a power of two the factor is made that links data and weights."""

_MATCHED = 1e-3
"""Relative error of a product up to which a Jacobian is taken for one in which each weight has a datum of its own."""


@dataclass(frozen=True)
class _Aim:
    """Which weights are to be 0, as masks in the task's order."""

    masks: Sequence[Tensor]

    def pick(self, weights: Sequence[Tensor]) -> Tensor:
        """Return these weights, flattened."""
        return torch.cat([w[mask] for w, mask in zip(weights, self.masks, strict=True)])


class _Solver:
    """Newton's method with one Jacobian.

    Args:
        jacobian: `(weights, elements of the data)`.
    """

    def __init__(self, jacobian: Tensor) -> None:
        self._jacobian = jacobian.double()
        square = self._jacobian @ self._jacobian.T
        # Rows that no datum moves would leave it singular.
        square.diagonal().add_(1e-12 * square.diagonal().amax() + torch.finfo(torch.float32).tiny)
        self._root, _ = torch.linalg.cholesky_ex(square)
        self._share = 1.0

    def scale(self, share: float) -> None:
        """Multiply the Jacobian by a number."""
        self._share = share

    def step(self, reached: Tensor) -> Tensor:
        """Return the least change of the data that takes weights to 0, to first order, negated."""
        step: Tensor = self._jacobian.T @ torch.cholesky_solve(reached.double()[:, None], self._root)
        return step[:, 0] / self._share


def _share_of(slopes: Tensor) -> float:
    """Return by what to multiply the factor that links data and weights, for a power of two."""
    factor = float(slopes.abs().amax(1).median())
    return 2.0 ** math.floor(math.log2(factor)) / factor * _BELOW if factor else 1.0


class HitSearch(DataSearch):
    """Solves for data that take weights to 0, by Newton's method, and then for each of their last bits.

    A norm of weights is 0 only if each of them is, to the last bit.  As a rule each weight moves by a datum times a
    factor that all share.  If this factor is a power of two, the product is not rounded, and every weight can be met;
    so the data that the factor is made of are scaled until it is one.
    """

    def explore(self, target: int, count: int, steps: int, *, first: bool) -> None:
        """Aim at the weights of a few elements of the operand, each from another start."""
        solved = 0
        for _ in range(_ELEMENTS):
            values, moved = self._draw_start()
            aim = self._choose_aim(target, values)
            if aim is None or solved == _SOLVED:
                return
            if self._is_moved(values, aim):
                solved += self._hit(values, moved, aim)

    def _hit(self, values: list[Tensor], moved: int, aim: _Aim) -> bool:
        """Take weights to 0 by all data, then scale one tensor of them so that rounding keeps none from it."""
        jacobian = self._match_data(values, aim)
        slopes = self._differentiate_weights(values, aim, most=_ROWS) if jacobian is None else jacobian
        if not self._is_within(values, slopes * _share_of(slopes), aim):
            return False
        solver = _Solver(self._differentiate_weights(values, aim) if jacobian is None else jacobian)
        values, far = self._solve(values, solver, aim)
        if far > _NEAR:
            return True
        share = _share_of(self._differentiate_weights(values, aim, most=_ROWS))
        solver.scale(share)
        for _ in range(_SHAKES):
            draw = float(torch.rand(1, generator=self.generator))
            scaled = share * (1 + draw * (1 - _BELOW))
            trial, _ = self._solve(self._scale(values, moved, scaled), solver, aim)
            self.visit([x[None] for x in trial])
        return True

    def _is_within(self, values: Sequence[Tensor], slopes: Tensor, aim: _Aim) -> bool:
        """Return whether the data that move a sample of the weights most can take most of them to 0."""
        with torch.no_grad():
            reached = self._train(values, aim)[: len(slopes)]
        most, place = slopes.abs().max(1)
        floating = [(x, box) for x, box in self._pair(values) if x.is_floating_point()]
        now, lower, upper = (
            torch.cat([part.flatten() for part in parts])[place]
            for parts in zip(*((x, box.lower, box.upper) for x, box in floating), strict=True)
        )
        wanted = now - reached / slopes.gather(1, place[:, None])[:, 0]
        return bool(((most > 0) & (wanted >= lower) & (wanted <= upper)).double().mean() > _WITHIN)

    def _draw_start(self) -> tuple[list[Tensor], int]:
        """Return a point at which all tensors but one are 0, or near, and the position of that one."""
        points = [x[0] for x in self.draw(1, first=False)]
        moved = int(torch.randint(len(points), (1,), generator=self.generator))
        zeros = [box.find_nearest(torch.zeros_like(x, dtype=torch.float64)[None])[0] for x, box in self._pair(points)]
        return [x if position == moved else zeros[position] for position, x in enumerate(points)], moved

    def _choose_aim(self, target: int, values: Sequence[Tensor]) -> _Aim | None:
        """Return the weights that an element of the operand is made of, if it is 0 where they are."""
        point = self.split(values)[1]
        leaves = [w.clone().requires_grad_() for w in self.initial]
        elements = self.task.crossings(target, leaves, point)[1:]
        if not len(elements) or not elements.requires_grad:
            return None
        chosen = int(torch.randint(len(elements), (1,), generator=self.generator))
        slopes = torch.autograd.grad(elements[chosen], leaves, allow_unused=True)
        masks = [
            torch.zeros_like(w, dtype=torch.bool) if g is None else g != 0 for w, g in zip(leaves, slopes, strict=True)
        ]
        count = sum(int(mask.sum()) for mask in masks)
        if not 0 < count <= min(_MOST, sum(x.numel() for x in values if x.is_floating_point())):
            return None
        zeroed = [w.masked_fill(mask, 0) for w, mask in zip(self.initial, masks, strict=True)]
        with torch.no_grad():
            is_zero = self.task.crossings(target, zeroed, point)[1 + chosen] == 0
        return _Aim(masks) if is_zero else None

    def _is_moved(self, values: Sequence[Tensor], aim: _Aim) -> bool:
        """Return whether as many data as weights move a random combination of the weights, and far enough."""
        leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in values]
        reached = self._train(leaves, aim)
        signs = torch.randint(2, reached.shape, generator=self.generator) * 2.0 - 1
        pairs = [(x, box.upper.double() - box.lower) for x, box in self._pair(leaves) if x.requires_grad]
        slopes = torch.autograd.grad((reached * signs).sum(), [x for x, _ in pairs], allow_unused=True)
        reaches = [(g * width).abs().flatten() for g, (_, width) in zip(slopes, pairs, strict=True) if g is not None]
        far = float(reached.detach().abs().median())
        return sum(int((reach >= far).sum()) for reach in reaches) >= len(reached)

    def _solve(self, values: Sequence[Tensor], solver: _Solver, aim: _Aim) -> tuple[list[Tensor], float]:
        """Return data after which as many weights as possible are 0, and how far the others are from it."""
        best, misses, far = list(values), sum(int(mask.sum()) for mask in aim.masks), math.inf
        now, before, share = best, math.inf, 1.0
        for number in range(_STEPS):
            self.stop_in_time()
            with torch.no_grad():
                reached = self._train(now, aim)
            count, most = int((reached != 0).sum()), float(reached.abs().max())
            if (count, most) < (misses, far):
                best, misses, far = now, count, most
            if count == 0 or _NEAR < most > before / 2:
                break
            before = most
            if most > _NEAR:
                step = solver.step(reached)
                share = self._find_share(now, step, aim)
                now = self._move(now, step * share)
                continue
            if number >= _WHOLE:
                # Between two ties whole steps go to and fro: both round to a neighbour of 0.
                reached = reached * torch.randint(1, 3, reached.shape, generator=self.generator) / 2
            now = self._move(now, solver.step(reached) * share)
        return best, far

    def _scale(self, values: Sequence[Tensor], moved: int, share: float) -> list[Tensor]:
        """Return data of which one tensor is multiplied by a number."""
        rows = enumerate(self._pair(values))
        return [
            box.project((x.double() * share).to(x.dtype)) if position == moved else x for position, (x, box) in rows
        ]

    def _differentiate_weights(self, values: Sequence[Tensor], aim: _Aim, *, most: int = _MOST) -> Tensor:
        """Return the Jacobian of the weights in question, `(weights, elements of the data)`, or its first rows."""
        leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in values]
        floating = [x for x in leaves if x.requires_grad]
        reached = self._train(leaves, aim)
        parts = []
        for rows in torch.eye(len(reached), dtype=reached.dtype)[:most].split(_ROWS):
            self.stop_in_time()
            found = torch.autograd.grad(
                reached, floating, rows, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
            shapes = [(len(rows), x.numel()) for x in floating]
            blocks = [rows.new_zeros(s) if g is None else g.reshape(s) for g, s in zip(found, shapes, strict=True)]
            parts.append(torch.cat(blocks, 1))
        return torch.cat(parts)

    def _match_data(self, values: Sequence[Tensor], aim: _Aim) -> Tensor | None:
        """Return the Jacobian if each weight is moved by a datum of its own; None if it is not.

        Two products tell which datum that is, since the weights are numbered in one of them, and a third one whether
        there is no other.
        """
        leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in values]
        floating = [x for x in leaves if x.requires_grad]
        reached = self._train(leaves, aim)
        probe = torch.randn(reached.shape, generator=self.generator)
        numbers = torch.arange(1, len(reached) + 1, dtype=reached.dtype)

        def multiply(rows: Tensor) -> Tensor:
            found = torch.autograd.grad(reached, floating, rows, retain_graph=True, allow_unused=True)
            parts = [torch.zeros_like(x) if g is None else g for g, x in zip(found, floating, strict=True)]
            return torch.cat([part.flatten() for part in parts]).double()

        slopes, numbered, wanted = (multiply(rows) for rows in (torch.ones_like(probe), numbers, probe))
        data = slopes.nonzero()[:, 0]
        weights = (numbered[data] / slopes[data]).round().long().clamp(1, len(reached)) - 1
        jacobian = torch.zeros(len(reached), len(slopes), dtype=torch.float64)
        jacobian[weights, data] = slopes[data]
        is_matched = bool((jacobian.T @ probe.double() - wanted).norm() <= _MATCHED * wanted.norm())
        return jacobian.to(reached.dtype) if is_matched else None

    def _train(self, values: Sequence[Tensor], aim: _Aim) -> Tensor:
        return self.map_trained(lambda weights, point: aim.pick(weights), [x[None] for x in values])[0]

    def _move(self, values: Sequence[Tensor], step: Tensor) -> list[Tensor]:
        """Return data moved against a step, within their boxes."""
        moved, position = [], 0
        for x, box in self._pair(values):
            if x.is_floating_point():
                part = step[position : position + x.numel()].reshape(x.shape)
                position += x.numel()
                x = box.project((x.double() - part).to(x.dtype))
            moved.append(x)
        return moved

    def _find_share(self, values: Sequence[Tensor], step: Tensor, aim: _Aim) -> float:
        """Return the share of a step after which the weights are nearest to 0.

        The factor between data and weights depends on the data, so that whole steps may lead nowhere.
        """
        trials = [self._move(values, step * share) for share in _STEP_SHARES]
        batch = [torch.stack(parts) for parts in zip(*trials, strict=True)]
        with torch.no_grad():
            reached = self.map_trained(lambda weights, point: aim.pick(weights), batch)
        return _STEP_SHARES[int(reached.abs().amax(1).argmin())]

    def _pair(self, values: Sequence[Tensor]) -> list[tuple[Tensor, Box]]:
        return list(zip(values, self.boxes, strict=True))


_STARTS = 32
"""Points between which a round looks for changes of sign."""


class ZeroSearch(DataSearch):
    """Bisects between training data after which the quantity has different signs."""

    def explore(self, target: int, count: int, steps: int, *, first: bool) -> None:
        """Bisect between points of which some have a large loss, and so large gradients."""
        # Most conditions have no sign that changes, and need no training to see that.
        point = self.split([x[0] for x in self.draw(1, first=False)])[1]
        with torch.no_grad():
            if len(self.task.crossings(target, self.initial, point)) < 2:
                return

        def observe(points: Sequence[Tensor]) -> Observation:
            self.stop_in_time()
            with torch.no_grad():
                seen = self.map_trained(lambda w, x: self.task.crossings(target, w, x), self.harden(points))
            return Observation(seen[:, :1], seen[:, 1:])

        def visit(margins: Tensor, points: Sequence[Tensor]) -> bool:
            self.replay_best(margins[:, 0], self.harden(points))
            return False

        bisection = Bisection(
            observe=observe,
            visit=visit,
            boxes=self.boxes,
            generator=self.generator,
            is_over=lambda: False,
        )
        bisection.run_between(*self._draw_segments(first=first))
        bisection.run(self.draw(_STARTS, first=first))

    def _draw_segments(self, *, first: bool) -> tuple[list[Tensor], list[Tensor]]:
        """Return pairs of points between which a single element of a single tensor moves.

        The other tensors are at vertices of their boxes uphill of the loss: large losses saturate what can saturate,
        and few terms are left that could cancel.
        """
        points = self.draw(_STARTS, first=first)
        moved = torch.randint(len(points), (_STARTS,), generator=self.generator)
        ends, starts = [], []
        for position, (x, box) in enumerate(zip(points, self.boxes, strict=True)):
            zero = box.find_nearest(torch.zeros_like(x, dtype=torch.float64))
            single = torch.zeros_like(x, dtype=torch.bool).reshape(_STARTS, -1)
            place = torch.randint(single.shape[1], (_STARTS, 1), generator=self.generator)
            single = single.scatter(1, place, value=True).reshape(x.shape)
            alone = (moved == position).reshape(-1, *([1] * (x.dim() - 1)))
            at_end = torch.where(single, box.at(torch.randint(2, x.shape, generator=self.generator).double()), zero)
            ends.append(torch.where(alone, at_end, x))
            starts.append(torch.where(alone, zero, x))
        uphill = self._climb(ends)
        for position, x in enumerate(uphill):
            alone = (moved == position).reshape(-1, *([1] * (x.dim() - 1)))
            ends[position] = torch.where(alone, ends[position], x)
            starts[position] = torch.where(alone, starts[position], x)
        return starts, ends

    def _climb(self, points: Sequence[Tensor]) -> list[Tensor]:
        """Return the vertices of the box that lie uphill of the loss of the first steps."""
        leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in points]
        losses = self.measure_loss(leaves)
        floating = [x for x in leaves if x.requires_grad]
        if not losses.requires_grad:
            return list(points)
        slopes = iter(torch.autograd.grad(losses.sum(), floating, allow_unused=True))
        found = []
        for x, leaf, box in zip(points, leaves, self.boxes, strict=True):
            slope = next(slopes) if leaf.requires_grad else None
            if slope is None:
                found.append(x)
            else:
                found.append(torch.where(slope > 0, box.upper, torch.where(slope < 0, box.lower, x)))
        return found


_AIMED_FROM = 8
"""Points between which a round looks for the numbers, besides the nearest one."""


class AimSearch(DataSearch):
    """Aims from the point of the least margin, among vertices and points that are drawn, if rounding matters there."""

    _nearest: tuple[float, Sequence[Tensor]] = math.inf, ()

    def run(self) -> Found | None:
        """See :meth:`DataSearch.run`; where no operand is a function of one number, nothing is tried."""
        paths = (path for target in self.task.targets for path in find_paths(self.task.graph, target))
        return super().run() if any(True for _ in paths) else None

    def explore(self, target: int, count: int, steps: int, *, first: bool) -> None:
        """Aim data and inference input together at one of the task's targets."""
        points = self.harden(self.draw(_AIMED_FROM, first=True))
        self.visit(points)
        if self._nearest[0] >= NEAR:
            return
        confirmer = self.judge.confirmer

        def feed(points: Sequence[Tensor], position: int) -> dict[str, np.ndarray]:
            self.stop_in_time()
            batches, point = self.split([x[position] for x in self.harden(points)])
            _, weights = self._train_until_failure(batches, point)
            arrays = ([to_numpy(x.detach()) for x in some] for some in (weights, point))
            return feeds_of(self.task.problem, self.task.call, self.task.environment(*arrays), confirmer)

        def replay(points: Sequence[Tensor], position: int) -> bool:
            self._replay(self.harden(points), position)
            return False

        Aiming(
            confirmer=confirmer,
            graph=self.task.graph,
            boxes=self.boxes,
            generator=self.generator,
            feeds=feed,
            replay=replay,
            is_over=lambda: False,
        ).run(self.task.targets[target], [torch.cat(pair) for pair in zip(self._nearest[1], points, strict=True)])

    def replay_best(self, margins: Tensor, points: Sequence[Tensor]) -> None:
        """See :meth:`DataSearch.replay_best`; remember the nearest point, too."""
        least, position = margins.detach().min(0)
        if float(least) < self._nearest[0]:
            self._nearest = float(least), [x[int(position)][None].detach() for x in points]
        super().replay_best(margins, points)
