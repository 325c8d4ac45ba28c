"""Training as the zoo's programs do it, on their own data or such as they draw, until an operator fails by itself."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ranum_falsify.network.random_inputs import DEVIATIONS
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.witness.training.task import Datum, Judge
from ranum_falsify.zoo.facts import SAMPLES
from ranum_falsify.zoo.model import Defect
from ranum_falsify.zoo.train import STEPS, TrainingBench

_NOISE = ("z", "eps")
"""Inputs that are drawn from a standard normal distribution."""

_BODIES = ("40", "41", "42")
"""Models of body mass: columns are kilograms / 100 and centimetres / 200, classes thin, normal and fat."""

_GRIDS = ("15",)
"""Models of value iteration on grids, whose channels are obstacles and the goal."""

_OBSTACLES = 0.3
"""Share of a grid's fields that are obstacles."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pictures:
    """Square grey pictures with classes.

    Attributes:
        pixels: In [0, 1], `(pictures, side, side)`.
        classes: `(pictures,)`.
    """

    pixels: np.ndarray
    classes: np.ndarray


class Feeder:
    """Draws batches as a program does.

    Data that a program writes out are these; noise is normal; keep probabilities are those of training.  Labels and
    pictures belong together where there are pictures; else both are uniform.

    Args:
        model: Id of the model.
        data: What it reads.
        pictures: What stands for the program's pictures, if anything.
        seed: Seed of all draws.
    """

    def __init__(self, model: str, data: Sequence[Datum], pictures: Pictures | None, seed: int) -> None:
        self._model = model
        self._data = data
        self._pictures = pictures
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def draw(self) -> list[torch.Tensor]:
        """Return the next batch, in the order of the data."""
        known = self._draw_related()
        return [self._convert(datum, known.get(datum.name)) for datum in self._data]

    def _convert(self, datum: Datum, known: np.ndarray | None) -> torch.Tensor:
        box = datum.box
        array = self._draw_alone(datum) if known is None else known.reshape(tuple(box.lower.shape))
        return datum.harden(box.find_nearest(torch.as_tensor(array, dtype=torch.float64)))

    def _draw_alone(self, datum: Datum) -> np.ndarray:
        low, high = (to_numpy(end).astype(np.float64) for end in (datum.box.lower, datum.box.upper))
        if datum.name == "keep_prob":
            return low
        if datum.name in _NOISE or (datum.is_draw and (low < 0).any()):
            return np.asarray(self._rng.normal((low + high) / 2, (high - low) / (2 * DEVIATIONS)))
        return np.asarray(low + (high - low) * self._rng.random(low.shape))

    def _draw_related(self) -> Mapping[str, np.ndarray]:
        """Return those data of a batch that depend on each other, by name."""
        if self._model in SAMPLES:
            return {name: np.asarray(rows, dtype=np.float64) for name, rows in SAMPLES[self._model].items()}
        if self._model in _BODIES:
            return self._weigh_people()
        if self._model in _GRIDS:
            return self._lay_grids()
        return self._show_pictures()

    def _weigh_people(self) -> Mapping[str, np.ndarray]:
        count = self._data[0].box.lower.shape[0]
        kilograms = self._rng.integers(35, 80, count, endpoint=True)
        centimetres = self._rng.integers(120, 200, count, endpoint=True)
        index = kilograms / (centimetres / 100) ** 2
        classes = np.digitize(index, [18.5, 25.0])
        return {"x": np.stack([kilograms / 100, centimetres / 200], axis=1), "y_": np.eye(3)[classes]}

    def _lay_grids(self) -> Mapping[str, np.ndarray]:
        grids = np.zeros(tuple(self._data[0].box.lower.shape))
        count, side = grids.shape[:2]
        grids[..., 0] = self._rng.random((count, side, side)) < _OBSTACLES
        goals = self._rng.integers(0, side, (2, count))
        grids[np.arange(count), goals[0], goals[1]] = [0.0, 10.0]
        return {self._data[0].name: grids}

    def _show_pictures(self) -> Mapping[str, np.ndarray]:
        shown = [d for d in self._data if not (d.is_draw or d.is_one_hot) and _side_of(d)]
        if self._pictures is None or not shown:
            return {}
        count = shown[0].box.lower.shape[0]
        chosen = self._rng.integers(0, len(self._pictures.pixels), count)
        known = {d.name: self._frame(d, self._pictures.pixels[chosen]) for d in shown}
        classes = self._pictures.classes[chosen]
        for datum in self._data:
            if datum.is_one_hot:
                is_vector = datum.box.lower.dim() > 1
                known[datum.name] = np.eye(datum.box.lower.shape[-1])[classes] if is_vector else classes
        return known

    def _frame(self, datum: Datum, pixels: np.ndarray) -> np.ndarray:
        """Return pictures of a datum's size and range, on a dark ground: in its middle, or anywhere if it is large."""
        side, size = _side_of(datum), pixels.shape[1]
        room = side - size
        framed = np.zeros((len(pixels), side, side))
        for row, picture in zip(framed, pixels, strict=True):
            top, left = self._rng.integers(0, room, 2, endpoint=True) if room > size // 4 else (room // 2, room // 2)
            row[top : top + size, left : left + size] = picture
        low, high = float(datum.box.lower.min()), float(datum.box.upper.max())
        return low + (high - low) * framed


def _side_of(datum: Datum) -> int:
    """Return the side of the square pictures in a batch, 0 where there are none."""
    size = math.prod(datum.box.lower.shape[1:])
    side = math.isqrt(size)
    return side if side >= 28 and side * side == size and datum.box.dtype.is_floating_point else 0


@dataclass(frozen=True, kw_only=True)
class Natural:
    """A training run without any search.

    Attributes:
        steps: Number of steps until it ended.
        failing: The operator on which it ended, as it met the batch of the next step; empty if none failed.
    """

    steps: int
    failing: str


def train_naturally(
    bench: TrainingBench,
    defect: Defect,
    seed: int,
    *,
    steps: int = STEPS,
    pictures: Pictures | None = None,
    seconds: float = math.inf,
) -> Natural:
    """Train until the defect's operator fails, or another does, whose NaN ends the training.

    Args:
        bench: A model at the level `real`.
        defect: One of its defects.
        seed: Seed of the weights and of the data.
        steps: Most steps.
        pictures: What stands for the program's pictures; else they are noise.
        seconds: Most seconds.
    """
    task, optimiser = bench.task(defect), bench.recipe.optimiser
    feeder, end = Feeder(bench.model.id, task.data, pictures, seed), time.monotonic() + seconds
    weights = [to_torch(x) for x in bench.draw_weights(task, seed)]
    state, gradient = optimiser.start(weights), torch.func.grad(lambda w, data: task.loss(w, data))
    with Judge(task) as judge:
        for number in range(steps if weights else 1):
            data = feeder.draw()
            with torch.no_grad():
                fails = bool((task.margins(weights, data) <= 0).any())
            before = [to_numpy(w) for w in weights], [to_numpy(x) for x in data]
            if fails and judge.judge(*before) is not None:
                return Natural(steps=number, failing=defect.node)
            if not weights or time.monotonic() >= end:
                return Natural(steps=number, failing="")
            weights, state = optimiser.step(weights, gradient(tuple(weights), data), state, number)
            if not all(bool(w.isfinite().all()) for w in weights):
                failing = judge.name_failing(*before)
                return Natural(steps=number, failing=defect.node if failing in defect.same else failing)
    return Natural(steps=steps, failing="")
