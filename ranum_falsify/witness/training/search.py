"""Search for training data after which an operator fails, all restarts in one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.verify.replay.broken import DENORMAL
from ranum_falsify.verify.search.descent import Descent, StepSizes
from ranum_falsify.verify.search.starts import Box, sample_starts
from ranum_falsify.witness.training.running import Recipe, train, train_finitely
from ranum_falsify.witness.training.strategies import Strategy
from ranum_falsify.witness.training.task import Datum, Judge, TrainingTask, Verdict
from ranum_falsify.witness.unit_test import Trigger

_ROUNDS = ((1, 8), (8, 20), (8, 60))
"""Restarts and steps of each round; the last round is repeated while there is time."""

_SHARES = (0.05, 0.3)
"""Where to take the first gradients, as shares of the way from the box's centre to a start."""

_DECADES = 3.0
"""How near to the centre searches in float64 begin."""

_REPLAYS = 2
"""Candidates of one batch that are replayed."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Training data that lead into the defect.

    Attributes:
        batches: Data of each batch, in the order of the task's data.
        initial: The weights before training.
        trained: The weights after it.
        steps: After how many steps.
        point: The inference input that fails.
        verdict: Which operator fails, and how.
        strategy: What found it; empty where no training is needed.
    """

    batches: Sequence[Sequence[np.ndarray]]
    initial: Sequence[np.ndarray]
    trained: Sequence[np.ndarray]
    steps: int
    point: Sequence[np.ndarray]
    verdict: Verdict
    strategy: str

    @property
    def trigger(self) -> Trigger:
        """How it fails."""
        return self.verdict.trigger


class _Done(Exception):
    """It is found, or there is no time left."""


