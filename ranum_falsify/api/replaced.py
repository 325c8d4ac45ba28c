"""Functions of PyTorch that stand for others while a module is exported.

They compute the same, but branch on no number: where PyTorch looks at numbers and stops, they give NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ranum_falsify.api.ctc_loss import ctc_loss


class ReplacedFunctions(TorchFunctionMode):
    """Calls others in the place of functions that cannot be exported."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function, or what stands for it."""
        return _REPLACED.get(func, func)(*args, **(kwargs or {}))


def _gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    if isinstance(var, float):
        var = torch.full_like(input, var)
    if var.shape == input.shape[:-1] != input.shape:
        var = var.unsqueeze(-1)
    refused = var.detach().clamp(max=0).sqrt()  # NaN where PyTorch stops, else 0
    clamped = var + refused
    with torch.no_grad():
        clamped.clamp_(min=eps)
    loss = 0.5 * (clamped.log() + (input - target) ** 2 / clamped)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


_REPLACED: dict[Callable[..., Any], Callable[..., Any]] = {
    F.ctc_loss: ctc_loss,
    F.gaussian_nll_loss: _gaussian_nll_loss,
}
