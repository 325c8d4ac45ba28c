"""When work must end: a point on a clock, and the error of what is not done by then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

T = TypeVar("T")


class OutOfTime(Exception):
    """A deadline passed in the middle of something."""


@dataclass(frozen=True)
class Deadline:
    """When work must end.

    Attributes:
        end: The time, in seconds of the clock; infinite for never.
        clock: Tells the time: that of the day, or that of a processor, where a busy machine must not change what is
            found.
    """

    end: float = math.inf
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> Self:
        """Return a deadline in some seconds from now; None for never."""
        return cls(math.inf if seconds is None else clock() + seconds, clock)

    @property
    def left(self) -> float:
        """Seconds until then, at least 0."""
        return max(0.0, self.end - self.clock())

    @property
    def has_passed(self) -> bool:
        """Whether there is no time left."""
        return self.clock() >= self.end

    def check(self) -> None:
        """Do nothing while there is time left.

        Raises:
            OutOfTime: There is none.
        """
        if self.has_passed:
            raise OutOfTime

    def within(self, seconds: float) -> Deadline:
        """Return the earlier one of this and some seconds from now."""
        return replace(self, end=min(self.end, self.clock() + seconds))

    def share(self, part: float) -> Deadline:
        """Return when a part of the time that is left will have passed."""
        now = self.clock()
        return replace(self, end=now + part * (self.end - now))

    def share_among(self, tasks: Sequence[T]) -> Iterator[tuple[T, Deadline]]:
        """Yield each task with the end of its equal share of the time that is left when its turn comes."""
        for position, task in enumerate(tasks):
            yield task, self.share(1 / (len(tasks) - position))


NEVER = Deadline()
