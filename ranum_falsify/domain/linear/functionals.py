"""Linear functionals of tensors: their bounds over a box, or over many, by a pass from each and from its negative."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.analysis import IntervalAnalysis
from ranum_falsify.domain.error_bounds import double_share
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.backsubstitution import BoxBatch, Program, descend, spread
from ranum_falsify.domain.linear.steps import minimise


@dataclass(frozen=True)
class LinearBounds:
    """Bounds of linear functionals over a box, or over many.

    Attributes:
        lower: Lower bounds, float64, `(rows,)` or `(boxes, rows)`.
        upper: Upper bounds, likewise.
        lower_coefficients: For each input of the graph, the coefficients `(rows, *shape)` or `(boxes, rows, *shape)`
            of the linear function below each row: if one is positive, its least value is at the lower end of the box.
            None for an input that is not floating or has one value.
        upper_coefficients: Those of the linear function above.
    """

    lower: Tensor
    upper: Tensor
    lower_coefficients: tuple[Tensor | None, ...]
    upper_coefficients: tuple[Tensor | None, ...]


@dataclass(frozen=True)
class Functional:
    """A linear functional of the graph's tensors, followed by its negative.

    Attributes:
        weights: Coefficients of variables, `(1, 2 rows, *shape)`.
        constant: The least contribution of tensors that are not variables, `(2 rows,)`.
        coarse: Least values from the analysis alone, `(2 rows,)`.
    """

    weights: dict[int, Tensor]
    constant: Tensor
    coarse: Tensor

    @property
    def variables(self) -> list[int]:
        """The variables that it reads."""
        return list(self.weights)

    @classmethod
    def of(
        cls, analysis: IntervalAnalysis, program: Program, ops: Sequence[Operation], rows: Tensor | None
    ) -> Functional:
        """Return a functional; see :func:`ranum_falsify.domain.linear.bounds.bound_functional` for the arguments."""
        known = [find_known(analysis, op) for op in ops]
        if rows is None:
            rows = torch.eye(sum(x.size for x in known), dtype=torch.float64)
        both = torch.cat([rows.double(), -rows.double()])
        weights: dict[int, Tensor] = {}
        constant, coarse = torch.zeros(2, len(both), dtype=torch.float64)
        for op, x, part in zip(ops, known, both.split([x.size for x in known], dim=1), strict=True):
            weight = part.reshape(1, len(both), *x.shape)
            low, high = (bound.expand(x.shape).unsqueeze(0) for bound in x.doubles())
            share = minimise(weight, (low, high))[0]
            share = share - double_share(x.size) * spread(weight, torch.maximum(low.abs(), high.abs()))[0]
            coarse = coarse + share.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
            number = program.numbers.get(id(op))
            if number is None:
                constant = constant + share
            else:
                weights[number] = weights[number] + weight if number in weights else weight
        return cls(weights, constant, coarse)

    def bound(self, region: BoxBatch, count: int = 1) -> LinearBounds:
        """Return the bounds `(boxes, rows)` of the functional over boxes, `count` of them."""
        rows = len(self.constant)
        lower, ends = torch.zeros(count, rows, dtype=torch.float64), dict[int, Tensor]()
        if self.weights:
            lower, ends = descend({v: w.expand(count, *w.shape[1:]) for v, w in self.weights.items()}, region)
        lower = torch.maximum(lower + self.constant, self.coarse)
        size = rows // 2
        found: list[Tensor | None] = []
        for v in region.program.inputs:
            shape = () if v is None else region.program.variables[v].shape
            found.append(None if v is None else ends.get(v, torch.zeros(count, rows, *shape, dtype=torch.float64)))
        return LinearBounds(
            lower[:, :size],
            -lower[:, size:],
            tuple(None if x is None else x[:, :size] for x in found),
            tuple(None if x is None else -x[:, size:] for x in found),
        )


def find_known(analysis: IntervalAnalysis, op: Operation) -> Interval:
    """Return the bounds of an operation's output by an analysis.

    Raises:
        ValueError: There are none in floating point.
    """
    bounds = analysis.bounds_of(op)
    if bounds is None or not bounds.is_floating:
        raise ValueError(f"{op.name} has no bounds in floating point")
    return bounds
