"""The loss of connectionist temporal classification in PyTorch's other operators, forward and backward.

PyTorch has a kernel alone, whose numbers these are but for rounding.  Minus infinity, where a prefix of the labels has
no alignment, is a number far below all others here: what is impossible by lengths alone ends in a division by 0, the
loss of which is infinite there, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_NEVER = -1e30
"""Logarithm of the probability of what does not happen."""

_CERTAIN = 1e8
"""Losses up to which the kernel's derivative does not overflow: its exponent is not above 0 but for rounding."""


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Return what `torch.nn.functional.ctc_loss` does."""
    lengths = [torch.as_tensor(each, dtype=torch.int64).reshape(-1) for each in (input_lengths, target_lengths)]
    single = log_probs.dim() == 2
    if single:
        log_probs, targets = log_probs.unsqueeze(1), targets.reshape(1, -1)
    found: Tensor = _CtcLoss.apply(log_probs, targets, *lengths, blank, zero_infinity)  # type: ignore[no-untyped-call]
    if reduction == "none":
        return found.squeeze(0) if single else found
    return found.sum() if reduction == "sum" else (found / lengths[1].clamp(min=1)).mean()


@dataclass(frozen=True)
class _Alignment:
    """The states of an alignment: a blank before, between and after the labels.

    Attributes:
        emitted: Logarithms of the probabilities of the states' symbols, of shape `(times, samples, states)`.
        symbols: The symbols, of shape `(samples, states)`.
        skips: Whether a state may follow the one two before it, of the same shape.
        inputs: Lengths of the samples.
        labels: How many labels each has.
        possible: Whether the labels fit.
    """

    emitted: Tensor
    symbols: Tensor
    skips: Tensor
    inputs: Tensor
    labels: Tensor
    possible: Tensor

    @classmethod
    def of(cls, log_probs: Tensor, targets: Tensor, inputs: Tensor, labels: Tensor, blank: int) -> _Alignment:
        if targets.dim() == 1:  # one sample after the other
            places = (labels.cumsum(0) - labels).unsqueeze(1) + torch.arange(targets.shape[0])
            targets = targets[places.clamp(max=targets.shape[0] - 1)]
        samples, most = targets.shape
        blanks = torch.full_like(targets, blank)
        symbols = torch.cat([blanks[:, :1], torch.stack([targets, blanks], -1).reshape(samples, 2 * most)], 1)
        same = symbols[:, 2:] == symbols[:, :-2]
        skips = torch.cat([torch.zeros(samples, 2, dtype=torch.bool), ~same], 1)
        counted = torch.arange(1, most) < labels.unsqueeze(1)
        repeats = ((targets[:, 1:] == targets[:, :-1]) & counted).to(torch.int64).sum(1)
        emitted = log_probs.gather(2, symbols.unsqueeze(0).expand(log_probs.shape[0], -1, -1))
        return cls(emitted, symbols, skips, inputs, labels, inputs >= labels + repeats)

    @property
    def states(self) -> Tensor:
        """The numbers of the states."""
        return torch.arange(self.symbols.shape[1])

    @property
    def ends(self) -> Tensor:
        """Whether a sample may end in a state."""
        last = 2 * self.labels.unsqueeze(1)
        return (self.states == last) | ((self.states == last - 1) & (last > 0))

    def forward(self) -> Tensor:
        """Return the logarithms of the probabilities of all prefixes, of the shape of `emitted`."""
        starts = (self.states == 0) | ((self.states == 1) & (self.labels.unsqueeze(1) > 0))
        found = [torch.where(starts, self.emitted[0], _NEVER)]
        for emitted in self.emitted[1:]:
            found.append(_add_up(found[-1], self.skips, back=False) + emitted)
        return torch.stack(found)

    def backward(self) -> Tensor:
        """Return the logarithms of the probabilities of all suffixes."""
        skips = torch.cat([self.skips[:, 2:], torch.zeros_like(self.skips[:, :2])], 1)
        times = self.emitted.shape[0]
        following = torch.full_like(self.emitted[0], _NEVER)
        found = []
        for time in reversed(range(times)):
            ending = torch.where(self.ends, self.emitted[time], _NEVER)
            going_on = _add_up(following, skips, back=True) + self.emitted[time]
            following = torch.where(self.inputs.unsqueeze(1) == time + 1, ending, going_on)
            found.append(following)
        return torch.stack(found[::-1])

    def loss(self, prefixes: Tensor, zero_infinity: bool) -> Tensor:
        """Return the negative logarithms of the samples' probabilities."""
        last = (self.inputs - 1).clamp(min=0).reshape(1, -1, 1).expand(1, -1, self.symbols.shape[1])
        whole = torch.where(self.ends, prefixes.gather(0, last).squeeze(0), _NEVER).logsumexp(1)
        whole = torch.where((self.inputs == 0) & (self.labels == 0), 0.0, whole)
        if zero_infinity:
            return torch.where(self.possible, -whole, 0.0)
        return -whole / self.possible.to(whole.dtype)


def _add_up(before: Tensor, skips: Tensor, *, back: bool) -> Tensor:
    """Return the logarithms of the sums of what leads to a state: itself, its neighbour, and the one after that."""
    none = torch.full_like(before[:, :2], _NEVER)
    if back:
        near, far = (torch.cat([before[:, n:], none[:, :n]], 1) for n in (1, 2))
    else:
        near, far = (torch.cat([none[:, :n], before[:, :-n]], 1) for n in (1, 2))
    return torch.stack([before, near, torch.where(skips, far, _NEVER)]).logsumexp(0)


class _CtcLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, log_probs: Tensor, targets: Tensor, inputs: Tensor, labels: Tensor, blank: int, zero_infinity: bool
    ) -> Tensor:
        alignment = _Alignment.of(log_probs, targets, inputs, labels, blank)
        prefixes = alignment.forward()
        loss = alignment.loss(prefixes, zero_infinity)
        ctx.save_for_backward(log_probs, targets, inputs, labels, prefixes, loss)
        ctx.blank, ctx.zero_infinity = blank, zero_infinity
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        log_probs, targets, inputs, labels, prefixes, loss = ctx.saved_tensors
        alignment = _Alignment.of(log_probs, targets, inputs, labels, ctx.blank)
        # At each time, the probabilities of all states sum to that of the sample.
        shares = torch.softmax(prefixes + alignment.backward() - alignment.emitted, -1).unsqueeze(-1)
        is_symbol = alignment.symbols.unsqueeze(-1) == torch.arange(log_probs.shape[2])
        taken = (shares * is_symbol.to(log_probs.dtype)).sum(2)
        taken = taken / (loss < _CERTAIN).to(log_probs.dtype).reshape(1, -1, 1)
        found = (log_probs.exp() - taken) * gradients[0].reshape(1, -1, 1)
        counted = torch.arange(log_probs.shape[0]).unsqueeze(1) < inputs
        if ctx.zero_infinity:
            counted = counted & alignment.possible
        return torch.where(counted.unsqueeze(-1), found, 0.0), None, None, None, None, None


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
