"""The search's state of one target: its margins, and crossings to bisect."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network import OperatorSpec, spec_of
from ranum_falsify.network.evaluate import Value
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.replay.broken import DENORMAL
from ranum_falsify.verify.search.converter import Probe

_REFUSALS = 16
"""Candidates of a target that ONNX Runtime may refuse before a round of the search turns to others."""


@dataclass
class TargetState:
    """What the search knows about one target.

    Attributes:
        target: The target.
        best: Its least margin so far.
        at_start: The same before descents.
        points: Where that is, with a batch of 1.
        refused: Candidates in this round that ONNX Runtime did not confirm.
        doubtful: The last of them, those of earlier rounds too.
    """

    target: Target
    best: float = float("inf")
    at_start: float = float("inf")
    points: list[Tensor] = field(default_factory=list)
    refused: int = 0
    doubtful: deque[list[Tensor]] = field(default_factory=lambda: deque(maxlen=_REFUSALS))

    @property
    def limit(self) -> float:
        """A margin below this is worth a replay."""
        return DENORMAL if self.target.is_gradient else 0.0

    @property
    def is_given_up(self) -> bool:
        """Whether ONNX Runtime has refused so many candidates that this round tries no more."""
        return self.refused >= _REFUSALS

    def note(self, margins: Tensor, inputs: Sequence[Tensor]) -> None:
        """Remember the best point of a batch, with a batch of 1."""
        least, position = margins.min(0)
        self.best = float(least)
        self.points = _take(inputs, int(position))

    def refuse(self, inputs: Sequence[Tensor], position: int) -> None:
        """Remember a candidate that ONNX Runtime does not confirm."""
        self.refused += 1
        self.doubtful.append(_take(inputs, position))


def _take(inputs: Sequence[Tensor], position: int) -> list[Tensor]:
    return [x[position][None].clone() for x in inputs]


def probe_of(targets: Sequence[Target]) -> Probe:
    """Return a probe of the least margin of each target of one operator, shape `(targets,)`."""
    constraints = [target.constraint for target in targets]

    def probe(op: Operation, operands: Sequence[Tensor], outputs: Sequence[Tensor]) -> Tensor:
        return least_margins(constraints, op, operands, outputs)

    return probe


def least_margins(
    constraints: Sequence[Constraint], op: Operation, operands: Sequence[Value], outputs: Sequence[Tensor]
) -> Tensor:
    """Return the least margin of each condition on an operator, shape `(conditions,)`.

    A NaN margin means that an operand became invalid upstream; it counts as not violated here.
    """
    named = _name_operands(spec_of(op), operands, outputs)
    return torch.stack([_least(constraint.margin(op, named)) for constraint in constraints])


def margin_and_crossing_of(target: Target) -> Probe:
    """Return a probe of the target's least margin, followed by the elements of its crossing where it has one."""

    def probe(op: Operation, operands: Sequence[Tensor], outputs: Sequence[Tensor]) -> Tensor:
        margin = least_margins([target.constraint], op, operands, outputs)
        crossing = target.constraint.crossing(op, _name_operands(target.spec, operands, outputs))
        return margin if crossing is None else torch.cat([margin, crossing.reshape(-1).double()])

    return probe


def margins_of(targets: Sequence[Target]) -> Probe:
    """Return a probe of all margins of the targets of one operator, flattened to `(elements,)`."""

    def probe(op: Operation, operands: Sequence[Tensor], outputs: Sequence[Tensor]) -> Tensor:
        named = _name_operands(spec_of(op), operands, outputs)
        return torch.cat([target.constraint.margin(op, named).reshape(-1).double() for target in targets])

    return probe


def _name_operands(spec: OperatorSpec, operands: Sequence[Value], outputs: Sequence[Tensor]) -> dict[str, Tensor]:
    named = {name: value for name, value in spec.name_values(operands).items() if value is not None}
    device = outputs[0].device
    for name, value in named.items():
        if isinstance(value, np.ndarray):
            named[name] = torch.from_numpy(np.array(value)).to(device)
    return named | {"output" if i == 0 else f"output_{i}": y for i, y in enumerate(outputs)}


def _least(margin: Tensor) -> Tensor:
    if margin.numel() == 0:
        return torch.full((), torch.inf, dtype=torch.float64, device=margin.device)
    return torch.nan_to_num(margin, nan=torch.inf, posinf=torch.inf, neginf=-torch.inf).amin().double()
