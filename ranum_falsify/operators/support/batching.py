"""Batches along dimension 0: the operators that keep samples apart, and how they run on them.

A model of batch size 1 runs on a batch along dimension 0 if every operator does: then no per-sample dispatch is needed.
A rule is told, for each operand, its shape in the model and whether its dimension 0 (of size 1 there) is the batch; it
returns the function to run on the batched tensors, or None where samples might mix.  Every output has the batch as
dimension 0 then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network.registry import TorchFunction, spec_of
from ranum_falsify.operators.support.functions import ints


@dataclass(frozen=True)
class Operand:
    """What a rule knows about an operand: its shape in the model, and whether its dimension 0 is the batch."""

    shape: tuple[int, ...]
    batched: bool


BatchRule = Callable[[Operation, Sequence[Operand | None], tuple[int, ...]], TorchFunction | None]
"""`rule(op, operands, output_shape)`; the shape is that of the first output in the model."""


def batch_function(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """Return the function that runs a node on a batch along dimension 0, or None where it may mix samples."""
    rule = spec_of(op).batch
    plain = all(o is None or not o.batched or (o.shape and o.shape[0] == 1) for o in operands)
    if rule == "vmap" or not plain or not output or output[0] != 1:
        return None
    return rule(op, operands, output)


def _own(op: Operation) -> TorchFunction:
    return spec_of(op).torch


def _batched_alone(operands: Sequence[Operand | None]) -> Operand | None:
    """Return the first operand if it is a batch and the others are the same for all samples."""
    first, *rest = operands
    return first if first is not None and first.batched and not any(o and o.batched for o in rest) else None


def pointwise(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """Broadcasting elementwise: batched operands have full rank, the others nothing along dimension 0."""
    for operand in operands:
        if operand is None:
            continue
        full = len(operand.shape) == len(output)
        if operand.batched and not full:
            return None
        if not operand.batched and full and operand.shape[0] != 1:
            return None
    return _own(op)


def samplewise(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """The first operand is a batch by the operator's own definition (Conv, pooling, BatchNormalization)."""
    return _own(op) if _batched_alone(operands) and len(output) >= 3 else None


def by_rows(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """The first operand is a matrix whose rows are samples by the operator's own definition; others are constants."""
    first = _batched_alone(operands)
    return _own(op) if first and len(first.shape) == 2 else None


def inferring(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """In training mode the statistics are those of the whole batch."""
    return _own(op) if _batched_alone(operands) and len(output) >= 2 and not getattr(op, "training_mode", 0) else None


def max_pooled(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """Indices count through the whole batch."""
    return samplewise(op, operands, output) if len(op.output_names) == 1 else None


def gemm(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """The first factor is the batch, row by row; the second and the summand are the same for all samples."""
    a, b, *rest = operands
    c = rest[0] if rest else None
    if a is None or b is None or not a.batched or b.batched or op.transpose_a:
        return None
    if c is not None and (c.batched or (len(c.shape) == 2 and c.shape[0] != 1)):
        return None
    return _own(op)


def matmul(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """The matrices of a sample keep their place among those of the batch."""
    a, b = operands[:2]
    assert a is not None and b is not None, "MatMul has two operands"
    ranks = len(a.shape), len(b.shape)
    if a.batched and not b.batched:
        return _own(op) if ranks[1] == 2 or (ranks[0] >= 3 and ranks[0] == ranks[1] and b.shape[0] == 1) else None
    if b.batched and not a.batched:
        return _own(op) if ranks[1] >= 3 and (ranks[0] == 2 or (ranks[0] == ranks[1] and a.shape[0] == 1)) else None
    return _own(op) if ranks[0] == ranks[1] >= 3 else None


def reshaped(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """The elements of a sample keep their order."""
    if operands[0] is None or not operands[0].batched:
        return None

    def reshape(op: Operation, x: Tensor, *_: object) -> Tensor:
        return x.reshape(x.shape[0], *output[1:])

    return reshape


def along_axis(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """Works along one axis, or from one axis on, which is not dimension 0; further operands are constants."""
    first = _batched_alone(operands)
    if first is None:
        return None
    axis = getattr(op, "axis", None)
    return _own(op) if axis is not None and axis % len(first.shape) != 0 else None


def concatenated(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """Joins along another axis; operands without a batch are repeated."""
    if op.axis % len(output) == 0:
        return None

    def concat(op: Operation, *xs: Tensor) -> Tensor:
        count = max(x.shape[0] for x in xs)
        return torch.cat([x.expand(count, *x.shape[1:]) for x in xs], dim=op.axis)

    return concat


def transposed(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """Dimension 0 stays where it is."""
    return _own(op) if op.permutation is not None and int(op.permutation[0]) == 0 else None


def reduced(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """Other axes are reduced."""
    first = operands[0]
    if first is None or not isinstance(op.axes, np.ndarray):
        return None
    axes = [axis % len(first.shape) for axis in ints(op.axes) or ()]
    return _own(op) if axes and 0 not in axes else None


def sliced(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """Dimension 0 is taken whole, because the output still has it; the other axes are sliced."""
    first = _batched_alone(operands)
    if first is None:
        return None
    axes = ints(op.axes) if op.axes is not None else list(range(len(op.starts)))
    kept = [position for position, axis in enumerate(axes or ()) if axis % len(first.shape) != 0]
    if len(kept) == len(axes or ()):
        return _own(op)
    cut = [op.starts[kept], op.ends[kept], np.array(axes)[kept], None if op.steps is None else op.steps[kept]]
    own = _own(op)

    def slice_others(op: Operation, x: Tensor, *_: object) -> Tensor:
        return own(op, x, *cut) if kept else x  # type: ignore[return-value]

    return slice_others


def expanded(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """Other axes are repeated."""
    first = _batched_alone(operands)
    if first is None or len(first.shape) != len(output):
        return None

    def expand(op: Operation, x: Tensor, *_: object) -> Tensor:
        return x.expand(x.shape[0], *output[1:])

    return expand


def padded(op: Operation, operands: Sequence[Operand | None], output: tuple[int, ...]) -> TorchFunction | None:
    """Nothing is added along dimension 0."""
    if getattr(op, "axes", None) is not None or not isinstance(op.pads, np.ndarray):
        return None
    pads = ints(op.pads) or []
    return _own(op) if pads[0] == 0 and pads[len(pads) // 2] == 0 else None
