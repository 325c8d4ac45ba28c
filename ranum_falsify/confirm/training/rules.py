"""Optimisers as the text of Python functions, for files that run without ranum-falsify."""

from __future__ import annotations

from ranum_falsify.confirm.training.optimisers import BETA1, BETA2, RHO, Optimiser, OptimiserName

__all__ = ["describe_training", "write_rule"]

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
