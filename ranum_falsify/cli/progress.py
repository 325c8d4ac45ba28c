"""Progress: a bar on a terminal, a line now and then in a pipe, both on standard error."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ranum_falsify.cli.streams import complain
from ranum_falsify.escaping import escape

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["ProgressDisplay", "ProgressLike"]

_SILENCE = 5.0  # seconds between two lines in a pipe


class ProgressLike(Protocol):
    """How far the work has got: the stage, the fraction done, and the current item."""

    @property
    def stage(self) -> str:
        """Name of the stage."""

    @property
    def done(self) -> float:
        """Fraction of the stage that is done, from 0 to 1."""

    @property
    def text(self) -> str:
        """The current item."""


class ProgressDisplay:
    """Shows steps while its context is open, and leaves no trace on a terminal.

    Args:
        verbosity: Below 0 nothing is shown; above 0 a pipe sees the start of every stage.
    """

    def __init__(self, verbosity: int = 0) -> None:
        self._verbosity = verbosity
        self._bar: Bar | None = None
        self._stage = ""
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        """Return itself; nothing is shown before the first step."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, step: ProgressLike) -> None:
        """Show a step."""
        if self._verbosity < 0:
            return
        if sys.stderr.isatty():
            self._draw(step)
        else:
            self._print(step)

    def _draw(self, step: ProgressLike) -> None:
        if self._bar is None:
            from rich.console import Console  # only a terminal needs it
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            text = TextColumn("{task.description}", markup=False)
            console = Console(stderr=True)
            self._bar = Progress(text, BarColumn(), TimeElapsedColumn(), console=console, transient=True)
            self._bar.add_task("", total=1.0)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=step.done, description=escape(_label(step)))

    def _print(self, step: ProgressLike) -> None:
        now = time.monotonic()
        is_new = self._verbosity > 0 and step.stage != self._stage
        if is_new or now - self._last >= _SILENCE:
            complain([f"{_label(step)} ({step.done:.0%})"])
            self._last = now
        self._stage = step.stage


def _label(step: ProgressLike) -> str:
    return f"{step.stage}: {step.text}" if step.text else step.stage
