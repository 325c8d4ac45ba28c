"""Bounds that use how tensors depend on each other: linear functions of the inputs, below and above a functional.

A linear functional of some tensors is followed backward through the graph, step by step, as a linear lower bound, until
it is a functional of the inputs, which has a least value over a box.  The bounds include the runtimes' rounding, so
they hold like those of the interval analysis: on every input on which no earlier operator receives invalid input.

Source: H. Zhang et al., Efficient Neural Network Robustness Certification with General Activation Functions, 2018,
https://arxiv.org/abs/1811.00866 (CROWN).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect
from torch import Tensor

from ranum_falsify.config import RUNTIMES, Runtime
from ranum_falsify.domain.analysis import IntervalAnalysis, Visited
from ranum_falsify.domain.error_bounds import TOTALS_SHARE
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.backsubstitution import Allowance, BoundedTensor, BoxBatch, descend
from ranum_falsify.domain.linear.builder import Functions, ProgramBuilder
from ranum_falsify.domain.linear.declarations import Affine, AffineThenCurve, DecomposedRows, UnivariateOf, form_of
from ranum_falsify.domain.linear.functionals import Functional, LinearBounds, find_known
from ranum_falsify.domain.linear.relaxations import Lines, Relaxation
from ranum_falsify.domain.linear.slope_optimisation import NARROWING_PASSES, SlopeRecord, ascend
from ranum_falsify.domain.linear.steps import CurveStep
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.process.deadline import NEVER, Deadline

WORK = 2e9
"""Multiplications for the bounds of intermediate tensors: two to four seconds of one core."""

_FIRST_PRICE = 1 / 16
"""What work is expected to cost before any has been timed: as much as in products of large matrices."""

_CHUNK = 1 << 22
"""Coefficients of one variable that one pass keeps."""


def bound_functional(
    analysis: IntervalAnalysis, ops: Sequence[Operation], rows: Tensor | None = None, *, work: float = WORK
) -> LinearBounds:
    """Bound linear functionals of some operations' outputs over the box of an analysis.

    Args:
        analysis: An analysis that was run with `keep=True`.  A :class:`LinearAnalysis` is used as it is; another one is
            run again as a linear one.
        ops: Operations of floating output and fixed shape.
        rows: `(rows, elements)`, a functional of the elements of all `ops`, flattened and one after another; each
            element on its own if not given.
        work: See :class:`LinearAnalysis`.

    Returns:
        Bounds of the functional in real numbers, of the outputs as the runtimes compute them.
    """
    return _refine(analysis, work).bound(ops, rows)


def refine(analysis: IntervalAnalysis, op: Operation, *, work: float = WORK) -> Interval:
    """Return bounds of an operation's output that are at least as tight as those of an analysis.

    Args:
        analysis: As for :func:`bound_functional`.
        op: The operation to bound; of fixed shape.
        work: See :class:`LinearAnalysis`.
    """
    return _refine(analysis, work).tighten(op)


def _refine(analysis: IntervalAnalysis, work: float) -> LinearAnalysis:
    if isinstance(analysis, LinearAnalysis):
        return analysis
    again = LinearAnalysis(analysis.graph, runtimes=analysis.runtimes, work=work)
    boxes = [analysis.bounds_of(op) for op in analysis.graph.inputs]
    again.run([box for box in boxes if box is not None])
    return again


class LinearAnalysis(IntervalAnalysis):
    """An interval analysis that, by backward linear bounds, narrows the operands of operators that are not linear.

    Attributes:
        program: The steps of the graph.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        runtimes: Sequence[Runtime] = RUNTIMES,
        work: float = WORK,
        ascent: float = 0.0,
        speed: float | None = None,
        towards: Collection[int] | None = None,
        slopes: SlopeRecord | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare.

        Args:
            graph: What to analyse.
            runtimes: Runtimes that the bounds must cover.
            work: Multiplications that a run may spend on narrowing; tensors whose share would be greater keep the
                bounds of their operator's rule.
            ascent: Multiplications that it may spend, besides, on better slopes; no tensor takes more than half of
                what those before it have left.
            speed: Multiplications that a second counts for, where time is spent in place of them.
            towards: The operations, by `id`, for which operands are narrowed; all of them if not given.
            slopes: What another analysis of much the same graph chose, and what this one chooses.
            tick: Called before every pass; may raise to end the run.
        """
        super().__init__(graph, runtimes=runtimes, keep=True)
        self._slopes = SlopeRecord() if slopes is None else slopes
        self.uses_cells = True
        self._work, self._ascent, self._speed, self._tick = work, ascent, speed, tick
        self._watched = _find_watched(graph, towards)
        self._larger: Functions = {}

    def run(
        self,
        inputs: Sequence[Interval],
        observe: Callable[[Visited], None] | None = None,
        given: Mapping[int, Interval] | None = None,
    ) -> tuple[Interval | None, ...]:
        """Analyse the graph over a box; see :meth:`IntervalAnalysis.run`."""
        self._builder = ProgramBuilder(self, self._narrow, self._larger)
        self.program = self._builder.program
        self._grant()
        self._slopes.rewind()
        self._seen = set[int]()
        self._pending: Operation | None = None
        self._region = BoxBatch(self.program, {})
        outputs = super().run(inputs, observe, given)
        self._settle()
        return outputs

    def over(self, low: Tensor, high: Tensor, tick: Callable[[], None]) -> LinearAnalysis:
        """Return the same analysis of a part of the box, without ascents.

        Args:
            low: Flat lower bounds in float64 of the inputs that are variables, one after another.
            high: The upper bounds.
            tick: See :class:`LinearAnalysis`.
        """
        part = LinearAnalysis(self.graph, runtimes=self.runtimes, work=self._work, speed=self._speed, tick=tick)
        part._watched, part._larger = self._watched, self._builder.functions
        sizes = [0 if v is None else x.size for v, x in zip(self.program.inputs, self.inputs, strict=True)]
        ends = zip(low.split(sizes), high.split(sizes), strict=True)
        # An input of one value would be no variable.
        boxes = [
            _widen(round_outward(first.reshape(x.shape), last.reshape(x.shape), x.dtype, x.shape)) if size else x
            for x, size, (first, last) in zip(self.inputs, sizes, ends, strict=True)
        ]
        part.run(boxes)
        return part

    def visit(self, operation: Operation) -> tuple[Interval, ...] | None:
        """Return the bounds of a node's outputs, narrowed where it is worth the work."""
        outputs: tuple[Interval, ...] | None = super().visit(operation)
        if id(operation) in self._seen:
            return outputs
        self._seen.add(id(operation))
        self._settle()
        if outputs is None or not all(_is_settled(y) for y in outputs):
            self._pending = operation
            return outputs
        if not isinstance(operation, OutputSelect):
            self._builder.add(operation, outputs)
        number = self.program.numbers.get(id(operation))
        if number is None:
            return outputs
        if not isinstance(operation, (Input, OutputSelect)) and isinstance(form_of(operation), AffineThenCurve):
            outputs = (self._follow_lines(number, outputs[0]),)
        if id(operation) not in self._watched:
            return outputs
        return (self._narrow(number, outputs[0], self._watched[id(operation)]),)

    def bound(self, ops: Sequence[Operation], rows: Tensor | None = None) -> LinearBounds:
        """Bound linear functionals over the box of the last run; see :func:`bound_functional`."""
        bounds = Functional.of(self, self.program, ops, rows).bound(self._region)
        lower, upper = (
            tuple(None if x is None else x[0] for x in coefficients)
            for coefficients in (bounds.lower_coefficients, bounds.upper_coefficients)
        )
        return LinearBounds(bounds.lower[0], bounds.upper[0], lower, upper)

    def sharpen(
        self, functional: Functional, bounds: LinearBounds, sides: Tensor, *, deadline: Deadline = NEVER
    ) -> LinearBounds:
        """Return bounds of a functional over the box of the last run, with slopes chosen for some of its sides.

        Args:
            functional: The functional.
            bounds: Its bounds, of one box.
            sides: Which rows, and then which of their negatives, are worth it: `(2 rows,)`, booleans.
            deadline: When to stop; what is left keeps its bounds.
        """
        order = self.program.select_before(functional.variables)
        if not order:
            return bounds
        most = self._count_choices(order)
        lower = torch.cat([bounds.lower, -bounds.upper], 1)[0]
        for part in sides.nonzero().flatten().split(max(1, _CHUNK // most)):
            if not len(part) or deadline.has_passed:
                break
            weights = {v: weight[:, part] for v, weight in functional.weights.items()}
            lower[part] = torch.maximum(lower[part], ascend(weights, self._region) + functional.constant[part])
        low, high = lower[: len(lower) // 2].unsqueeze(0), -lower[len(lower) // 2 :].unsqueeze(0)
        return replace(bounds, lower=low, upper=high)

    def tighten(self, op: Operation) -> Interval:
        """Return the bounds of an operation's output after a backward pass from it; see :func:`refine`."""
        known = find_known(self, op)
        number = self.program.numbers.get(id(op))
        self._grant()
        return known if number is None else self._narrow(number, known, None)

    @property
    def is_short(self) -> bool:
        """Whether the last run would have narrowed more if it had been given more work."""
        return self._level.is_short

    def _grant(self) -> None:
        price = 1.0 if self._speed is None else _FIRST_PRICE
        self._level, self._uphill = (Allowance(work, self._speed, price) for work in (self._work, self._ascent))

    def _settle(self) -> None:
        """Add an operation whose bounds the run has restricted to their valid part by now."""
        if self._pending is not None and not isinstance(self._pending, OutputSelect):
            self._builder.add(self._pending, self._values[id(self._pending)])
        self._pending = None

    def _narrow(self, number: int, known: Interval, curves: list[Relaxation] | None) -> Interval:
        """Return bounds of a variable by a pass from each element; if only curves read it, where one is bent."""
        order = self.program.select_before([number])
        chosen = self._find_elements(number, curves)
        if not order or not len(chosen):
            return known
        cost, sizes = 2 * sum(self.program.steps[i].work for i in order), self._sizes(order)
        known = self._bound_elements(number, known, chosen, self._descend, cost, self._level, most=2 * max(sizes))
        if not self._ascent:
            return known
        chosen, slopes = self._find_elements(number, curves), self._slopes.follow(tuple(known.shape))
        cost, most = cost * (1 if slopes.knows(chosen) else NARROWING_PASSES), 2 * self._count_choices(order)

        def climb(elements: Tensor, weights: dict[int, Tensor]) -> Tensor:
            return slopes.ascend(elements, weights, self._region)

        return self._bound_elements(number, known, chosen, climb, cost, self._uphill, most=most, share=0.5)

    def _descend(self, elements: Tensor, weights: dict[int, Tensor]) -> Tensor:
        return descend(weights, self._region)[0][0]

    def _find_elements(self, number: int, curves: list[Relaxation] | None) -> Tensor:
        """Return the elements of a variable that narrower bounds would help."""
        box = self.program.variables[number].box
        matters = box[0] < box[1]
        if curves is not None:
            matters &= torch.stack([curve.find_bent(*box) for curve in curves]).any(0)
        return matters.flatten().nonzero().flatten()

    def _sizes(self, order: Sequence[int]) -> list[int]:
        steps = [self.program.steps[i] for i in order]
        touched = {v for step in steps for v in (*step.reads, *step.writes)}
        return [math.prod(self.program.variables[v].shape) for v in touched]

    def _count_choices(self, order: Sequence[int]) -> int:
        """Return the numbers that an ascent keeps for one functional, roughly."""
        return sum(self._sizes(order)) + sum(self.program.steps[i].choices for i in order)

    def _bound_elements(
        self,
        number: int,
        known: Interval,
        chosen: Tensor,
        bound: Callable[[Tensor, dict[int, Tensor]], Tensor],
        cost: float,
        allowance: Allowance,
        *,
        most: int,
        share: float = 1.0,
    ) -> Interval:
        """Return the bounds of a variable after passes from some elements, part by part while they can be afforded.

        Args:
            number: The variable.
            known: What is known of it.
            chosen: The elements.
            bound: A pass, given some of the elements and their coefficients.
            cost: What it is estimated to take for one element.
            allowance: What all of them may take.
            most: The most coefficients that it keeps for one element.
            share: The share of the allowance that may go into this variable.
        """
        low, high = (bound.flatten().clone() for bound in self.program.variables[number].box)
        count = 0
        for part in chosen.split(max(1, _CHUNK // most)) if len(chosen) else ():
            if not allowance.affords(cost * (len(chosen) - count), share):
                break
            self._tick()
            rows = torch.zeros(len(part), low.numel(), dtype=torch.float64)
            rows[torch.arange(len(part)), part] = 1.0
            with allowance.spend(cost * len(part)):
                lower = bound(part, {number: torch.cat([rows, -rows]).reshape(1, -1, *known.shape)})
            low[part], high[part] = lower[: len(part)], -lower[len(part) :]
            count += len(part)
        return self._set_bounds(number, known, low, high) if count else known

    def _follow_lines(self, number: int, known: Interval) -> Interval:
        """Return bounds of the result of a curve by its lines; its node's rule does not know what the curve reads."""
        step = self.program.steps[self.program.writers[number]] if number in self.program.writers else None
        if not isinstance(step, CurveStep):
            return known
        y = step.prepare([self.program.variables[v].box for v in step.watched])
        ends = self.program.variables[step.reads[0]].box
        below, above = ([(slope * end, offset) for end in ends] for slope, offset in _sides(y))
        low = torch.stack([a + b - TOTALS_SHARE * (a.abs() + b.abs()) for a, b in below]).amin(0)
        high = torch.stack([a + b + TOTALS_SHARE * (a.abs() + b.abs()) for a, b in above]).amax(0)
        low, high = torch.where(low.isnan(), -math.inf, low), torch.where(high.isnan(), math.inf, high)
        return self._set_bounds(number, known, low, high)

    def _set_bounds(self, number: int, known: Interval, low: Tensor, high: Tensor) -> Interval:
        """Narrow a variable to what is known of it and float64 bounds together."""
        low, high = torch.minimum(low, high).reshape(known.shape), torch.maximum(low, high).reshape(known.shape)
        narrow = known.split(*range(len(known.shape))).meet(round_outward(low, high, known.dtype, known.shape))
        low, high = narrow.doubles()
        self.program.variables[number] = BoundedTensor(known.shape, (low.unsqueeze(0), high.unsqueeze(0)))
        return narrow


def _widen(x: Interval) -> Interval:
    """Return an interval that has more than one value."""
    low, high = x.expand()
    return Interval(low.nextafter(torch.full_like(low, -math.inf)), high, x.shape) if x.is_point else x


def _sides(y: Lines) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return (y.lower_slope, y.lower_offset), (y.upper_slope, y.upper_offset)


def _find_watched(graph: Graph, towards: Collection[int] | None) -> dict[int, list[Relaxation] | None]:
    """Return, by id, the operations that nodes read not linearly, with those curves; None if other nodes do too."""
    found: dict[int, list[Relaxation] | None] = {}
    before = None if towards is None else _find_before(graph, towards)
    for op in graph.nodes:
        if before is not None and id(op) not in before:
            continue
        form = form_of(op)
        form = form.inner if isinstance(form, AffineThenCurve) else form
        operands = [x for x in spec_of(op).operands_of(op) if isinstance(x, Operation)]
        if isinstance(form, UnivariateOf):
            operands, form = [form.operand], form.curve
        elif isinstance(form, DecomposedRows):
            operands = [*operands, form.operand]
        sought = towards is not None and id(op) in towards
        if isinstance(form, Affine) and not _is_product(op, form) and not sought:
            continue
        for operand in operands:
            curves = found.setdefault(id(operand), [])
            if isinstance(form, Relaxation) and curves is not None and not sought:
                curves.append(form)
            else:
                found[id(operand)] = None
    return found


def _is_product(op: Operation, form: Affine) -> bool:
    """Tell whether a node multiplies computed tensors with each other."""
    spec = spec_of(op)
    fields = dict(zip(spec.operands, spec.operands_of(op), strict=False))
    return sum(isinstance(fields.get(name), Operation) for name in form.factors) > 1


def _find_before(graph: Graph, ends: Collection[int]) -> set[int]:
    """Return, by id, some operations and all on which they depend."""
    found = set(ends)
    for op in reversed(graph.order):
        if id(op) in found:
            found.update(graph.reads[id(op)])
    return found


def _is_settled(y: Interval) -> bool:
    """Tell whether the valid part of an output is the whole output; elements that a mask makes infinite are."""
    if y.nan or y.overflows:
        return False
    return not y.may_be_infinite or bool(((y.lower == y.upper) | (y.lower.isfinite() & y.upper.isfinite())).all())
