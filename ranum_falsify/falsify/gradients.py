"""Gradient validity: whether an operator's derivative is finite at given operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from dnnv.nn import Operation

from ranum_falsify.network import spec_of
from ranum_falsify.network.evaluate import Value, apply
from ranum_falsify.network.tensors import to_torch

__all__ = ["has_finite_derivative", "operand_ranges"]


def has_finite_derivative(op: Operation, operands: Sequence[np.ndarray | None]) -> bool:
    """Tell whether autograd finds finite derivatives of an operator's first output in all of its operands.

    Args:
        op: The operator.
        operands: What it reads, in the order of its row. Where it holds NaN the operator before is to blame: true.
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
    """Return least and greatest value of each floating operand, by operand name."""
    named = spec_of(op).named(operands)
    floating = {name: x for name, x in named.items() if x is not None and x.size and x.dtype.kind == "f"}
    return {name: (float(x.min()), float(x.max())) for name, x in floating.items()}
