"""Gradient validity: whether an operator's derivative is finite at given operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from dnnv.nn import Operation

from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.evaluate import Value, apply
from ranum_falsify.network.tensors import is_floating, to_numpy, to_torch
from ranum_falsify.verify.replay.confirmer import Confirmer

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
