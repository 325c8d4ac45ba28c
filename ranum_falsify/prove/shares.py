"""The time of several proofs, shared among them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

__all__ = ["share_time"]

_Task = TypeVar("_Task")


def share_time(tasks: Sequence[_Task], deadline: float) -> Iterator[tuple[_Task, float]]:
    """Yield each task with the end of its equal share of the time that is left when its turn comes.

    Args:
        tasks: The tasks.
        deadline: When all must have ended, on the clock of `time.monotonic`.
    """
    for position, task in enumerate(tasks):
        now = time.monotonic()
        yield task, now + (deadline - now) / (len(tasks) - position)
