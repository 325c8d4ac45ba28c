"""Explanations of an operand's bounds: the operators back to an input, and by how much each widened them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect

from ranum_falsify.domain.analysis import IntervalAnalysis
from ranum_falsify.domain.interval import Interval
from ranum_falsify.network import spec_of
from ranum_falsify.network.order import operands_in


@dataclass(frozen=True, kw_only=True)
class ChainLink:
    """One operator of the chain.

    Attributes:
        node: Its name.
        op_type: ONNX operator, `Input` for an input.
        bounds: Least and greatest value of its result.
        width: Greatest width of the bounds of an element.
        growth: Its width divided by that of the operand before it in the chain; 1 for an input.
    """

    node: str
    op_type: str
    bounds: tuple[float, float]
    width: float
    growth: float = 1.0


@dataclass(frozen=True, kw_only=True)
class OperandHistory:
    """Where the bounds of one operand come from.

    Attributes:
        name: Name of the operand in the operator's row.
        bounds: Its least and greatest value.
        chain: The operators from the operand back to an input; none for a constant.
    """

    name: str
    bounds: tuple[float, float]
    chain: tuple[ChainLink, ...]

    @property
    def widest(self) -> tuple[ChainLink, ...]:
        """The chain, with the operator that widened most first and the input last."""
        return tuple(sorted(self.chain, key=lambda step: (step.op_type == "Input", -step.growth)))


def explain(analysis: IntervalAnalysis, op: Operation) -> tuple[OperandHistory, ...]:
    """Return the history of each operand of a node, constants included.

    If an operator has several operands, the chain follows the one whose width contributes most: without it, the result
    would be narrowest.

    Args:
        analysis: A finished analysis that has kept all bounds.
        op: The node.
    """
    spec = spec_of(op)
    histories = []
    for name, field in spec.name_values(spec.operands_of(op)).items():
        if isinstance(field, np.ndarray) and field.dtype.kind in "fiubV" and field.size:
            histories.append(OperandHistory(name=name, bounds=_range_of_constant(field), chain=()))
        bounds = analysis.bounds_of(field) if isinstance(field, Operation) else None
        if bounds is not None:
            histories.append(OperandHistory(name=name, bounds=range_of(bounds), chain=_chain(analysis, field)))
    return tuple(histories)


def _chain(analysis: IntervalAnalysis, op: Operation) -> tuple[ChainLink, ...]:
    steps: list[ChainLink] = []
    current: Operation | None = op
    while current is not None:
        bounds = analysis.bounds_of(current)
        if bounds is None:
            break
        before = _find_widest_operand(analysis, current)
        width = _width(bounds)
        growth = 1.0
        if before is not None and (known := analysis.bounds_of(before)) is not None:
            narrow = _width(known)
            growth = width / narrow if narrow else math.inf if width else 1.0
        if not isinstance(current, OutputSelect):
            op_type = "Input" if isinstance(current, Input) else spec_of(current).op_type
            steps.append(
                ChainLink(node=current.name, op_type=op_type, bounds=range_of(bounds), width=width, growth=growth)
            )
        current = before
    return tuple(steps)


def _find_widest_operand(analysis: IntervalAnalysis, op: Operation) -> Operation | None:
    operands = [o for o in operands_in(op) if analysis.bounds_of(o) is not None]
    if len(operands) <= 1:
        return operands[0] if operands else None
    return min(operands, key=lambda operand: _width_without(analysis, op, operand))


def _width_without(analysis: IntervalAnalysis, op: Operation, operand: Operation) -> float:
    """Return the width of a result if an operand were known to lie in the middle of its bounds."""
    bounds = analysis.bounds_of(operand)
    whole = analysis.bounds_of(op)
    assert bounds is not None and whole is not None
    if not bounds.is_floating:
        return _width(whole)
    low, high = bounds.keep_finite().doubles()
    middle = (low / 2 + high / 2).to(bounds.dtype)
    return _width(analysis.bounds_given(op, [(operand, Interval(middle, middle, bounds.shape))]))


def _width(bounds: Interval) -> float:
    if not bounds.size:
        return 0.0
    low, high = bounds.doubles()
    # The same infinity at both ends has no width.
    return float(torch.where(low == high, 0.0, high - low).amax())


def _range_of_constant(array: np.ndarray) -> tuple[float, float]:
    """Return the least and the greatest element, NaN if there is one."""
    wide = array.astype(np.float64)
    return float(wide.min()), float(wide.max())


def range_of(bounds: Interval) -> tuple[float, float]:
    """Return the least and the greatest value of a tensor's bounds."""
    least, greatest = bounds.extremes
    return float(np.float64(least)), float(np.float64(greatest))
