"""Search for data on which many steps of training lead into a defect, too many for gradients to follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.witness.training.hitting import AimSearch
from ranum_falsify.witness.training.running import Recipe, train_finitely
from ranum_falsify.witness.training.search import DataSearch, Found
from ranum_falsify.witness.training.strategies import Aimed, PreciseUnrolling, Strategy, Unrolling
from ranum_falsify.witness.training.task import Datum, Judge, TrainingTask

_CONTRASTS = (0.05, 1.0, 0.2, 0.01)
"""How far data reach from the point of their range that is nearest to 0, as shares of the range.

What a model learns on data of low contrast, it multiplies on inference inputs of full contrast.
"""

_Pattern = Literal["equal", "whole", "opposed", "different"]
_PATTERNS: tuple[_Pattern, ...] = get_args(_Pattern)
"""What the rows of a batch are.

All labels are one, whose loss can become as small as one likes; or two labels take turns, and so do the two ends of
the range, or two of its vertices that are opposite to each other, so that no bias can tell them apart; or all rows are
drawn at random.
"""

_MOST_TOGETHER = 5_000
"""Elements of weights and batch up to which all batches are trained at once; more would gain nothing."""

_INFERENCE: Sequence[tuple[type[DataSearch], type[Strategy], int]] = (
    *((DataSearch, Unrolling, 2), (DataSearch, PreciseUnrolling, 1), (AimSearch, Aimed, 1)),
)
"""How inference inputs of a trained model are searched: searches, strategies and rounds."""

_TRAINED_SHARE = 0.6
"""Share of the time that is left for one training; a model that is not trained to the end may fail on some input."""

_NAME = "training in full"


class Endurance:
    """Trains in full on one batch, and searches an inference input on which the trained model fails."""

    def __init__(
        self,
        task: TrainingTask,
        recipe: Recipe,
        initial: Sequence[Tensor],
        judge: Judge,
        generator: torch.Generator,
        *,
        deadline: Deadline,
    ) -> None:
        self._task = task
        self._recipe = replace(recipe, batches=1)
        self._initial = list(initial)
        self._judge = judge
        self._generator = generator
        self._deadline = deadline

    def run(self) -> Found | None:
        """Train on one batch after the other until a trained model fails, or time is up."""
        batches = list(self._list_batches())
        together = self._train_together(batches) if self._is_small(batches) else [None] * len(batches)
        for batch, trained in zip(batches, together, strict=True):
            if self._deadline.has_passed:
                return None
            if trained is not None and not self._fails(*trained, batch):
                continue
            # A batch of runs rounds otherwise than each of them alone, which is what counts.
            steps, weights = self._train(batch)
            found = self._judge_batch(steps, weights, batch) or self._search_input(steps, weights, batch)
            if found is not None:
                return found
        return None

    def _fails(self, steps: int, trained: Sequence[Tensor], batch: Sequence[Tensor]) -> bool:
        return bool(self._judge_batch(steps, trained, batch) or self._search_input(steps, trained, batch))

    def _is_small(self, batches: Sequence[Sequence[Tensor]]) -> bool:
        size = sum(x.numel() for x in (*self._initial, *batches[0]))
        return size <= _MOST_TOGETHER and self._task.is_separable

    def _list_batches(self) -> Iterator[list[Tensor]]:
        for contrast in _CONTRASTS:
            for pattern in _PATTERNS:
                yield [self._draw(datum, contrast, pattern) for datum in self._task.data]

    def _draw(self, datum: Datum, contrast: float, pattern: _Pattern) -> Tensor:
        """Return a value of a batch: labels one-hot where they must be, draws of operators anywhere."""
        box = datum.box
        share = torch.rand(box.lower.shape, generator=self._generator, dtype=torch.float64)
        if share.dim() and not datum.is_draw:
            share = _arrange(share, pattern, is_label=datum.is_one_hot)
        x = datum.harden(box.at(share[None])[0])
        if datum.is_one_hot or datum.is_draw or not x.is_floating_point():
            return x
        return box.project(torch.lerp(box.project(torch.zeros_like(box.lower)), x, contrast))

    def _train(self, batch: Sequence[Tensor]) -> tuple[int, Sequence[Tensor]]:
        ends = self._deadline.share(_TRAINED_SHARE)
        return train_finitely(self._task, self._recipe, self._initial, [batch], lambda weights: ends.has_passed)

    def _train_together(self, batches: Sequence[Sequence[Tensor]]) -> list[tuple[int, list[Tensor]]]:
        """Return what :meth:`_train` does for each batch, all trained as one."""
        data = [torch.stack(column) for column in zip(*batches, strict=True)]
        weights = [w.expand(len(batches), *w.shape).clone() for w in self._initial]
        state = self._recipe.optimiser.start(weights)
        gradient = torch.func.vmap(torch.func.grad(lambda w, x: self._task.loss(w, x)))
        steps = torch.zeros(len(batches), dtype=torch.int64)
        reached, alive = list(weights), steps == 0
        for number in range(self._recipe.steps):
            weights, state = self._recipe.optimiser.step(weights, gradient(tuple(weights), data), state, number)
            alive &= torch.stack([w.isfinite().flatten(1).all(1) for w in weights]).all(0)
            if not alive.any() or self._deadline.has_passed:
                break
            steps += alive
            reached = [
                torch.where(alive.reshape(-1, *[1] * (w.dim() - 1)), w, kept)
                for w, kept in zip(weights, reached, strict=True)
            ]
        return [(int(count), [w[row] for w in reached]) for row, count in enumerate(steps)]

    def _judge_batch(self, steps: int, trained: Sequence[Tensor], batch: Sequence[Tensor]) -> Found | None:
        """Return what is found if training itself fails on its own batch."""
        arrays = [to_numpy(x).copy() for x in batch]
        weights = [to_numpy(w).copy() for w in trained]
        with torch.no_grad():
            if not bool((self._task.margins(trained, batch) <= 0).any()):
                return None
        verdict = self._judge.judge(weights, arrays)
        if verdict is None:
            return None
        return Found(
            batches=[arrays],
            initial=[to_numpy(w).copy() for w in self._initial],
            trained=weights,
            steps=steps,
            point=arrays,
            verdict=verdict,
            strategy=_NAME,
        )

    def _search_input(self, steps: int, trained: Sequence[Tensor], batch: Sequence[Tensor]) -> Found | None:
        """Return what is found if the trained model fails on some inference input."""
        for search, strategy, rounds in _INFERENCE:
            found = search(
                self._task,
                Recipe(steps=0),
                trained,
                strategy(),
                self._judge,
                self._generator,
                point=[None] * len(self._task.data),
                deadline=self._deadline,
                rounds=rounds,
            ).run()
            if found is not None:
                return replace(
                    found,
                    batches=[[to_numpy(x).copy() for x in batch]],
                    initial=[to_numpy(w).copy() for w in self._initial],
                    steps=steps,
                    strategy=_NAME,
                )
        return None


def _arrange(share: Tensor, pattern: _Pattern, *, is_label: bool) -> Tensor:
    """Return the shares of a batch, whose first dimension counts rows, with the rows of a pattern."""
    if pattern == "different" or (pattern == "equal" and not is_label):
        return share
    if pattern == "equal":
        return share[:1].expand_as(share)
    turns = (torch.arange(len(share)) % 2).reshape(-1, *[1] * (share.dim() - 1)).to(share.dtype)
    first = torch.ones_like(share[:1])
    if is_label:
        first = share[:1]
    elif pattern == "opposed":
        first = (share[:1] < 0.5).to(share.dtype)
    return first * turns + (1 - first) * (1 - turns)
