"""A call of a module, made again as it was and recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ranum_falsify.monitor.recorder import Recorder, draw_state


@dataclass(frozen=True)
class Repeatable:
    """A call of the module, with what decides what it returns."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    random: Mapping[str, Tensor]
    autocast: tuple[tuple[str, torch.dtype], ...]

    def inputs(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors among the arguments, by name."""
        for path, leaf in pytree.tree_leaves_with_path((self.args, dict(self.kwargs))):
            if isinstance(leaf, Tensor):
                yield pytree.keystr(path[1:]).strip("[]'").replace("']['", "."), leaf

    @classmethod
    def of(cls, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Repeatable:
        """Return a call that is about to be made."""
        devices = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
        casts = tuple((d, torch.get_autocast_dtype(d)) for d in devices if torch.is_autocast_enabled(d))
        return cls(function, args, kwargs, draw_state(), casts)

    @contextmanager
    def _restored(self) -> Iterator[None]:
        """Let it draw and cast as it did, and draw on afterwards as if it had not been called again."""
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng())
            torch.set_rng_state(self.random["cpu"])
            if "cuda" in self.random:
                torch.cuda.set_rng_state(self.random["cuda"])
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype))
            stack.enter_context(torch.enable_grad())
            yield

    def record(self, model: torch.nn.Module) -> tuple[Recorder, list[int]] | None:
        """Return a record of the call made again, with its backward pass where it returns a loss.

        Args:
            model: The module, which is left as it is, gradients and buffers included.

        Returns:
            The record, and the places of the gradients that are not finite; None where the call cannot be made again.
        """
        buffers = [(x, x.clone()) for x in model.buffers()]
        kept = [(x, x.grad) for x in model.parameters()]
        recorder = Recorder()
        recorder.trace.random = dict(self.random)
        try:
            with self._restored(), recorder:
                loss = _loss_in(self.function(*self.args, **self.kwargs))
                if loss is not None:
                    for weight, _ in kept:
                        weight.grad = None
                    loss.backward()
            bad = [x.grad for x, _ in kept if x.grad is not None and not bool(x.grad.isfinite().all())]
            return recorder, [place for x in bad if (place := recorder.place_of(x)) is not None]
        except Exception:  # whatever the user's code raises where it does not expect to be called again
            return None
        finally:
            for weight, gradient in kept:
                weight.grad = gradient
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)


def _loss_in(outputs: Any) -> Tensor | None:
    """Return the loss among what a module returns: a number by itself, `loss`, or the first of several."""
    found = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", outputs)
    found = found[0] if isinstance(found, tuple | list) and found else found
    return found if isinstance(found, Tensor) and found.numel() == 1 and found.requires_grad else None
