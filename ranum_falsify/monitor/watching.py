"""A training run under watch: which steps are recorded, and what happens when one of them fails."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from ranum_falsify.errors import NonFiniteError, SaveError, UsageError, reason_of
from ranum_falsify.monitor.findings import Diagnosis, Trends, find_cause
from ranum_falsify.monitor.recorder import Recorder, Trace
from ranum_falsify.monitor.repeating import Repeatable, find_remedies
from ranum_falsify.monitor.saved import save_step
from ranum_falsify.results.notebook import draw_margins
from ranum_falsify.saving import check_place

T = TypeVar("T")
_SHOWN = 3
"""Operators near their limits that one warning names, and carriers that a report does."""


class WatchWarning(UserWarning):
    """An operator of a training run comes near its limit."""


@dataclass(frozen=True)
class FailedStep:
    """The first step of a run whose gradients are not finite.

    Attributes:
        step: Its number, from 0; updates of the optimiser are counted.
        diagnosis: The operators that made NaN or infinity, and those that handed it on.
        inputs: Names of the inputs of the module that were not finite before.
        weights: Names of the weights and buffers that were not finite before: the last update brought it.
        state: What of the optimiser's state is not finite, as `exp_avg of layer.weight`.
        gradients: Names of the weights whose gradients are not finite.
        file: Where the step was saved; None where it could not be.
        lost: Whether tensors that it read were changed where that is not seen, so that its replay may differ.
        mended: What to write in place of lines of the module, and what `check` says of it then, a sentence each.
    """

    step: int
    diagnosis: Diagnosis
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    state: tuple[str, ...]
    gradients: tuple[str, ...]
    file: Path | None
    lost: bool
    mended: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the report."""
        lines = [f"step {self.step:,}: the gradient of {_some(self.gradients)} is not finite"]
        lines += [*dict.fromkeys(map(str, self.diagnosis.causes))][:_SHOWN]
        if self.weights:
            brought = f"by the update before (its state: {_some(self.state)})" if self.state else "by the update before"
            lines.append(f"brought {brought}: {_some(self.weights)} was not finite when the step began")
        elif self.inputs:
            lines.append(f"brought by the inputs: {_some(self.inputs)} is not finite")
        else:
            lines.append("inputs, weights and the optimiser's state were finite when the step began")
        if self.diagnosis.carriers:
            lines.append(f"handed on by {_some(self.diagnosis.carriers)}")
        lines += self.mended
        differs = " (may differ: what the step read was changed in place)" if self.lost else ""
        lines.append(f"replay: ranum-falsify replay {self.file}{differs}" if self.file else "the step is not saved")
        return lines

    def __str__(self) -> str:
        return "\n  ".join(self.lines())


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


