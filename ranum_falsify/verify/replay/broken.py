"""The condition that an operator breaks at given operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network import spec_of
from ranum_falsify.network.evaluate import Value
from ranum_falsify.network.naming import tensor_name
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.operators.support.conditions import ReadsNan, list_refusals, list_stated_conditions
from ranum_falsify.validity import Constraint, Finite
from ranum_falsify.verify.replay.replayer import Finding


@dataclass(frozen=True)
class Accepted(Finite):
    """ONNX Runtime runs the operator; what its row states does not tell why it refuses."""

    reason: str = "it refuses"

    def describe(self) -> str:
        """See :meth:`Constraint.describe`."""
        return "ONNX Runtime runs the operator"


def find_broken(op: Operation, finding: Finding) -> Constraint | None:
    """Return the condition that an operator breaks, as ONNX Runtime shows it; None where that cannot be told.

    That is so where the finding does not hold all operands.  If they are those of another operator that ONNX Runtime's
    optimiser put in place of this one, none of its own conditions is broken but that the output is finite.
    """
    spec = spec_of(op)
    refusals = list_refusals(op, integers=True) if finding.kind in ("error", "crash") else ()
    if finding.kind == "error" and not refusals:
        return Accepted()
    if finding.kind == "nan" and _reads_nan(finding):
        return ReadsNan()
    if not list_stated_conditions(op) or finding.optimisations == "default":
        return Finite() if spec.originates_nonfinite else None
    operands = [_find_operand(value, finding) for value in spec.operands_of(op)]
    if any(x is None and value is not None for x, value in zip(operands, spec.operands_of(op), strict=True)):
        return None
    broken = find_broken_at(op, operands)
    return broken if broken in refusals or finding.kind != "error" else Accepted()


def _reads_nan(finding: Finding) -> bool:
    """Tell whether an operand holds NaN, which that of a finding does only where the model stores it."""
    return any(map(math.isnan, finding.values.values() or (low for low, _ in finding.operands.values())))


def find_broken_at(op: Operation, operands: Sequence[Value], results: Sequence[Tensor] = ()) -> Constraint:
    """Return the first condition of an invalid operator's row that is broken, or that its output is finite."""
    named: dict[str, Tensor] = {
        name: to_torch(value) if isinstance(value, np.ndarray) else value
        for name, value in spec_of(op).name_values(operands).items()
        if value is not None
    }
    named |= {"output" if i == 0 else f"output_{i}": y for i, y in enumerate(results)}
    broken = next((c for c in list_stated_conditions(op) if bool((c.margin(op, named) < 0).any())), Finite())
    floating = next((x.dtype for x in named.values() if x.is_floating_point()), torch.float32)
    return broken.as_read(floating)


def _find_operand(value: Operation | np.ndarray | None, finding: Finding) -> np.ndarray | None:
    """Return an operand as a finding has it: of an elementwise operator, a single element."""
    if isinstance(value, Operation):
        return finding.arrays.get(tensor_name(value))
    if value is None or not finding.values:
        return value
    tail = finding.index[len(finding.index) - value.ndim :]
    at = (0 if n == 1 else i for n, i in zip(value.shape, tail, strict=True))
    return np.asarray(value[tuple(slice(i, i + 1) for i in at)])
