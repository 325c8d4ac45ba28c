"""Progress of a suite, on standard error."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ranum_falsify.cli.progress import show_progress
from ranum_falsify.cli.streams import complain
from ranum_falsify.suite.record import STATUSES, InstanceRecord
from ranum_falsify.suite.running import SuiteStanding


@dataclass(frozen=True)
class _Step:
    """What the display of progress shows of a suite."""

    stage: str
    done: float
    text: str


class SuiteDisplay:
    """Shows a bar on a terminal, and a line now and then in a pipe; a context manager.

    Args:
        verbosity: Below 0 nothing is shown; above 0 a line for each instance, too.
    """

    def __init__(self, verbosity: int) -> None:
        self._verbosity = verbosity
        self._display = show_progress(min(verbosity, 0))

    def __enter__(self) -> Self:
        """Return itself; nothing is shown before the first step."""
        self._display.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        self._display.__exit__(kind, error, trace)

    def __call__(self, standing: SuiteStanding, record: InstanceRecord | None) -> None:
        """Show how far the suite has got, and what came of an instance."""
        if record is not None and self._verbosity > 0:
            seconds = record.preparation + record.seconds
            detail = f": {record.error}" if record.error else ""
            complain([f"{record.instance.id}: {record.status} ({seconds:.2f} s){detail}"])
        left = "" if standing.seconds_left is None else f", about {_describe_seconds(standing.seconds_left)} left"
        text = f"{standing.done}/{standing.total}, {len(standing.running)} running, {describe_counts(standing)}{left}"
        self._display(_Step("suite", standing.done / standing.total, text))


def describe_counts(standing: SuiteStanding) -> str:
    """Return how many instances came to which outcome."""
    return ", ".join(f"{status} {standing.counts[status]}" for status in STATUSES if _is_shown(standing, status))


def _is_shown(standing: SuiteStanding, status: str) -> bool:
    return status in ("sat", "unsat", "unknown") or any(
        count and status == name for name, count in standing.counts.items()
    )


def _describe_seconds(seconds: float) -> str:
    minutes = seconds / 60
    return f"{seconds:.0f} s" if seconds < 100 else f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