class Watch:
    """A training run under watch; made by :func:`watch`.

    Attributes:
        step: Updates of the optimiser so far.
        warned: The warnings so far, with the step of each.
        failure: What failed, None while nothing did.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        every: int = 100,
        folder: str | Path = ".",
        then: Literal["raise", "warn"] = "raise",
        mend: float = 10.0,
    ) -> None:
        if every < 1:
            raise UsageError(f"watch: every={every} is no number of steps; give 1 or more")
        if then not in ("raise", "warn"):
            raise UsageError(f"watch: then={then!r} is not known; give 'raise' or 'warn'")
        try:
            check_place(Path(folder) / "step.pt")
        except OSError as error:
            raise UsageError(
                f"watch: folder={str(folder)!r} cannot be written ({reason_of(error)}); give another"
            ) from error
        self.step, self.warned = 0, list[tuple[int, str]]()
        self.failure: FailedStep | None = None
        self._model, self._every, self._folder, self._then = model, every, Path(folder), then
        self._seconds = mend
        self._weights = dict(model.named_parameters())
        self._ids = {id(x) for x in self._weights.values()}
        self._trends = Trends()
        self._call: Repeatable | None = None
        self._recorder: Recorder | None = None
        self._hooks: list[Any] = []
        self._holds = False
        self._hunted = 0

    def __enter__(self) -> Watch:
        """Begin to watch."""
        self._hooks = [
            register_optimizer_step_pre_hook(self._on_update),
            register_optimizer_step_post_hook(self._after_update),
            self._model.register_forward_pre_hook(self._note_call, with_kwargs=True),
        ]
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, and leave nothing behind."""
        self._stop()
        for hook in self._hooks:
            hook.remove()

    def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a function that returns the loss, and be able to repeat it.

        A step that is not recorded and fails is repeated by itself where the module returns the loss.  Where the loop
        computes the loss, the loop can have this call what does so, forward pass included, without `backward()`.
        """
        self._call = Repeatable.of(function, args, kwargs)
        self._holds = True
        try:
            return function(*args, **kwargs)
        finally:
            self._holds = False

    def plot(self, axes: Any = None, *, count: int = 6) -> Any:
        """Draw how much was left of the way to the limits that came nearest, over the steps that were read.

        Args:
            axes: Axes of matplotlib to draw on; new ones by default.
            count: How many operators are shown.

        Returns:
            The axes.

        Raises:
            UsageError: matplotlib is not installed.
        """
        return draw_margins(self._trends.list_nearest(count), axes)

    def lightning_callback(self) -> Any:
        """Return a callback for `Trainer(callbacks=[...])` of Lightning, whose training step can then be repeated.

        Raises:
            UsageError: Lightning is not installed.
        """
        found = [
            name
            for name in ("lightning.pytorch", "pytorch_lightning")
            if importlib.util.find_spec(name.partition(".")[0])
        ]
        if not found:
            raise UsageError("watch: lightning_callback needs Lightning, which is not installed; pip install lightning")
        watch, base = self, importlib.import_module(found[0]).Callback

        class RememberStep(base):  # type: ignore[misc, valid-type]
            def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, number: int, *rest: Any) -> None:
                watch._call = Repeatable.of(module.training_step, (batch, number), {})
                watch._holds = True

            def on_train_batch_end(self, *rest: Any) -> None:
                watch._holds = False

        return RememberStep()

    def _note_call(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._holds:
            self._call = Repeatable.of(module, args, kwargs)

    def _begin(self) -> None:
        if self.failure is None and (self._hunted or self.step % self._every == 0):
            self._recorder = Recorder()
            self._recorder.__enter__()  # type: ignore[no-untyped-call]

    def _stop(self) -> Recorder | None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        return recorder

    def _mine(self, optimizer: torch.optim.Optimizer) -> bool:
        return any(id(p) in self._ids for group in optimizer.param_groups for p in group["params"])

    def _on_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        """Look at the gradients before an update, or after the closure that makes them."""
        if self.failure is not None or not self._mine(optimizer):
            return None
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if closure is None:
            self._before_update(optimizer)
            return None

        def watched() -> Any:
            loss = closure()
            if self.failure is None:
                self._before_update(optimizer)
            return loss

        return args[:1], {**kwargs, "closure": watched}

    def _before_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at the gradients; the weights are still those that made them."""
        recorder = self._stop()
        failed = self._failed()
        if failed and self._is_skipped(optimizer):
            return
        if not failed:
            self._hunted = max(self._hunted - 1, 0)
            if recorder is not None:
                self._warn(self._trends.add(recorder.finish(), self.step))
            return
        places = [] if recorder is None else [recorder.place_of(self._weights[name].grad) for name in failed]
        recorded = self._explain(recorder, [place for place in places if place is not None]) or self._repeat()
        if recorded is None:
            self._withhold(failed)
            return
        self.failure = self._save(optimizer, failed, *recorded)
        if self._seconds:
            holds, self._holds = self._holds, True
            self.failure = replace(self.failure, mended=tuple(find_remedies(self._model, self._call, self._seconds)))
            self._holds = holds
        if self._then == "raise":
            raise NonFiniteError(str(self.failure))
        self._say(str(self.failure))

    def _after_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._mine(optimizer):
            self._stop()
            self.step += 1
            self._begin()

    def _failed(self) -> tuple[str, ...]:
        """Return the names of the weights whose gradients are not finite."""
        grads = {name: x.grad for name, x in self._weights.items() if x.grad is not None}
        with torch.no_grad(), _disable_current_modes():
            dense = [x for x in grads.values() if x.layout is torch.strided]
            # One pass; a norm of finite gradients may overflow, so that its infinity proves nothing.
            if dense and bool(torch.nn.utils.get_total_norm(dense, foreach=None).isfinite()):
                return ()
            return tuple(name for name, x in grads.items() if not bool(x.isfinite().all()))

    def _is_skipped(self, optimizer: torch.optim.Optimizer) -> bool:
        """Tell whether a GradScaler has a fused optimiser skip the update, for the scale's sake and not the weights'.

        A scale of at most 1 enlarges nothing: what is infinite with it is so without.
        """
        found, scale = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
        if found is None or scale is None or not bool(found > 0) or float(scale) <= 1:
            return False
        return all(bool(x.isfinite().all()) for x in self._weights.values())

    def _repeat(self) -> tuple[Trace, Diagnosis] | None:
        """Return the last call of the module with what it says, repeated."""
        holds, self._holds = self._holds, True
        repeated = None if self._call is None else self._call.record(self._model)
        self._holds = holds
        return None if repeated is None else self._explain(*repeated)

    def _explain(self, recorder: Recorder | None, reached: list[int]) -> tuple[Trace, Diagnosis] | None:
        """Return a recorded step with what it says; None where that is nothing."""
        if recorder is None:
            return None
        names = {place: name for name, x in self._named() if (place := recorder.place_of(x)) is not None}
        trace = recorder.finish()
        trace.names = {place: names.get(place, f"tensors.{place}") for place in trace.leaves}
        finding = find_cause(trace, reached)
        return (trace, finding) if finding.causes or finding.leaves else None

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        yield from ((f"weights.{name}", x) for name, x in self._weights.items())
        yield from ((f"buffers.{name}", x) for name, x in self._model.named_buffers())
        yield from ((f"batch.{name}", x) for name, x in (self._call.inputs() if self._call is not None else ()))

    def _withhold(self, failed: tuple[str, ...]) -> None:
        """Keep the optimiser from changing the weights, so that a step that is recorded can fail as this one did."""
        for x in self._weights.values():
            x.grad = None
        if not self._hunted:
            self._say(
                f"step {self.step:,}: the gradient of {_some(failed)} is not finite, and the step was not recorded; its"
                " update is withheld, and the next steps are recorded until one fails (call what computes the loss by"
                " watch.run, and it is repeated at once)"
            )
        self._hunted = self._every + 1

    def _save(
        self, optimizer: torch.optim.Optimizer, failed: tuple[str, ...], trace: Trace, finding: Diagnosis
    ) -> FailedStep:
        broken = [trace.names[place] for place in finding.leaves]
        names = {id(x): name for name, x in self._weights.items()}
        state = [
            f"{key} of {names.get(id(x), 'a weight')}"
            for x, entries in optimizer.state.items()
            for key, value in entries.items()
            if isinstance(value, Tensor) and value.is_floating_point() and not bool(value.isfinite().all())
        ]
        file = self._folder / f"step-{self.step}.pt"
        failure = FailedStep(
            step=self.step,
            diagnosis=finding,
            inputs=tuple(name for name in broken if name.startswith(("batch.", "tensors."))),
            weights=tuple(name for name in broken if name.startswith(("weights.", "buffers."))),
            state=tuple(state),
            gradients=failed,
            file=file,
            lost=trace.lost,
        )
        try:
            save_step(file, trace, failure.lines())
        except SaveError as error:
            # What ended the run must be told all the same.
            self._say(str(error))
            return replace(failure, file=None)
        return failure

    def _warn(self, warned: list[str]) -> None:
        self.warned += [(self.step, text) for text in warned]
        if warned:
            more = f"\nand {len(warned) - _SHOWN} more lines" if len(warned) > _SHOWN else ""
            self._say(f"step {self.step:,}: " + "\n".join(warned[:_SHOWN]) + more)

    def _say(self, text: str) -> None:
        warnings.warn(text, WatchWarning, stacklevel=3)


