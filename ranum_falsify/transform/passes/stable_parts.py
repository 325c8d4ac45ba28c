"""What stable forms are built from, in each element type and opset."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from ranum_falsify.transform.operands import (
    constant,
    opset_at,
)
from ranum_falsify.transform.passes.blocks import clipped, reduced
from ranum_falsify.transform.passes.expressions import Plan
from ranum_falsify.transform.rewrite import Rewrite

__all__ = [
    "StableForm",
    "cast",
    "is_representable",
    "least_scale",
    "log_add_exp",
    "log_sum_exp",
    "number",
    "scaled_norm",
    "softplus",
    "times",
]


class StableForm(Rewrite):
    """A rewrite that reads the graph upwards from nodes of certain operators, and plans what takes their place."""

    remove_nodes = False
    roots: ClassVar[tuple[str, ...]]
    """Operators of the last node of a match."""

    def patterns(self, model: ir.Model) -> Sequence[Callable[..., Any]]:
        """Match each node of these operators."""
        return [_pattern_of(root) for root in self.roots]

    def pattern(self, op: Any, x: Any) -> Any:
        """Match a node of the first of these operators."""
        return _pattern_of(self.roots[0])(op, x)

    def check(self, context: Any, x: ir.Value) -> bool:
        """Plan what takes the place of a node."""
        plan = self.plan(context.root, opset_at(context))
        if plan is None:
            return False
        self._plan = plan
        return True

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        """Build it."""
        made = self._plan(op)
        # A tensor that is there already cannot take the name of another.
        return made if any(made is output for node in op.nodes for output in node.outputs) else op.Identity(made)

    @abstractmethod
    def plan(self, node: ir.Node, opset: int) -> Plan | None:
        """Return how to build what takes the place of a node, None if it is not what the pass looks for.

        Raises:
            RefusedError: It is, and lacks what the pass needs.
        """


def _pattern_of(op_type: str) -> Callable[..., Any]:
    def pattern(op: Any, x: Any) -> Any:
        return getattr(op, op_type)(x, _allow_other_inputs=True)

    return pattern


def number(op: Any, value: float | Fraction, dtype: ir.DataType) -> ir.Value:
    """Return a new constant without dimensions."""
    return constant(op, float(value), dtype)


def cast(op: Any, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return a tensor of the model in an element type."""
    return x if x.dtype == dtype else op.Cast(x, to=dtype)


def times(op: Any, x: ir.Value, factor: float | Fraction, dtype: ir.DataType) -> ir.Value:
    """Return a multiple of a tensor."""
    made: ir.Value = x if factor == 1 else op.Neg(x) if factor == -1 else op.Mul(x, number(op, factor, dtype))
    return made


def softplus(op: Any, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return log(1 + exp(x)).

    ONNX Runtime has a kernel for float32 only.  Of other types it may take the definition, which overflows.
    """
    made: ir.Value
    if dtype == ir.DataType.FLOAT:
        made = op.Softplus(x)
        return made
    small = op.Exp(op.Neg(op.Abs(x)))
    made = op.Add(op.Max(x, number(op, 0, dtype)), op.Log(op.Add(small, number(op, 1, dtype))))
    return made


def log_add_exp(op: Any, a: ir.Value, b: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return log(exp(a) + exp(b)), which is as exact beside 0 as elsewhere."""
    distance = op.Abs(op.Sub(a, b))
    made: ir.Value = op.Add(op.Max(a, b), softplus(op, op.Neg(distance), dtype))
    return made


def log_sum_exp(
    op: Any, x: ir.Value, axes: Sequence[int], *, keepdims: bool, dtype: ir.DataType, opset: int
) -> ir.Value:
    """Return log(sum(exp(x))): ReduceLogSumExp, or, where ONNX Runtime has no kernel of it, less the greatest."""
    if dtype != ir.DataType.FLOAT16:
        return reduced(op, "ReduceLogSumExp", opset, x, axes, keepdims=keepdims)
    greatest = reduced(op, "ReduceMax", opset, x, axes, keepdims=True)
    total = reduced(op, "ReduceSum", opset, op.Exp(op.Sub(x, greatest)), axes, keepdims=keepdims)
    back = greatest if keepdims else reduced(op, "ReduceMax", opset, x, axes, keepdims=False)
    made: ir.Value = op.Add(op.Log(total), back)
    return made


def scaled_norm(
    op: Any, x: ir.Value, axes: Sequence[int], *, epsilon: Fraction, dtype: ir.DataType, opset: int
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return a scale, x divided by it, and sqrt(sum(x^2) + epsilon) divided by it; the axes stay, with length 1.

    The scale is the greatest magnitude, at least that of `least_scale`, so that no square overflows, and the greatest
    one is 1.  The quotients are at most 1 then, which their Clip says to whoever bounds them.
    """
    least = number(op, least_scale(dtype, epsilon), dtype)
    scale = op.Max(reduced(op, "ReduceMax", opset, op.Abs(x), axes, keepdims=True), least)
    small = clipped(op, opset, op.Div(x, scale), -1, 1, dtype)
    squares = reduced(op, "ReduceSum", opset, op.Mul(small, small), axes, keepdims=True)
    if epsilon:
        squares = op.Add(squares, op.Div(op.Div(number(op, epsilon, dtype), scale), scale))
    return scale, small, op.Sqrt(squares)


def least_scale(dtype: ir.DataType, epsilon: Fraction = Fraction(0)) -> float:
    """Return what a scale has to be at least: a number no runtime replaces by 0, by whose square epsilon is divided."""
    info = np.finfo(dtype.numpy())
    least = float(info.smallest_subnormal if dtype == ir.DataType.FLOAT16 else info.tiny)
    return max(least, math.sqrt(epsilon))


def is_representable(value: Fraction, dtype: ir.DataType) -> bool:
    """Tell whether a positive number stays positive and finite in an element type."""
    rounded = float(np.asarray(float(value)).astype(dtype.numpy()))
    return 0 < rounded < np.inf
