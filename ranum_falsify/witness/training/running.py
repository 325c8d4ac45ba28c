"""Training runs, as functions of initial weights and data that autograd can follow, and their optimisers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from ranum_falsify.errors import UsageError
from ranum_falsify.verify.search.starts import Box

OptimiserName = Literal["sgd", "momentum", "adam", "rmsprop", "adagrad"]
OPTIMISERS: tuple[str, ...] = get_args(OptimiserName)
"""Names of the optimisers."""

State = tuple[tuple[Tensor, ...], ...]
"""What an optimiser remembers: for each of its moments, a tensor per weight."""

BETA1, BETA2, RHO = 0.9, 0.999, 0.9
"""How slowly the averages of `adam`, and those of `rmsprop`, forget."""


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """A rule that turns gradients into new weights; what the fields do not say is as in TensorFlow 1.

    Attributes:
        name: The rule.
        learning_rate: Its learning rate in the first step.
        momentum: Share of the last step that `momentum` repeats.
        epsilon: What `adam` and `adagrad` add to a root, and `rmsprop` to its square.
        accumulator: The sum of squares with which `adagrad` begins.
        centred: Whether `rmsprop` subtracts the square of the gradients' mean.
        decay: The factor by which the learning rate falls after every `decay_steps` steps.
        decay_steps: See `decay`.
    """

    name: OptimiserName = "sgd"
    learning_rate: float = 1.0
    momentum: float = 0.9
    epsilon: float = 1e-8
    accumulator: float = 0.1
    centred: bool = False
    decay: float = 1.0
    decay_steps: int = 1

    def __post_init__(self) -> None:
        if self.name not in OPTIMISERS:
            raise UsageError(f"optimizer {self.name!r} is unknown; {', '.join(OPTIMISERS)} exist")
        if not 0 < self.learning_rate < float("inf"):
            raise UsageError(f"learning rate {self.learning_rate!r}: is no positive number")

    def start(self, weights: Sequence[Tensor]) -> State:
        """Return the state before the first step."""
        count = {"sgd": 0, "momentum": 1, "adagrad": 1, "adam": 2, "rmsprop": 2}[self.name]
        first = {"adagrad": self.accumulator, "rmsprop": 1.0}.get(self.name, 0.0)
        moments = [tuple(torch.full_like(w, first) for w in weights) for _ in range(min(count, 1))]
        moments += [tuple(torch.zeros_like(w) for w in weights) for _ in range(count - len(moments))]
        return tuple(moments)

    def step(
        self, weights: Sequence[Tensor], gradients: Sequence[Tensor], state: State, number: int, *, smooth: bool = False
    ) -> tuple[list[Tensor], State]:
        """Return weights and state after a step.

        Args:
            weights: The weights.
            gradients: Their gradients.
            state: What the last step left.
            number: Position of the step, from 0.
            smooth: Whether autograd takes what the gradients are divided by for a constant.  Else the first steps of
                some rules would depend on the signs of the gradients alone, and their derivative would be 0.
        """
        rate = self.learning_rate * self.decay ** (number // self.decay_steps)
        rows = zip(weights, gradients, *state, strict=True)
        moved = [self._move(w, g, moments, rate, number, smooth) for w, g, *moments in rows]
        return [w for w, _ in moved], tuple(zip(*(moments for _, moments in moved), strict=True))

    def _move(
        self, w: Tensor, g: Tensor, moments: Sequence[Tensor], rate: float, number: int, smooth: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        if self.name == "sgd":
            return w - rate * g, ()
        if self.name == "momentum":
            velocity = self.momentum * moments[0] + g
            return w - rate * velocity, (velocity,)
        if self.name == "adagrad":
            total = moments[0] + g * g
            return w - rate * g / _constant(total.sqrt() + self.epsilon, smooth), (total,)
        if self.name == "adam":
            first, second = BETA1 * moments[0] + (1 - BETA1) * g, BETA2 * moments[1] + (1 - BETA2) * g * g
            rate *= (1 - BETA2 ** (number + 1)) ** 0.5 / (1 - BETA1 ** (number + 1))
            return w - rate * first / _constant(second.sqrt() + self.epsilon, smooth), (first, second)
        square = RHO * moments[0] + (1 - RHO) * g * g
        mean = RHO * moments[1] + (1 - RHO) * g
        variance = square - mean * mean if self.centred else square
        return w - rate * g / _constant((variance + self.epsilon).sqrt(), smooth), (square, mean)


def _constant(divisor: Tensor, smooth: bool) -> Tensor:
    return divisor.detach() if smooth else divisor


_START = "def start(weights):\n    return [({moments}) for w in weights]\n"

_MOMENTS: dict[OptimiserName, str] = {
    "sgd": "",
    "momentum": "torch.zeros_like(w),",
    "adagrad": "torch.full_like(w, {accumulator!r}),",
    "adam": "torch.zeros_like(w), torch.zeros_like(w)",
    "rmsprop": "torch.ones_like(w), torch.zeros_like(w)",
}

_MOVES: dict[OptimiserName, str] = {
    "sgd": "    return w - rate * g, ()",
    "momentum": "    velocity = {momentum!r} * moments[0] + g\n    return w - rate * velocity, (velocity,)",
    "adagrad": ("    total = moments[0] + g * g\n    return w - rate * g / (total.sqrt() + {epsilon!r}), (total,)"),
    "adam": (
        "    first, second = {beta1!r} * moments[0] + {one_less_beta1!r} * g, "
        "{beta2!r} * moments[1] + {one_less_beta2!r} * g * g\n"
        "    rate *= (1 - {beta2!r} ** (step + 1)) ** 0.5 / (1 - {beta1!r} ** (step + 1))\n"
        "    return w - rate * first / (second.sqrt() + {epsilon!r}), (first, second)"
    ),
    "rmsprop": (
        "    square = {rho!r} * moments[0] + {one_less_rho!r} * g * g\n"
        "    mean = {rho!r} * moments[1] + {one_less_rho!r} * g\n"
        "    variance = square - mean * mean if {centred!r} else square\n"
        "    return w - rate * g / (variance + {epsilon!r}).sqrt(), (square, mean)"
    ),
}


def write_rule(optimiser: Optimiser) -> str:
    """Return the text of `start(weights)`, and of `move(w, g, moments, step)`, which returns weight and moments."""
    numbers = {
        **vars(optimiser),
        "beta1": BETA1,
        "beta2": BETA2,
        "rho": RHO,
        "one_less_beta1": 1 - BETA1,
        "one_less_beta2": 1 - BETA2,
        "one_less_rho": 1 - RHO,
    }
    rate = "    rate = LEARNING_RATE"
    if optimiser.decay != 1.0:
        rate += f" * {optimiser.decay!r} ** (step // {optimiser.decay_steps!r})"
    start = _START.format(moments=_MOMENTS[optimiser.name].format(**numbers))
    move = "\n".join(["def move(w, g, moments, step):", rate, _MOVES[optimiser.name].format(**numbers)])
    return f"{start}\n\n{move}"


def describe_training(optimiser: Optimiser, steps: int) -> str:
    """Return optimiser, learning rate and number of steps in words."""
    count = "1 step" if steps == 1 else f"{steps} steps"
    return f"{optimiser.name}, learning rate {optimiser.learning_rate:g}, {count}"


class HasLoss(Protocol):
    """What a training run needs to know."""

    @property
    def ranges(self) -> Sequence[Box]:
        """The weights' ranges."""

    def loss(self, weights: Sequence[Tensor], data: Sequence[Tensor]) -> Tensor:
        """Return the loss of one batch, differentiable."""


