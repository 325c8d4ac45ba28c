"""Bounds that use how tensors depend on each other: linear functions of the inputs, below and above a functional.

A linear functional of some tensors is followed backward through the graph, step by step, as a linear lower bound, until
it is a functional of the inputs, which has a least value over a box.  The bounds include the runtimes' rounding, so
they hold like those of the interval analysis: on every input on which no earlier operator receives invalid input.

Source: H. Zhang et al., Efficient Neural Network Robustness Certification with General Activation Functions, 2018,
https://arxiv.org/abs/1811.00866 (CROWN).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect
from torch import Tensor

from ranum_falsify.domain.analysis import IntervalAnalysis, Visited
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import RUNTIMES, Runtime
from ranum_falsify.domain.linear.forms import Affine, Gated
from ranum_falsify.domain.linear.program import BoundedTensor, Program, ProgramBuilder, form_of
from ranum_falsify.domain.linear.relaxations import Relaxation
from ranum_falsify.domain.linear.steps import Box, minimise
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.slack import TOTALS_SHARE, double_share, vanishing
from ranum_falsify.network import Graph, spec_of

__all__ = ["BoxBatch", "Functional", "LinearAnalysis", "LinearBounds", "bound_functional", "descend", "refine"]

WORK = 2e9
"""Multiplications for the bounds of intermediate tensors: two to four seconds of one core."""

_CHUNK = 1 << 22
"""Coefficients of one variable that one pass keeps."""


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

    def __init__(self, graph: Graph, *, runtimes: Sequence[Runtime] = RUNTIMES, work: float = WORK) -> None:
        """Prepare.

        Args:
            graph: What to analyse.
            runtimes: Runtimes that the bounds must cover.
            work: Multiplications that a run may spend on narrowing; tensors whose share would be greater keep the
                bounds of their operator's rule.
        """
        super().__init__(graph, runtimes=runtimes, keep=True)
        self._work = work
        self._watched = _find_watched(graph)

    def run(
        self, inputs: Sequence[Interval], observe: Callable[[Visited], None] | None = None
    ) -> tuple[Interval | None, ...]:
        """Analyse the graph over a box; see :meth:`IntervalAnalysis.run`."""
        self._builder = ProgramBuilder(self)
        self.program = self._builder.program
        self._left, self._seen = self._work, set[int]()
        self._pending: Operation | None = None
        self._region = BoxBatch(self.program, {})
        outputs = super().run(inputs, observe)
        self._settle()
        return outputs

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
        if number is None or id(operation) not in self._watched:
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

    def tighten(self, op: Operation) -> Interval:
        """Return the bounds of an operation's output after a backward pass from it; see :func:`refine`."""
        known = _find_known(self, op)
        number = self.program.numbers.get(id(op))
        self._left = self._work
        return known if number is None else self._narrow(number, known, None)

    def _settle(self) -> None:
        """Add an operation whose bounds the run has restricted to their valid part by now."""
        if self._pending is not None and not isinstance(self._pending, OutputSelect):
            self._builder.add(self._pending, self._values[id(self._pending)])
        self._pending = None

    def _narrow(self, number: int, known: Interval, curves: list[Relaxation] | None) -> Interval:
        """Return bounds of a variable by a pass from each element; if only curves read it, where one is bent."""
        box = self.program.variables[number].box
        matters = box[0] < box[1]
        if curves is not None:
            matters &= torch.stack([curve.find_bent(*box) for curve in curves]).any(0)
        low, high = (bound.flatten().clone() for bound in box)
        chosen = matters.flatten().nonzero().flatten()
        order = self.program.select_before([number])
        cost = 2 * len(chosen) * sum(self.program.steps[i].work for i in order)
        if not order or not len(chosen) or cost > self._left:
            return known
        self._left -= cost
        largest = max(math.prod(self.program.variables[v].shape) for i in order for v in self.program.steps[i].writes)
        for part in chosen.split(max(1, _CHUNK // (2 * largest))):
            rows = torch.zeros(len(part), low.numel(), dtype=torch.float64)
            rows[torch.arange(len(part)), part] = 1.0
            weight = torch.cat([rows, -rows]).reshape(1, -1, *known.shape)
            lower, _ = descend({number: weight}, self._region)
            low[part], high[part] = lower[0, : len(part)], -lower[0, len(part) :]
        low, high = torch.minimum(low, high).reshape(known.shape), torch.maximum(low, high).reshape(known.shape)
        narrow = known.split(*range(len(known.shape))).meet(round_outward(low, high, known.dtype, known.shape))
        low, high = narrow.doubles()
        self.program.variables[number] = BoundedTensor(known.shape, (low.unsqueeze(0), high.unsqueeze(0)))
        return narrow


def _find_watched(graph: Graph) -> dict[int, list[Relaxation] | None]:
    """Return, by id, the operations that nodes read not linearly, with those curves; None if other nodes do too."""
    found: dict[int, list[Relaxation] | None] = {}
    for op in graph.nodes:
        form = form_of(op)
        operands = [x for x in spec_of(op).operands_of(op) if isinstance(x, Operation)]
        if isinstance(form, Gated):
            operands, form = [form.operand], form.curve
        if isinstance(form, Affine) and not (form.factors and len(operands) > 1):
            continue
        for operand in operands:
            curves = found.setdefault(id(operand), [])
            if isinstance(form, Relaxation) and curves is not None:
                curves.append(form)
            else:
                found[id(operand)] = None
    return found


def _is_settled(y: Interval) -> bool:
    """Tell whether the valid part of an output is the whole output."""
    return not (y.nan or y.overflows or y.may_be_infinite)


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
        """Return a functional; see :func:`bound_functional` for the arguments."""
        known = [_find_known(analysis, op) for op in ops]
        if rows is None:
            rows = torch.eye(sum(x.size for x in known), dtype=torch.float64)
        both = torch.cat([rows.double(), -rows.double()])
        weights: dict[int, Tensor] = {}
        constant, coarse = torch.zeros(2, len(both), dtype=torch.float64)
        for op, x, part in zip(ops, known, both.split([x.size for x in known], dim=1), strict=True):
            weight = part.reshape(1, len(both), *x.shape)
            low, high = (bound.expand(x.shape).unsqueeze(0) for bound in x.doubles())
            share = minimise(weight, (low, high))[0]
            share = share - double_share(x.size) * _spread(weight, torch.maximum(low.abs(), high.abs()))[0]
            coarse = coarse + share
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


class BoxBatch:
    """Boxes over which passes go.

    Attributes:
        program: The steps.
    """

    def __init__(self, program: Program, boxes: dict[int, Box]) -> None:
        """Start with bounds `(boxes, *shape)` of some variables; the others have those of the program."""
        self.program = program
        self._boxes = dict(boxes)
        self._prepared: dict[int, object] = {}

    def box(self, variable: int) -> Box:
        """Return the bounds of a variable, `(boxes or 1, *shape)`."""
        return self._boxes.get(variable) or self.program.variables[variable].box

    def loss(self, variable: int) -> Tensor:
        """Return what may be lost where coefficients of a variable vanish, `(boxes or 1, 1)`, over `TOTALS_SHARE`."""
        low, high = self.box(variable)
        size = torch.maximum(low.abs(), high.abs()).reshape(len(low), -1)
        lost = vanishing(size.shape[1]) / TOTALS_SHARE
        return (1 + torch.where(size.isfinite(), size, 0.0).sum(1, keepdim=True)) * lost

    def narrow(self, variable: int, box: Box) -> None:
        """Set the bounds of a variable that no pass has gone through yet."""
        self._boxes[variable] = box

    def prepare(self, number: int) -> object:
        """Return what a step has prepared for the boxes."""
        if number not in self._prepared:
            step = self.program.steps[number]
            self._prepared[number] = step.prepare([self.box(v) for v in step.watched])
        return self._prepared[number]


def descend(weights: dict[int, Tensor], region: BoxBatch) -> tuple[Tensor, dict[int, Tensor]]:
    """Return lower bounds of linear functionals of variables over boxes.

    Args:
        weights: Coefficients `(boxes, rows, *shape)` by variable, of at least one.
        region: The boxes.

    Returns:
        The bounds `(boxes, rows)`, and the coefficients of the graph's inputs by variable.
    """
    program, weights = region.program, dict(weights)
    shape = next(iter(weights.values())).shape[:2]
    total = torch.zeros(shape, dtype=torch.float64)
    slack = torch.zeros(shape, dtype=torch.float64)
    for number in program.select_before(list(weights)):
        step = program.steps[number]
        given = [
            weights.pop(v) if v in weights else torch.zeros(*shape, *program.variables[v].shape, dtype=torch.float64)
            for v in step.writes
        ]
        passed, constant = step.back(given, region.prepare(number))
        total, slack = total + constant, slack + constant.abs()
        for v, weight in zip(step.reads, passed, strict=True):
            weights[v] = weights[v] + weight if v in weights else weight
            slack = slack + region.loss(v)
    for v, weight in weights.items():
        low, high = region.box(v)
        share = minimise(weight, (low, high))
        size = torch.maximum(low.abs(), high.abs())
        own = double_share(size[0].numel()) / TOTALS_SHARE
        total, slack = total + share, slack + share.abs() + own * _spread(weight, size)
    ends = {v: weights[v] for v in program.inputs if v in weights}
    return torch.nan_to_num(total - TOTALS_SHARE * slack, nan=-math.inf, posinf=math.inf, neginf=-math.inf), ends


def _spread(weight: Tensor, size: Tensor) -> Tensor:
    worst = weight.abs() * size.unsqueeze(1)
    return torch.where(weight == 0, 0.0, worst).reshape(*weight.shape[:2], -1).sum(-1)


def _find_known(analysis: IntervalAnalysis, op: Operation) -> Interval:
    bounds = analysis.bounds_of(op)
    if bounds is None or not bounds.is_floating:
        raise ValueError(f"{op.name} has no bounds in floating point")
    return bounds
