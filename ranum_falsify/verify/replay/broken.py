"""What an operator breaks at given operands: a condition of its row, or that its derivative is finite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.evaluate import Value, apply
from ranum_falsify.network.naming import tensor_name
from ranum_falsify.network.tensors import is_floating, to_numpy, to_torch
from ranum_falsify.operators.support.conditions import ReadsNan, list_refusals, list_stated_conditions
from ranum_falsify.validity import Constraint, Finite
from ranum_falsify.verify.replay.confirmer import Confirmer
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


# derivatives ----------------------------------------------------------------------------------------------------------

DENORMAL = float(torch.finfo(torch.float32).tiny)
"""Margins below this are 0 for kernels and devices that flush denormal numbers."""


@dataclass(frozen=True)
class SteepPoint:
    """Operands at which a derivative is not finite.

    Attributes:
        operands: What the operator reads, in the order of its row; None where absent.
        oracle: `autograd-flushed` if ONNX Runtime computes these operands only with denormal numbers flushed to 0.
    """

    operands: Sequence[np.ndarray | None]
    oracle: Literal["autograd", "autograd-flushed"]


def steep_point(
    confirmer: Confirmer, graph: Graph, op: Operation, feeds: Mapping[str, np.ndarray]
) -> SteepPoint | None:
    """Return an operator's operands on ONNX Runtime if its derivative is not finite at them.

    Denormal numbers are first as they are, then flushed to 0.

    Raises:
        ReplayError: ONNX Runtime refuses, crashes or takes too long.
    """
    operands = confirmer.operands(graph, op, feeds)
    if not has_finite_derivative(op, operands):
        return SteepPoint(operands, "autograd")
    operands = confirmer.flushing.operands(graph, op, feeds)
    return None if has_finite_derivative(op, operands) else SteepPoint(operands, "autograd-flushed")


def steep_in_torch(graph: Graph, op: Operation, feeds: Mapping[str, np.ndarray]) -> Sequence[np.ndarray | None] | None:
    """Return an operator's operands on PyTorch if its derivative is not finite at them."""
    read: list[np.ndarray | None] = []

    def watch(node: Operation, operands: Sequence[Value], results: tuple[torch.Tensor, ...]) -> None:
        if node is op:
            read.extend(to_numpy(x) if isinstance(x, torch.Tensor) else x for x in operands)

    with torch.no_grad():
        graph.evaluate([to_torch(feeds[name]) for name in graph.input_names], watch)
    return None if has_finite_derivative(op, read) else read


def has_finite_derivative(op: Operation, operands: Sequence[np.ndarray | None]) -> bool:
    """Tell whether autograd finds finite derivatives of an operator's first output in all of its operands.

    Where an operand holds NaN, an earlier operator is to blame: true.
    """
    spec = spec_of(op)
    names = (*spec.operands, *([""] * len(operands)))
    values: list[Value] = []
    for name, operand in zip(names, operands, strict=False):
        values.append(operand if operand is None or name in spec.static else to_torch(operand))
    floating = [v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()]
    if any(bool(v.isnan().any()) for v in floating):
        return True
    leaves = [v.requires_grad_() for v in floating]
    output = apply(spec, op, values)[0]
    if not leaves or not output.requires_grad:
        return True
    found = torch.autograd.grad(output.sum(), leaves, allow_unused=True)
    return all(gradient is None or bool(gradient.isfinite().all()) for gradient in found)


def operand_ranges(op: Operation, operands: Sequence[np.ndarray | None]) -> dict[str, tuple[float, float]]:
    """Return least and greatest value of each operand that holds numbers, by operand name."""
    named = spec_of(op).name_values(operands)
    held = ((name, x) for name, x in named.items() if x is not None and x.size)
    numbers = {name: x for name, x in held if x.dtype.kind in "iu" or is_floating(x.dtype)}
    return {name: (x.min().item(), x.max().item()) for name, x in numbers.items()}
