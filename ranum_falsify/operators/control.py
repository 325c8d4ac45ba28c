"""Control flow.  The reader inlines an `If` whose condition no input reaches; this row is for the others."""

from __future__ import annotations

import numpy as np
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network.registry import operator

__all__ = ["If"]


def _if(op: Operation, cond: np.ndarray, *captured: Tensor) -> tuple[Tensor, ...]:
    branch = op.then_branch if bool(np.asarray(cond).reshape(-1)[0]) else op.else_branch
    results: tuple[Tensor, ...] = branch.evaluate(captured)
    return results


@operator(torch=_if, operands=("cond", "captured"), variadic=True, static=("cond",), dynamic_shape=True)
class If(Operation):
    """https://onnx.ai/onnx/operators/onnx__If.html.

    Attributes:
        then_branch: Graph over the captured tensors, evaluated where the condition is true.
        else_branch: The same where it is false.
    """
