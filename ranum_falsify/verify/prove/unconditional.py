"""Bounds that hold whatever is invalid: whether NaN and infinities that operators make may get to an output.

An analysis of validity takes every operator before to be valid.  Here a tensor may be NaN, a fact that operators hand
on, and of what an operator writes that is not proved nothing is known, unless only infinite operands can make it
invalid and its rule says what it makes of these (`Softmax` of masked scores).  An operator reads a tensor that may be
NaN as one that may be anything, so that it does not matter whether a kernel returns NaN or some number: those that
choose, compare or count do either.  `Where(IsNaN(x), 0, x)` takes NaN out, and so does `Where(x > 0, Log(x), 0)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from dnnv.nn import Operation

from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.infinities import Value
from ranum_falsify.domain.rules.support.building import is_infinity_aware
from ranum_falsify.domain.site import Fact
from ranum_falsify.network import spec_of
from ranum_falsify.network.nesting import black_boxes_of, has_subgraphs
from ranum_falsify.operators.relations.discarded import list_doubtful, takes_no_nan
from ranum_falsify.operators.support.conditions import conditions_of, name_bounds
from ranum_falsify.validity import Finite
from ranum_falsify.verify.prove.analyses import Analyses
from ranum_falsify.verify.prove.checked import find_varying, reach_of_nan


def keeps_outputs_finite(
    analyses: Analyses, inputs: Sequence[Interval], tick: Callable[[], None] = lambda: None
) -> bool:
    """Tell whether all outputs are finite on a box, whatever becomes of the tensors before."""
    executed = analyses.executed
    if analyses.execution is not None and executed is None:
        return False
    bounds = _bound_outputs(analyses.written, inputs, tick)
    if bounds is None:
        return False
    if bounds.varying:
        readings = analyses.read_each(bounds.analysis, bounds.varying)
        return all(again is not None and keeps_outputs_finite(again, inputs, tick) for again in readings)
    if executed is None or analyses.execution is None:
        return bounds.are_finite
    of_executed = _bound_outputs(executed, analyses.execution.inputs(executed.graph, inputs), tick)
    return bounds.are_finite and of_executed is not None and of_executed.are_finite


@dataclass(frozen=True)
class _Outputs:
    """Bounds of the outputs, NaN among their values, and the analysis that found them.

    Where there are none, that may be because results of the `varying` operators have no shape of their own.
    """

    analysis: IntervalAnalysis
    bounds: tuple[Interval | None, ...]
    varying: tuple[Operation, ...]

    @property
    def are_finite(self) -> bool:
        """Whether all outputs are finite."""
        return all(y is not None and not _is_invalid(y) for y in self.bounds)


def _bound_outputs(analysis: IntervalAnalysis, inputs: Sequence[Interval], tick: Callable[[], None]) -> _Outputs | None:
    """Bound the outputs; None where nothing is known of them."""
    graph, analysed = analysis.graph, set[int]()
    if has_subgraphs(graph) or black_boxes_of(graph) or reach_of_nan(graph).carriers or list_doubtful(analysis):
        return None
    unconditional = Unconditional(graph, runtimes=analysis.runtimes)

    def observe(visited: Visited) -> None:
        tick()
        analysed.add(id(visited.op))

    try:
        outputs = unconditional.run(inputs, observe)
    except RunRefusedError:
        return None
    return _Outputs(unconditional, outputs, find_varying(graph, analysed) if None in outputs else ())


class RunRefusedError(Exception):
    """ONNX Runtime may refuse to run an operator."""


class Unconditional(IntervalAnalysis):
    """Bounds every tensor, NaN among its values, without the assumption that an operator is valid."""

    def operands(self, op: Operation) -> tuple[Value, ...]:
        """Return the operands of a node; anything in place of those that may be NaN."""
        read = super().operands(op)
        fields = (*spec_of(op).operands_of(op), *[None] * len(read))
        return tuple(
            x if self._takes_no_nan(op, field, x) else _widen(x) for field, x in zip(fields, read, strict=False)
        )

    def find_known(self, field: Operation | np.ndarray) -> Interval | None:
        """Return the bounds of a field of some node, which may look behind an operator that hides NaN."""
        return cast(Interval | None, _widen(super().find_known(field)))

    def bounds_given(self, op: Operation, facts: Sequence[Fact]) -> Interval:
        """Return the bounds under assumptions about operations; of those that may be NaN nothing is assumed.

        A test of NaN may fail, or not, whatever it says.
        """
        known = [super(Unconditional, self).find_known(cause) for cause, _ in facts]
        return super().bounds_given(op, [f for f, x in zip(facts, known, strict=True) if x is not None and not x.nan])

    def _takes_no_nan(self, op: Operation, field: object, x: Value | None) -> bool:
        """Tell whether an operator hands on no NaN of an operand: there is none, or it is not chosen."""
        return not isinstance(x, Interval) or not x.nan or takes_no_nan(self._site(op), field)

    def select(self, op: Operation, outputs: tuple[Interval, ...], operands: Sequence[Value]) -> tuple[Interval, ...]:
        """Return bounds of all results, valid or not."""
        read = [field for field in spec_of(op).operands_of(op) if field is not None]
        known = list(map(super().find_known, read))
        reads_nan = not all(self._takes_no_nan(op, field, x) for field, x in zip(read, known, strict=True))
        if any(x is not None and x.nan for x in known):
            outputs = tuple(y if y.is_floating else _without_test(y) for y in outputs)
        bounds = name_bounds(spec_of(op), Visited(op=op, operands=tuple(operands), outputs=outputs))
        failing = [c for c in conditions_of(op) if not c.holds(op, bounds)]
        if any(condition.refuses for condition in failing):
            raise RunRefusedError
        if not failing:
            outputs = tuple(_anything(y) if y.overflows else y for y in outputs)
            return tuple(replace(y, nan=True) if reads_nan and y.is_floating else y for y in outputs)
        is_told = is_infinity_aware(spec_of(op).interval) and all(
            isinstance(c, Finite) or c.needs_infinity for c in failing
        )
        return tuple(_mark(y, keeps=is_told) for y in outputs)


def _mark(y: Interval, *, keeps: bool) -> Interval:
    """Return the results of an operator that may be invalid: NaN, and anything unless its rule says what else."""
    if not y.is_floating:
        return Interval.top(y.shape, y.dtype)
    return replace(y, nan=True, overflows=False) if keeps and not (y.overflows or y.may_be_infinite) else _anything(y)


def _without_test(y: Interval) -> Interval:
    """Return the results of a test, which NaN may fail although all numbers there pass it."""
    return replace(y, lower=torch.zeros_like(y.lower)) if y.dtype is torch.bool else y


def _anything(y: Interval) -> Interval:
    infinite = torch.full_like(y.lower, math.inf)
    return replace(Interval.of(-infinite, infinite, y.shape), nan=True)


def _widen(x: Value) -> Value:
    return replace(_anything(x), nan=False) if isinstance(x, Interval) and x.nan else x


def _is_invalid(y: Interval) -> bool:
    return y.nan or y.overflows or y.may_be_infinite
