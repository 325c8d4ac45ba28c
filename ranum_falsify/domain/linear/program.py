"""A graph as steps of a backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ranum_falsify.domain.linear.steps import Box, Step

__all__ = ["BoundedTensor", "Program"]


@dataclass(frozen=True)
class BoundedTensor:
    """A tensor of the graph.

    Attributes:
        shape: Its shape.
        box: Its bounds by the interval analysis, `(1, *shape)`; may be infinite.
    """

    shape: tuple[int, ...]
    box: Box


@dataclass
class Program:
    """Steps in topological order.

    Attributes:
        variables: Every floating tensor that depends on the inputs, by number.
        steps: The steps that compute them; variables that no step writes are free within their boxes.
        inputs: Variables of the graph's inputs; None for those that are not floating or have one value.
        numbers: Variable of each operation, and of constants that do not have a single value, by id.
        writers: The step that writes each variable.
    """

    variables: list[BoundedTensor] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    inputs: list[int | None] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    writers: dict[int, int] = field(default_factory=dict)

    def add(self, variable: BoundedTensor) -> int:
        """Add a variable and return its number."""
        self.variables.append(variable)
        return len(self.variables) - 1

    def append(self, step: Step) -> None:
        """Append a step."""
        self.writers.update(dict.fromkeys(step.writes, len(self.steps)))
        self.steps.append(step)

    def select_before(self, targets: Sequence[int]) -> list[int]:
        """Return the steps on which variables depend, last first."""
        needed, found = set(targets), []
        for number in reversed(range(len(self.steps))):
            step = self.steps[number]
            if not needed.isdisjoint(step.writes):
                needed.update(step.reads)
                found.append(number)
        return found