_FEW = 10
"""Steps up to which a search follows them all."""

_HORIZON = 3
"""Steps that it follows of more."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained.

    Attributes:
        optimiser: The optimiser.
        steps: Number of steps.
        batches: Number of different batches, which the steps take in turn.
        clamps: Whether weights are put back into their ranges after each step.
    """

    optimiser: Optimiser = field(default_factory=Optimiser)
    steps: int = 1
    batches: int = 1
    clamps: bool = False

    @property
    def is_long(self) -> bool:
        """Whether there are too many steps for gradients to follow."""
        return self.steps > _FEW

    @property
    def followed(self) -> Recipe:
        """The part of the training that a search follows; it trains on with what it finds."""
        return replace(self, steps=min(self.steps, max(_HORIZON, self.batches))) if self.is_long else self


def train(
    task: HasLoss,
    recipe: Recipe,
    initial: Sequence[Tensor],
    batches: Sequence[Sequence[Tensor]],
    *,
    smooth: bool = False,
    watch: Callable[[int, Sequence[Tensor]], bool | None] = lambda number, weights: None,
) -> list[Tensor]:
    """Return the weights after a training run, differentiable in the data.

    Args:
        task: What trains.
        recipe: How.
        initial: The weights before the first step.
        batches: Data of each batch, in the order of the task's inputs.
        smooth: See :meth:`Optimiser.step`.
        watch: Called after each step with the number of steps so far, and the weights; returns whether to stop.
    """
    weights, state = list(initial), recipe.optimiser.start(initial)
    if not weights:
        return weights
    gradient = torch.func.grad(lambda w, data: task.loss(w, data))
    for number in range(recipe.steps):
        slopes = gradient(tuple(weights), batches[number % len(batches)])
        weights, state = recipe.optimiser.step(weights, slopes, state, number, smooth=smooth)
        if recipe.clamps:
            weights = [box.project(w) for w, box in zip(weights, task.ranges, strict=True)]
        if watch(number + 1, weights):
            break
    return weights


def train_finitely(
    task: HasLoss,
    recipe: Recipe,
    initial: Sequence[Tensor],
    batches: Sequence[Sequence[Tensor]],
    is_over: Callable[[Sequence[Tensor]], bool],
) -> tuple[int, Sequence[Tensor]]:
    """Return the number of steps, and the weights, where they are over, or else the last finite ones."""
    reached: list[tuple[int, Sequence[Tensor]]] = [(0, initial)]

    def watch(number: int, weights: Sequence[Tensor]) -> bool:
        if not all(bool(w.isfinite().all()) for w in weights):
            return True
        reached[:] = [(number, weights)]
        return is_over(weights)

    train(task, recipe, initial, batches, watch=watch)
    return reached[0]
