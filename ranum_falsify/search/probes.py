"""What the search observes at targets: margins to make negative, and crossings to bisect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network import OperatorSpec, spec_of
from ranum_falsify.network.evaluate import Value
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.search.converter import Probe
from ranum_falsify.validity import Constraint

__all__ = ["least_margins", "margin_and_crossing_of", "margins_of", "probe_of"]


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
