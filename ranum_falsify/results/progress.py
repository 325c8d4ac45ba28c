"""Progress: a bar on a terminal or in a notebook, and a line now and then elsewhere."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from ranum_falsify.escaping import escape

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_SILENCE = 5.0  # seconds between two lines
_PATIENCE = 1.0  # seconds after which a notebook shows something


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


class ProgressStep(NamedTuple):
    """How far work has got of which no more is known; see `ProgressLike`."""

    stage: str
    done: float
    text: str


FollowLike = bool | Callable[[Any], None] | None
"""How progress is followed: shown, not shown, shown in notebooks alone if None, or handed to a function."""


def is_notebook() -> bool:
    """Tell whether a notebook runs this."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


@contextmanager
def follow(progress: FollowLike) -> Iterator[Callable[[ProgressLike], None]]:
    """Yield what takes the steps of a run."""
    if callable(progress):
        yield progress
    elif progress or (progress is None and is_notebook()):
        from rich.console import Console

        console = Console(stderr=True)

        def say(lines: Iterable[str]) -> None:
            console.print(*map(escape, lines), sep="\n", markup=False, highlight=False)

        with ProgressDisplay(say=say, is_terminal=console.is_terminal) as display:
            yield display
    else:
        yield lambda _: None


class ProgressDisplay:
    """Shows steps while its context is open, and leaves no trace on a terminal or in a notebook.

    Args:
        verbosity: Below 0 nothing is shown; above 0 a line tells the start of every stage.
        say: Prints lines, where there is neither.
        is_terminal: Whether standard error is one.
    """

    def __init__(self, verbosity: int = 0, *, say: Callable[[Iterable[str]], None], is_terminal: bool) -> None:
        self._verbosity = verbosity
        self._say = say
        self._is_terminal = is_terminal
        self._is_notebook = is_notebook()
        self._bar: Bar | None = None
        self._handle: Any = None
        self._stage = ""
        self._began = self._last = time.monotonic()

    def __enter__(self) -> Self:
        """Return itself; nothing is shown before the first step."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
        if self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)

    def __call__(self, step: ProgressLike) -> None:
        """Show a step."""
        if self._verbosity < 0:
            return
        if self._is_notebook:
            self._embed(step)
        elif self._is_terminal:
            self._draw(step)
        else:
            self._print(step)

    def _embed(self, step: ProgressLike) -> None:
        """Show a bar in a notebook; short runs leave nothing there."""
        if time.monotonic() - self._began < _PATIENCE:
            return
        label = escape(_label(step))
        bar = f'<progress value="{step.done:.3f}" aria-label="progress"></progress> {html.escape(label)}'
        shown = {"text/plain": f"{label} ({step.done:.0%})", "text/html": bar}
        if self._handle is None:
            self._handle = import_module("IPython.display").display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

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
            self._say([f"{_label(step)} ({step.done:.0%})"])
            self._last = now
        self._stage = step.stage


def _label(step: ProgressLike) -> str:
    return f"{step.stage}: {step.text}" if step.text else step.stage