def watch(
    model: torch.nn.Module,
    *,
    every: int = 100,
    folder: str | Path = ".",
    then: Literal["raise", "warn"] = "raise",
    mend: float = 10.0,
) -> Watch:
    """Watch the training of a module: `with rf.watch(model): ...` around the loop, which stays as it is.

    Every `every` steps, all operators that run between two updates of an optimiser of the module's weights are read,
    forward and backward: how far their operands are from what the rows of their operators call invalid, and their
    results from overflow of their type.  A :class:`WatchWarning` is given when one has gone half of the way.  Before
    every update the gradients are looked at.  Once they are not finite, the operators that made NaN or infinity are
    named, the step is written to `step-N.pt` in the folder, and the run ends.

    Args:
        model: The module that is trained.
        every: One of how many steps is read; the others cost a look at the gradients.
        folder: Where a step that failed is saved.
        then: What to do then: `raise` the error, or `warn` and go on unwatched.
        mend: For how many seconds to look, then, for what to write in place of the module's lines; see `mend`.

    Returns:
        A context manager; its `warned` and `failure` say what was found.

    Raises:
        UsageError: An argument is invalid.
        NonFiniteError: From within the optimiser's `step`: a gradient is not finite.
    """
    return Watch(model, every=every, folder=folder, then=then, mend=mend)