class DataSearch:
    """Looks for training data, and for an inference input unless it is given.

    Args:
        task: What trains.
        recipe: How; without steps, the initial weights are to fail.
        initial: The weights before training.
        strategy: What to make small.
        judge: Decides what counts.
        generator: Source of randomness.
        point: The inference input, in the order of the task's data; None where any may be chosen, or the strategy says.
        deadline: When to stop.
        rounds: Most rounds.
    """

    def __init__(
        self,
        task: TrainingTask,
        recipe: Recipe,
        initial: Sequence[Tensor],
        strategy: Strategy,
        judge: Judge,
        generator: torch.Generator,
        *,
        point: Sequence[Tensor | None],
        deadline: Deadline,
        rounds: int | None = None,
    ) -> None:
        self.task = task
        self._recipe = recipe
        self.initial = list(initial)
        self.strategy = strategy
        self.judge = judge
        self.generator = generator
        proposed: Sequence[Tensor | None] = strategy.point or [None] * len(task.data)
        self._point = [x if given is None else given for given, x in zip(point, proposed, strict=True)]
        self._deadline = deadline
        self._rounds = rounds
        self._found: Found | None = None
        count = recipe.batches if recipe.steps else 0
        self._data: list[Datum] = [*task.data] * count
        self._searched = [*self._data, *(d for d, x in zip(task.data, self._point, strict=True) if x is None)]
        self.boxes = [datum.box for datum in self._searched]
        near = [position for position, target in enumerate(task.targets) if not target.is_remote]
        self._followed = near or list(range(len(task.targets)))

    def run(self) -> Found | None:
        """Search until something is found, or time or rounds are up."""
        try:
            if not self.boxes:
                self.visit([torch.empty(1, 0)])
            elif self.strategy.descends:
                self._descend_to_vertices()
            for number, (count, steps) in enumerate(self._list_rounds()):
                for target in list(self._followed):
                    self.explore(target, count, steps, first=number == 1)
        except _Done:
            pass
        except RuntimeError:
            # Networks with casts mix float32 into float64, which some operators refuse.
            if not self.strategy.is_precise:
                raise
        return self._found

    def _list_rounds(self) -> Iterator[tuple[int, int]]:
        number = 0
        while self.boxes and (self._rounds is None or number < self._rounds):
            yield _ROUNDS[min(number, len(_ROUNDS) - 1)]
            number += 1

    def _descend_to_vertices(self) -> None:
        """Try the vertices of the box that lie downhill from points near its centre."""
        starts = sample_starts(self.boxes, 1, self.generator, first=False)
        for share in _SHARES:
            points = [self._shrink(x, box, torch.tensor([share])) for x, box in zip(starts, self.boxes, strict=True)]
            for target in self._followed:
                flat = self._visit_vertex(points, target)
                if any(flat) and not all(flat):
                    # What rounds a draw, as Dropout does, has no slope: it lies wholly at one end.
                    for end in ("lower", "upper"):
                        rows = zip(points, self.boxes, flat, strict=True)
                        self._visit_vertex([getattr(box, end)[None] if f else x for x, box, f in rows], target)

    def _visit_vertex(self, points: Sequence[Tensor], target: int) -> list[bool]:
        """Try the vertex downhill from a point, `(1, ...)`; return which floating data have no slope there."""
        _, gradients = self._differentiate(self.harden(points), target)
        rows = list(zip(points, self.boxes, gradients, strict=True))
        ends = [
            x if g is None else torch.where(g > 0, box.lower, torch.where(g < 0, box.upper, x)) for x, box, g in rows
        ]
        self.visit(self.harden(ends))
        return [x.is_floating_point() and (g is None or not bool(g.any())) for x, _, g in rows]

    def explore(self, target: int, count: int, steps: int, *, first: bool) -> None:
        """Search one round for one of the task's targets."""
        starts = self.draw(count, first=first)
        if not self.strategy.descends:
            self._visit_draws(starts, count, steps)
            return
        descent = Descent(self.boxes, starts, StepSizes(), self.generator)
        for _ in range(steps):
            points = self.harden(descent.inputs)
            margins, gradients = self._differentiate(points, target)
            if self.strategy.is_precise:
                self.visit(points)
            else:
                self.replay_best(margins, points)
            if not any(g is not None and bool(g.any()) for g in gradients):
                self._leave(target, is_constant=len(margins) > 1 and bool((margins == margins[0]).all()))
                break
            descent.step(gradients)
        points = self.harden(descent.inputs)
        self.visit(points, near=True)

    def _leave(self, target: int, *, is_constant: bool) -> None:
        """Follow a target without slopes no longer; the last one is followed as long as margins differ."""
        others = [other for other in self._followed if other != target]
        if is_constant and not others:
            raise _Done
        self._followed = others or self._followed

    def _visit_draws(self, starts: Sequence[Tensor], count: int, steps: int) -> None:
        """Visit as many points drawn at random as a descent would visit."""
        self.visit(self.harden(starts))
        for _ in range(steps - 1):
            self.visit(self.harden(self.draw(count, first=False)))

    def draw(self, count: int, *, first: bool) -> list[Tensor]:
        """Return starting points; in some, every input lies wholly at one end of its range."""
        ends = count // 4
        starts = sample_starts(self.boxes, count - ends, self.generator, first=first)
        shares = (torch.rand(len(starts), ends, generator=self.generator) < 0.5).double()
        whole = [
            box.at(share.reshape(-1, *([1] * box.lower.dim())).expand(ends, *box.lower.shape))
            for box, share in zip(self.boxes, shares, strict=True)
        ]
        drawn = [torch.cat(pair) for pair in zip(starts, whole, strict=True)]
        if not self.strategy.is_precise:
            return drawn
        # Near the centre of wide ranges, activations are moderate.
        shares = 10 ** (-_DECADES * torch.rand(count, generator=self.generator))
        return [self._shrink(x, box, shares) for x, box in zip(drawn, self.boxes, strict=True)]

    @staticmethod
    def _shrink(x: Tensor, box: Box, shares: Tensor) -> Tensor:
        """Return points at shares of the way from the centre of a box; integers stay."""
        if not x.is_floating_point():
            return x
        centre = (box.lower / 2 + box.upper / 2).expand_as(x)
        return box.project(torch.lerp(centre, x, shares.to(x.dtype).reshape(-1, *([1] * (x.dim() - 1)))))

    def harden(self, points: Sequence[Tensor]) -> list[Tensor]:
        """Return points whose labels are one-hot."""
        return [datum.harden(x) for x, datum in zip(points, self._searched, strict=True)]

    def visit(self, points: Sequence[Tensor], *, near: bool = False) -> None:
        """Replay the best points, and, if wanted, a near miss."""
        with torch.no_grad():
            margins = self.evaluate(points)[1]
        self.replay_best(margins, points)
        if near:
            # A near miss may be a hit on ONNX Runtime, whose kernels stray from torch's.
            self._replay(points, int(margins.argmin()))

    def evaluate(self, points: Sequence[Tensor], target: int = 0, *, precise: bool = False) -> tuple[Tensor, Tensor]:
        """Return what the strategy makes small, and the least margin, each `(batch,)`."""
        task = self.task.in_float64 if precise else self.task

        def measure(trained: Sequence[Tensor], point: Sequence[Tensor]) -> Tensor:
            with self.strategy.watching():
                margins = task.margins(trained, point)
                loss = self.strategy.loss(trained, margins[target])
            # Where training itself ends in NaN, the model fails before.
            is_finite = torch.stack([w.isfinite().all() for w in trained] or [margins.new_ones((), dtype=torch.bool)])
            least = torch.where(is_finite.all(), margins.amin(), -1.0)
            return torch.stack([loss.double(), least])

        losses, margins = self.map_trained(measure, points, precise=precise).unbind(1)
        return losses, margins

    def map_trained(
        self,
        measure: Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor],
        points: Sequence[Tensor],
        *,
        precise: bool = False,
    ) -> Tensor:
        """Return what is measured of the trained weights and the inference input of each point of a batch."""
        task = self.task.in_float64 if precise else self.task
        initial = [w.double() for w in self.initial] if precise else self.initial

        def sample(*values: Tensor) -> Tensor:
            batches, point = self.split(values)
            if precise:
                point = [x.double() if x.is_floating_point() else x for x in point]
            trained = train(task, self._recipe.followed, initial, batches, smooth=True) if batches else initial
            return measure(trained, point)

        return self._map_samples(sample, points)

    def measure_loss(self, points: Sequence[Tensor]) -> Tensor:
        """Return the losses of the batches with the initial weights, `(batch,)`."""

        def sample(*values: Tensor) -> Tensor:
            losses = [self.task.loss(self.initial, batch) for batch in self.split(values)[0]]
            return torch.stack(losses).sum()

        return self._map_samples(sample, points)

    def _map_samples(self, sample: Callable[..., Tensor], points: Sequence[Tensor]) -> Tensor:
        task = self.task
        if not self.boxes:
            return sample()[None]
        if len(points[0]) > 1 and task.is_separable:
            return torch.func.vmap(sample, randomness="different")(*points)
        return torch.stack([sample(*(x[position] for x in points)) for position in range(len(points[0]))])

    def split(self, values: Sequence[Tensor]) -> tuple[list[list[Tensor]], list[Tensor]]:
        """Return the batches, and the inference input."""
        width, size = len(self.task.data), len(self._data)
        batches = [list(values[start : start + width]) for start in range(0, size, width)] if size else []
        searched = iter(values[size:])
        return batches, [next(searched) if x is None else x for x in self._point]

    def _differentiate(self, points: Sequence[Tensor], target: int) -> tuple[Tensor, list[Tensor | None]]:
        self.stop_in_time()
        precise = self.strategy.is_precise
        leaves = [x.detach().double() if precise and x.is_floating_point() else x.detach() for x in points]
        leaves = [x.requires_grad_(x.is_floating_point()) for x in leaves]
        losses, margins = self.evaluate(leaves, target, precise=precise)
        floating = [x for x in leaves if x.requires_grad]
        if not floating or not losses.requires_grad:
            return margins.detach(), [None] * len(leaves)
        found = iter(torch.autograd.grad(losses.sum(), floating, allow_unused=True))
        gradients = [next(found) if x.requires_grad else None for x in leaves]
        return margins.detach(), [None if g is None else g.to(x.dtype) for g, x in zip(gradients, points, strict=True)]

    def replay_best(self, margins: Tensor, points: Sequence[Tensor]) -> None:
        """Replay points that seem to fail; ends the search where one does, or time is up."""
        order = margins.argsort(stable=True)
        for position in order[: min(int((margins < DENORMAL).sum()), _REPLAYS)].tolist():
            self._replay(points, position)
        self.stop_in_time()

    def stop_in_time(self) -> None:
        """End the search if time is up."""
        if self._is_late():
            raise _Done

    def _is_late(self) -> bool:
        return self._deadline.has_passed

    def _replay(self, points: Sequence[Tensor], position: int) -> None:
        """Train again, as a test will, and let the judge decide.

        Where training ends in NaN or infinity, the last weights before that are the trained ones, and the batch on
        which they fail may be the inference input.
        """
        batches, point = self.split([x[position].detach() for x in points] if self.boxes else [])
        steps, last = self._train_until_failure(batches, point)
        weights = [to_numpy(w.detach()).copy() for w in last]
        inputs = [point, batches[steps % len(batches)]] if batches and steps < self._recipe.steps else [point]
        for inference in ([to_numpy(x.detach()).copy() for x in some] for some in inputs):
            verdict = self.judge.judge(weights, inference)
            if verdict is not None:
                self._found = Found(
                    batches=[[to_numpy(x).copy() for x in batch] for batch in batches if steps],
                    initial=[to_numpy(w).copy() for w in self.initial],
                    trained=weights,
                    steps=steps,
                    point=inference,
                    verdict=verdict,
                    strategy=self.strategy.name if steps else "",
                )
                raise _Done

    def _train_until_failure(
        self, batches: Sequence[Sequence[Tensor]], point: Sequence[Tensor]
    ) -> tuple[int, Sequence[Tensor]]:
        """Return the weights at which the inference input fails first, else the last finite ones, and their step."""

        def is_over(weights: Sequence[Tensor]) -> bool:
            with torch.no_grad():
                fails = bool((self.task.margins(weights, point) <= 0).any())
            return fails or self._is_late()

        if not batches:
            return 0, self.initial
        return train_finitely(self.task, self._recipe, self.initial, batches, is_over)
