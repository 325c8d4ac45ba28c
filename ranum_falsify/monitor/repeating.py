"""A call of a module, made again as it was and recorded; and remedies for the lines by which it failed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ranum_falsify.api.checking import check
from ranum_falsify.api.result import Mended
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
        """Return a record of the call made again, with a backward pass if it returns a loss; None where that fails.

        With it come the places of the gradients that are not finite.  The module is left as it is, gradients and
        buffers included.
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


_MOST_WEIGHTS = 20_000_000
"""Modules with more weights would take too long to export."""

_STARTS = 100


def find_remedies(model: torch.nn.Module, call: Repeatable | None, seconds: float) -> Iterator[str]:
    """Yield the mended lines of a module that failed in a call, and what `check` says of it with them, in time.

    The question is about the weights as they are, and a batch whose numbers are not beyond those of this one.
    """
    if call is None or call.function is not model or sum(x.numel() for x in model.parameters()) > _MOST_WEIGHTS:
        return
    try:
        mended = _mend(model, call, seconds)
    except Exception:  # whatever the exporter, or the user's code, raises must not hide what failed
        return
    for change in mended.changes if mended is not None else ():
        yield f"mended line {change.source.line}: {change.mended}{change.loss}"
    if mended is not None and mended.changes:
        yield f"with that, `check` answers for such batches and these weights: {mended.result.verdict}"


def _mend(model: torch.nn.Module, call: Repeatable, seconds: float) -> Mended | None:
    given = inspect.signature(model.forward).bind(*call.args, **call.kwargs).arguments
    box = {
        name: (float(x.detach().min()), float(x.detach().max()))
        for name, x in given.items()
        if isinstance(x, Tensor) and x.is_floating_point()
    }
    if not all(math.isfinite(end) for ends in box.values() for end in ends):
        return None
    args = tuple(x.detach() if isinstance(x, Tensor) else x for x in call.args)
    kwargs = {name: x.detach() if isinstance(x, Tensor) else x for name, x in call.kwargs.items()}
    autocast = call.autocast[0][1] if call.autocast else None
    return check(
        model,
        args,
        kwargs,
        box=box,
        gradient=True,
        autocast=autocast,
        mend=seconds,
        timeout=2 * seconds,
        n_starts=_STARTS,
        self_check=False,
    ).mended
