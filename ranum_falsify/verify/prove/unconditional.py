"""Bounds that hold whatever is invalid: whether NaN and infinities that operators make may get to an output.

An analysis of validity takes every operator before to be valid.  Here a tensor may be NaN, a fact that operators hand
on, and of what an operator writes that is not proved nothing is known, unless only infinite operands can make it
invalid and its rule says what it makes of these (`Softmax` of masked scores).  An operator reads a tensor that may be
NaN as one that may be anything, so that it does not matter whether a kernel returns NaN or some number: those that
choose, compare or count do either, and some forget what they compared before it.  `Where(IsNaN(x), 0, x)` takes NaN
out, and so does `Where(x > 0, Log(x), 0)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect

from ranum_falsify.config import Runtime
from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.analysis import Outputs
from ranum_falsify.domain.attributes import join
from ranum_falsify.domain.cells.cones import copy_reading
from ranum_falsify.domain.infinities import Value
from ranum_falsify.domain.rules.support.building import is_infinity_aware
from ranum_falsify.domain.site import Fact, IntervalRule, Site
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.nesting import black_boxes_of, has_subgraphs
from ranum_falsify.operators.relations.discarded import chooses, forgets_before_nan, list_doubtful, takes_no_nan
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
    graph, analysed, stored = analysis.graph, set[int](), reach_of_nan(analysis.graph)
    if stored.carriers or stored.readers:  # bounds leave it out
        return None
    if has_subgraphs(graph) or black_boxes_of(graph) or list_doubtful(analysis):
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
    """Bounds every tensor, NaN among its values, without the assumption that an operator is valid.

    Rules know relations between nodes, such as log(exp(x)) = x, which rest on the nodes between being valid.  Where one
    of these is not, bounds are those of the operands alone, together with what a rule adds for kernels that fuse nodes.
    """

    def __init__(self, graph: Graph, *, runtimes: Sequence[Runtime]) -> None:
        """Prepare; see :class:`IntervalAnalysis`."""
        self._doubtful: set[int] = set()
        super().__init__(graph, runtimes=runtimes)

    def apply(self, rule: IntervalRule, site: Site, operands: Sequence[Value]) -> Outputs:
        """Return what a rule says of each output of a node; of doubtful operands, whatever makes them."""
        found = super().apply(rule, site, operands)
        if found is None or chooses(site.op) or not self._reads_doubt(site.op):
            return found
        stands: dict[int, tuple[Operation, Operation]] = {}

        def find(field: object) -> object:
            if not isinstance(field, Operation):
                return field
            return stands.setdefault(id(field), (Input(np.array([]), np.dtype(np.float32)), field))[0]

        op = copy_reading(site.op, find)
        fields = {id(stand): field for stand, field in stands.values()}

        def bounds_of(field: Operation | np.ndarray) -> Interval | None:
            return self.find_known(fields.get(id(field), field))

        alone = super().apply(rule, replace(site, op=op, bounds_of=bounds_of), operands)
        return None if alone is None else tuple(map(join, found, alone))

    def _reads_doubt(self, op: Operation) -> bool:
        """Tell whether an operator reads what one that may be invalid makes, or what is made of that."""
        return any(map(self._is_doubtful, spec_of(op).operands_of(op)))

    def _is_doubtful(self, field: object) -> bool:
        return id(field.operation if isinstance(field, OutputSelect) else field) in self._doubtful

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

    def mark_overflows(self, op: Operation, outputs: Sequence[Interval], finite: Sequence[Interval]) -> Outputs:
        """Return the results of a node whose operands may be infinite, in whose bounds each element's overflow is."""
        marked = super().mark_overflows(op, outputs, finite)
        if any(y.overflows for y in marked or ()):
            self._doubtful.add(id(op))
        return tuple(outputs) if spec_of(op).elementwise else marked

    def _takes_no_nan(self, op: Operation, field: object, x: Value | None) -> bool:
        """Tell whether an operator hands on no NaN of an operand: there is none, or it is not chosen."""
        return not isinstance(x, Interval) or not x.nan or takes_no_nan(self._site(op), field)

    def select(self, op: Operation, outputs: tuple[Interval, ...], operands: Sequence[Value]) -> tuple[Interval, ...]:
        """Return bounds of all results, valid or not."""
        read = [field for field in spec_of(op).operands_of(op) if field is not None]
        known = list(map(super().find_known, read))
        nan = [x is not None and x.nan for x in known]
        hands_on = [not self._takes_no_nan(op, field, x) for field, x in zip(read, known, strict=True)]
        reads_nan = any(hands_on)
        if any(nan):
            outputs = tuple(y if y.is_floating else _without_test(y) for y in outputs)
        if reads_nan and forgets_before_nan(op):
            outputs = tuple(_anything(y) if y.is_floating else Interval.top(y.shape, y.dtype) for y in outputs)
        bounds = name_bounds(spec_of(op), Visited(op=op, operands=tuple(operands), outputs=outputs))
        failing = [c for c in conditions_of(op) if not c.holds(op, bounds)]
        if any(condition.refuses for condition in failing):
            raise RunRefusedError
        doubtful = [handed or not gone for handed, gone in zip(hands_on, nan, strict=True)]
        doubts = any(doubt and self._is_doubtful(field) for doubt, field in zip(doubtful, read, strict=True))
        if (failing or doubts) and any(y.dtype is not torch.bool for y in outputs):
            self._doubtful.add(id(op))
        if not failing:
            outputs = tuple(_anything(y) if y.overflows else y for y in outputs)
            return tuple(replace(y, nan=True) if reads_nan and y.is_floating else y for y in outputs)
        is_aware = is_infinity_aware(spec_of(op).interval)
        if is_aware and not reads_nan and all(isinstance(c, Finite) for c in failing):  # it overflows, or may be NaN
            return tuple(_anything(y) if y.overflows else y for y in outputs)
        is_told = is_aware and all(isinstance(c, Finite) or c.needs_infinity for c in failing)
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
