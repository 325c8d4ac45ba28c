"""Fewer steps for the same values: on small networks the number of kernels decides how long a pass takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor
from torch.nn import functional

from ranum_falsify.network import spec_of

__all__ = ["Instruction", "fuse"]


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One operation, with the slots of the tensors that it reads and of the one that it writes."""

    op: Operation
    call: Callable[..., Any]
    reads: tuple[int, ...]
    write: int
    several: bool


def fuse(steps: Sequence[Instruction], observed: Collection[int], kept: Collection[int]) -> list[Instruction]:
    """Return steps in which a product with a constant matrix and a following sum with a constant vector are one kernel.

    Args:
        steps: In topological order.
        observed: Operations, by `id`, whose operands and results must stay visible.
        kept: Slots that are read after the last step.
    """
    readers = Counter(slot for step in steps for slot in step.reads)
    products = {
        step.write: step
        for step in steps
        if readers[step.write] == 1 and step.write not in kept and id(step.op) not in observed and _is_product(step)
    }
    result: list[Instruction] = []
    dropped: set[int] = set()
    for step in steps:
        product = None if id(step.op) in observed else _summand(step, products)
        if product is not None:
            bias = next(slot for slot in step.reads if slot != product.write)
            dropped.add(product.write)
            step = replace(step, call=_affine, reads=(*product.reads, bias))
        result.append(step)
    return [step for step in result if step.write not in dropped]


def _affine(x: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    if x.dim() == 2:
        return torch.addmm(bias, x, matrix)
    return functional.linear(x, matrix.mT, bias)


def _is_row(step: Instruction, op_type: str) -> bool:
    """Tell whether the step runs an operator's row unchanged."""
    if not isinstance(step.call, partial):
        return False
    spec = spec_of(step.op)
    return spec.op_type == op_type and step.call.func is spec.torch


def _is_product(step: Instruction) -> bool:
    matrix = getattr(step.op, "b", None)
    return isinstance(matrix, np.ndarray) and matrix.ndim == 2 and matrix.dtype.kind == "f" and _is_row(step, "MatMul")


def _summand(step: Instruction, products: Mapping[int, Instruction]) -> Instruction | None:
    """Return the product to which the step adds a constant vector, if it does."""
    product = next((products[slot] for slot in step.reads if slot in products), None)
    if product is None or not _is_row(step, "Add"):
        return None
    width = product.op.b.shape[1]
    constants = (value for value in (step.op.a, step.op.b) if isinstance(value, np.ndarray))
    return product if any(value.shape == (width,) for value in constants) else None
