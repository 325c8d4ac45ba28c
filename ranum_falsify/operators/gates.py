"""Activation functions of recurrent layers, which name them in attributes.

Source: https://onnx.ai/onnx/operators/onnx__LSTM.html.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from dnnv.nn import Operation
from torch import Tensor
from torch.nn import functional

from ranum_falsify.errors import UnsupportedAttributeError

__all__ = ["Activation", "activations_of"]

Activation = Callable[[Tensor], Tensor]

_PLAIN: dict[str, Activation] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
    "tanh": torch.tanh,
}
# Functions with parameters, and what alpha and beta are where the node does not say.
_PARAMETRISED: dict[str, tuple[Callable[..., Tensor], tuple[float, ...]]] = {
    "affine": (lambda x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "elu": (lambda x, alpha: functional.elu(x, alpha), (1.0,)),
    "hardsigmoid": (lambda x, alpha, beta: (alpha * x + beta).clamp(0, 1), (0.2, 0.5)),
    "leakyrelu": (lambda x, alpha: functional.leaky_relu(x, alpha), (0.01,)),
    "scaledtanh": (lambda x, alpha, beta: alpha * torch.tanh(beta * x), (1.0, 1.0)),
    "thresholdedrelu": (lambda x, alpha: torch.where(x > alpha, x, 0), (1.0,)),
}


def activations_of(op: Operation, default: Sequence[str], directions: int) -> list[list[Activation]]:
    """Return the activation functions of each direction, in the operator's order.

    Args:
        op: The layer; `activations`, `activation_alpha`, `activation_beta` and `clip` are read.
        default: Names for one direction, where the node gives none.
        directions: 1 or 2.

    Raises:
        UnsupportedAttributeError: The node names too few functions, or one that the standard does not know.
    """
    wanted = len(default) * directions
    names = list(op.activations or [*default] * directions)[:wanted]
    if len(names) < wanted:
        raise UnsupportedAttributeError(f"attribute activations names {len(names)} functions, {wanted} are needed")
    alphas, betas = list(op.activation_alpha or ()), list(op.activation_beta or ())
    functions = [_clipped(_activation(name, alphas, betas), op.clip) for name in names]
    return [functions[i : i + len(default)] for i in range(0, wanted, len(default))]


def _activation(name: str, alphas: list[float], betas: list[float]) -> Activation:
    """Return a function, with its parameters taken from the front of what the node gives."""
    key = name.lower()
    if key in _PLAIN:
        return _PLAIN[key]
    if key not in _PARAMETRISED:
        known = ", ".join(sorted(_PLAIN | _PARAMETRISED))
        raise UnsupportedAttributeError(f"activation {name!r} is not supported; the standard has {known}")
    function, defaults = _PARAMETRISED[key]
    given = [source.pop(0) if source else fallback for source, fallback in zip((alphas, betas), defaults, strict=False)]
    return lambda x: function(x, *given)


def _clipped(function: Activation, clip: float | None) -> Activation:
    return function if not clip else lambda x: function(x.clamp(-clip, clip))
