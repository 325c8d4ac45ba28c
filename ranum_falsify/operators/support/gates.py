"""Activation functions of recurrent layers, which name them in attributes.

Source: https://onnx.ai/onnx/operators/onnx__LSTM.html.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from dnnv.nn import Operation
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.error_bounds import GATE_ROUNDINGS, unit
from ranum_falsify.domain.rules.recurrent import Curve
from ranum_falsify.domain.rules.support.real_functions import softplus
from ranum_falsify.errors import UnsupportedAttributeError

Activation = Callable[[Tensor], Tensor]

_PLAIN: dict[str, Activation] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
    "tanh": torch.tanh,
}
# Functions with parameters, with the defaults of alpha and beta.
_PARAMETRISED: dict[str, tuple[Callable[..., Tensor], tuple[float, ...]]] = {
    "affine": (lambda x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "elu": (lambda x, alpha: functional.elu(x, alpha), (1.0,)),
    "hardsigmoid": (lambda x, alpha, beta: (alpha * x + beta).clamp(0, 1), (0.2, 0.5)),
    "leakyrelu": (lambda x, alpha: functional.leaky_relu(x, alpha), (0.01,)),
    "scaledtanh": (lambda x, alpha, beta: alpha * torch.tanh(beta * x), (1.0, 1.0)),
    "thresholdedrelu": (lambda x, alpha: torch.where(x > alpha, x, 0), (1.0,)),
}


def activations_of(op: Operation, default: Sequence[str], directions: int) -> list[list[Activation]]:
    """Return the activation functions of each of 1 or 2 directions, in the operator's order.

    `default` names those of one direction, where the node gives none.

    Raises:
        UnsupportedAttributeError: The node names too few functions, or one that the standard does not know; or
            it clips at no positive number.
    """
    chosen, clip = _choose(op, default, directions), _limit_of(op)
    return [[_clip(_activation(key, given), clip) for key, given, _ in part] for part in chosen]


def _limit_of(op: Operation) -> float | None:
    """Return the limit of what activations read; 0 is one, which ONNX Runtime takes for `RNN` alone."""
    if op.clip is not None and not op.clip >= 0:
        raise UnsupportedAttributeError(f"{type(op).__name__}: clip {op.clip} is not supported; take a positive number")
    clip: float | None = op.clip
    return clip


def _choose(op: Operation, default: Sequence[str], directions: int) -> list[list[tuple[str, list[float], list[float]]]]:
    """Return the name of each function, its parameters, and the same with 0 for those that the node does not give."""
    wanted = len(default) * directions
    names = list(op.activations or [*default] * directions)[:wanted]
    if len(names) < wanted:
        raise UnsupportedAttributeError(f"attribute activations names {len(names)} functions, {wanted} are needed")
    sources = list(op.activation_alpha or ()), list(op.activation_beta or ())
    found = []
    for name in names:
        key = name.lower()
        if key not in _PLAIN and key not in _PARAMETRISED:
            known = ", ".join(sorted(_PLAIN | _PARAMETRISED))
            raise UnsupportedAttributeError(f"activation {name!r} is not supported; the standard has {known}")
        defaults = () if key in _PLAIN else _PARAMETRISED[key][1]
        # Parameters are taken from the front of what the node gives.
        taken = [(source.pop(0),) * 2 if source else (d, 0.0) for source, d in zip(sources, defaults, strict=False)]
        found.append((key, [first for first, _ in taken], [second for _, second in taken]))
    return [found[i : i + len(default)] for i in range(0, wanted, len(default))]


def _activation(key: str, given: Sequence[float]) -> Activation:
    if key in _PLAIN:
        return _PLAIN[key]
    function = _PARAMETRISED[key][0]
    return lambda x: function(x, *given)


def _clip(function: Activation, clip: float | None) -> Activation:
    return function if clip is None else lambda x: function(x.clamp(-clip, clip))


# bounds ---------------------------------------------------------------------------------------------------------

_IN_REAL_NUMBERS: dict[str, Activation] = {"softplus": softplus}
"""Functions that PyTorch computes well in float32 only."""

_EXACT_FUNCTIONS = frozenset({"affine", "leakyrelu", "relu", "thresholdedrelu"})
"""Functions whose kernels err by the rounding of some operations only."""

_LAST_EXPONENT, _BEYOND = 88.0, 1e150
"""From where on exp(x) may be infinite in float32, and a number far beyond that type."""

_OWN_DEFAULTS = frozenset({"affine", "scaledtanh", "thresholdedrelu"})
"""Functions for whose parameters ONNX Runtime uses 0 where the node gives none."""


def curves_of(
    op: Operation, default: Sequence[str], directions: int, dtype: torch.dtype, *, clipped: bool = True
) -> list[list[Curve]]:
    """Return bounds of the functions of :func:`activations_of`, for the type in which the runtimes compute."""
    chosen, clip = _choose(op, default, directions), _limit_of(op) if clipped else None
    return [[_curve(key, given, own, clip, dtype) for key, given, own in part] for part in chosen]


def _curve(key: str, given: Sequence[float], own: Sequence[float], clip: float | None, dtype: torch.dtype) -> Curve:
    variants = [_IN_REAL_NUMBERS.get(key, _activation(key, given))]
    if own != given and key in _OWN_DEFAULTS:
        variants.append(_activation(key, own))
    if key == "softplus":
        variants.append(_overflowing_softplus)
    jumps = (float(given[0]), 0.0) if key == "thresholdedrelu" else (0.0,)
    u = unit(dtype)
    scale = max([1.0, *map(abs, given)])
    relative, absolute = 8 * u, 0.0 if key in _EXACT_FUNCTIONS else GATE_ROUNDINGS * u * scale

    def curve(x: Enclosure) -> Enclosure:
        x = x if clip is None else x.map(lambda end: end.clamp(-clip, clip))
        results = [_extremes(function, x, jumps) for function in variants]
        y = results[0] if len(results) == 1 else results[0].hull(results[1])
        reached = absolute + (relative * scale * x.size if key == "affine" else 0.0)
        y = Enclosure(y.low - y.low.abs() * relative, y.high + y.high.abs() * relative).widen(reached)
        return y.map(lambda end: end.clamp(0, 1)) if key == "hardsigmoid" else y

    return curve


def _overflowing_softplus(x: Tensor) -> Tensor:
    """Return log(1 + exp(x)) as ONNX Runtime's recurrent layers compute it: infinite where exp(x) is in float32.

    The number that stands for infinity overflows in float32, whatever is done to it, and makes no NaN in float64.
    """
    return torch.where(x > _LAST_EXPONENT, _BEYOND, softplus(x))


def _extremes(function: Activation, x: Enclosure, turns: Sequence[float]) -> Enclosure:
    """Return the range of a function that is monotone except at some points, where it may turn or jump."""
    points = [function(x.low), function(x.high)]
    for turn in turns:
        at = torch.full_like(x.low, turn)
        inside = (x.low <= turn) & (x.high >= turn)
        # At a jump the values on both sides count: of a rising function that jumps from 0, 0 and the turn itself.
        values = [function(at), at] if len(turns) > 1 and turn == turns[0] else [function(at)]
        points += [torch.where(inside, value, points[0]) for value in values]
    stacked = torch.stack(points)
    return Enclosure(stacked.amin(0), stacked.amax(0))
