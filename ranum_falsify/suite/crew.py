"""Crews that answer tasks: workers of this machine, or of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from ranum_falsify.suite.task import Answered, Task


class Crew(Protocol):
    """Workers; a context manager, whose exit ends them and what they work on."""

    def __enter__(self) -> Self:
        """Start the workers."""

    def __exit__(self, *_: object) -> None:
        """End the workers."""

    @property
    def capacity(self) -> int:
        """How many tasks they work on at a time, which may change."""

    def submit(self, task: Task) -> None:
        """Have a task answered."""

    def collect(self, patience: float) -> Sequence[tuple[Task, Answered]]:
        """Wait for answers.

        Args:
            patience: Seconds to wait; there may be none by then.

        Raises:
            RanumFalsifyError: There are no workers, and will be none.
        """
