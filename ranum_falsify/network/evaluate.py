"""Evaluation of one node on tensors: the single place where a row's torch function is called."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network.registry import OperatorSpec
from ranum_falsify.network.tensors import to_numpy

Value = Tensor | np.ndarray | None
"""What an operand may be: a tensor, a static value, or absent."""


def apply(spec: OperatorSpec, op: Operation, operands: Sequence[Value], *, example: bool = False) -> tuple[Tensor, ...]:
    """Evaluate a node.

    Args:
        spec: Its row.
        op: The node, for its attributes.
        operands: Values in the row's operand order; static operands may come as arrays or as tensors.
        example: Whether one number may stand for all that a node draws at random.

    Returns:
        One tensor per output.
    """
    values: list[Value] = list(operands)
    for position, name in enumerate(spec.operands):
        if name in spec.static and position < len(values) and isinstance(values[position], Tensor):
            values[position] = to_numpy(values[position])  # type: ignore[arg-type]
    draw = spec.random.example if example and spec.random is not None and spec.is_random(op) else None
    result = (draw or spec.torch)(op, *values)
    return result if isinstance(result, tuple) else (result,)
