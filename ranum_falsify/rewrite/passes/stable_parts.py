"""Building blocks of stable forms, in each element type and opset."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite.operands import (
    constant,
    opset_at,
)
from ranum_falsify.rewrite.passes.blocks import clipped, reduced
from ranum_falsify.rewrite.rewrite import Op, Plan, RefusedError, Rewrite, default_opset, is_standard


class StableForm(Rewrite):
    """A rewrite that reads the graph upwards from nodes of certain operators, and plans what takes their place."""

    needs_shapes = True
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
        plan = self._read(context.root, opset_at(context))
        if plan is None:
            return False
        self._plan = plan
        return True

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        """Build it."""
        made = self._plan(op)
        # A tensor that is there already cannot take the name of another.
        return made if any(made is output for node in op.nodes for output in node.outputs) else op.Identity(made)

    def finds_anything(self, model: ir.Model) -> bool:
        """Tell whether it would replace anything in a model's graph and subgraphs."""
        for node in model.graph.all_nodes():
            if node.op_type in self.roots and is_standard(node):
                with suppress(RefusedError):
                    if self._read(node, default_opset(model)) is not None:
                        return True
        return False

    @abstractmethod
    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        """Return how to build what takes the place of a node, None if it is not what the pass looks for."""


def _pattern_of(op_type: str) -> Callable[..., Any]:
    def pattern(op: Op, x: Any) -> Any:
        return getattr(op, op_type)(x, _allow_other_inputs=True)

    return pattern


def number(op: Op, value: float | Fraction, dtype: ir.DataType) -> ir.Value:
    """Return a new constant without dimensions."""
    return constant(op, float(value), dtype)


def cast(op: Op, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return a tensor of the model in an element type."""
    return x if x.dtype == dtype else op.Cast(x, to=dtype)


def single_or_wider(dtype: ir.DataType) -> ir.DataType:
    """Return an element type, float32 in place of a narrower one."""
    return ir.DataType.FLOAT if dtype == ir.DataType.FLOAT16 else dtype


def narrowed(op: Op, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return what was computed in a type that is no narrower than float32 in an element type."""
    return op.Cast(x, to=dtype) if dtype == ir.DataType.FLOAT16 else x


def plus(op: Op, x: ir.Value, constant_term: Fraction, dtype: ir.DataType) -> ir.Value:
    """Return a tensor and a number added up."""
    return op.Add(x, number(op, constant_term, dtype)) if constant_term else x


def times(op: Op, x: ir.Value, factor: float | Fraction, dtype: ir.DataType) -> ir.Value:
    """Return a multiple of a tensor."""
    return x if factor == 1 else op.Neg(x) if factor == -1 else op.Mul(x, number(op, factor, dtype))


def softplus(op: Op, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return log(1 + exp(x)).

    ONNX Runtime has a kernel for float32 only.  Of other types it may take the definition, which overflows.
    """
    if dtype == ir.DataType.FLOAT:
        return op.Softplus(x)
    small = op.Exp(op.Neg(op.Abs(x)))
    return op.Add(op.Max(x, number(op, 0, dtype)), op.Log(op.Add(small, number(op, 1, dtype))))


def log_add_exp(op: Op, a: ir.Value, b: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return log(exp(a) + exp(b)), which is as exact beside 0 as elsewhere."""
    distance = op.Abs(op.Sub(a, b))
    return op.Add(op.Max(a, b), softplus(op, op.Neg(distance), dtype))


def log_sum_exp(
    op: Op, x: ir.Value, axes: Sequence[int], *, keepdims: bool, dtype: ir.DataType, opset: int
) -> ir.Value:
    """Return log(sum(exp(x))): ReduceLogSumExp, or, where ONNX Runtime has no kernel of it, less the greatest."""
    if dtype != ir.DataType.FLOAT16:
        return reduced(op, "ReduceLogSumExp", opset, x, axes, keepdims=keepdims)
    greatest = reduced(op, "ReduceMax", opset, x, axes, keepdims=True)
    total = reduced(op, "ReduceSum", opset, op.Exp(op.Sub(x, greatest)), axes, keepdims=keepdims)
    back = greatest if keepdims else reduced(op, "ReduceMax", opset, x, axes, keepdims=False)
    return op.Add(op.Log(total), back)


@dataclass(frozen=True)
class ScaledNorm:
    """A norm sqrt(sum(x^2) + c) of which no square overflows; the axes stay, with length 1.

    Attributes:
        scales: Their product is the norm of x over that of `small`.
        small: x, divided by them.
        root: The norm of `small`.
        least: What that is no less than, unless x is 0.
        dtype: The element type of all of them, wider than x's where that is float16.
    """

    scales: Sequence[ir.Value]
    small: ir.Value
    root: ir.Value
    least: float
    dtype: ir.DataType

    def norm(self, op: Op) -> ir.Value:
        """Return the norm."""
        made = self.root
        for scale in reversed(self.scales):
            made = op.Mul(made, scale)
        return made

    def divisor(self, op: Op) -> ir.Value:
        """Return the norm of `small`, kept from 0."""
        return op.Max(self.root, number(op, self.least, self.dtype))


def scaled_norm(
    op: Op, x: ir.Value, axes: Sequence[int], *, epsilon: Fraction, dtype: ir.DataType, opset: int
) -> ScaledNorm:
    """Return the norm of a tensor and the root of a constant, by way of numbers that are at most 1.

    The squares of numbers of float16 are numbers of float32.
    """
    if dtype == ir.DataType.FLOAT16:
        wide = ir.DataType.FLOAT
        x, scales, least = cast(op, x, wide), list[ir.Value](), float(np.finfo(np.float16).smallest_subnormal)
    else:
        wide = dtype
        scales, x = scaled(op, x, axes, dtype=dtype, opset=opset, up=not epsilon)
        least = min(1.0, math.sqrt(epsilon)) or 1.0
    squares = reduced(op, "ReduceSum", opset, op.Mul(x, x), axes, keepdims=True)
    if epsilon:
        added = number(op, epsilon, wide)
        for scale in scales:
            added = op.Div(op.Div(added, scale), scale)
        squares = op.Add(squares, added)
    return ScaledNorm(scales, x, op.Sqrt(squares), least, wide)


def scaled(
    op: Op, x: ir.Value, axes: Sequence[int], *, dtype: ir.DataType, opset: int, up: bool
) -> tuple[list[ir.Value], ir.Value]:
    """Return scales, and a tensor divided by them: by its greatest magnitude where that is above 1, or anyway.

    Quotients are at most 1, which their Clip says to whoever bounds them.  What is scaled up was scaled down before, so
    that no bound of a quotient overflows.

    Args:
        op: Builds operators.
        x: The tensor.
        axes: Along which magnitudes are compared.
        dtype: Its element type.
        opset: The model's.
        up: Whether small numbers are scaled up, too, as far as they are normal numbers.
    """
    scales = []
    for least in (1.0, float(np.finfo(dtype.numpy()).tiny)) if up else (1.0,):
        greatest = reduced(op, "ReduceMax", opset, op.Abs(x), axes, keepdims=True)
        scales.append(op.Max(greatest, number(op, least, dtype)))
        x = clipped(op, opset, op.Div(x, scales[-1]), -1, 1, dtype)
    return scales, x


def is_representable(value: Fraction, dtype: ir.DataType) -> bool:
    """Tell whether a positive number stays positive and finite in an element type."""
    rounded = float(np.asarray(float(value)).astype(dtype.numpy()))
    return 0 < rounded < np.inf
