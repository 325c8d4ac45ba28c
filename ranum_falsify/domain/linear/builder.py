"""Builds the steps of a graph from its rows and from bounds on its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import cast

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect
from torch import Tensor

from ranum_falsify.domain.analysis import IntervalAnalysis
from ranum_falsify.domain.error_bounds import (
    FUSED_ROUNDINGS,
    GATED_ROUNDINGS,
    accumulation,
    bound_partial_sums,
    double_share,
    gamma,
    partial_sum_shares,
    tiny,
    unit,
)
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import EXACT, Envelope, envelope
from ranum_falsify.domain.kernels.products import product_rounding
from ranum_falsify.domain.linear.backsubstitution import BoundedTensor, Program
from ranum_falsify.domain.linear.call import Call
from ranum_falsify.domain.linear.curves import RECIPROCAL, SQUARE
from ranum_falsify.domain.linear.declarations import (
    Affine,
    AffineThenCurve,
    DecomposedRows,
    Extremum,
    LinearForm,
    Quotient,
    Rowwise,
    UnivariateOf,
    contraction,
    form_of,
)
from ranum_falsify.domain.linear.extremes import ExtremeStep, find_places
from ranum_falsify.domain.linear.products import ProductStep
from ranum_falsify.domain.linear.relaxations import Relaxation
from ranum_falsify.domain.linear.rows import Rows, RowStep
from ranum_falsify.domain.linear.standardised import squares_of_rows
from ranum_falsify.domain.linear.steps import AffineFunction, AffineStep, Box, CurveStep
from ranum_falsify.network import spec_of

_MOST_CHOICES = 1 << 24
"""Elements of all windows of an extreme, counted as often as they are read."""

_MOST_TERMS = 1 << 22
"""Coefficients of results in operands, zeros among them, above which partial sums are not looked at one by one."""

Narrow = Callable[[int, Interval, list[Relaxation] | None], Interval]
"""Narrows a variable, given what its bounds are, and the curves that read it."""


FunctionKey = tuple[int, Callable[..., object], tuple[int, ...], tuple[bool, ...]]
"""A node by its id, what is taken for its function, which of its outputs are read, and which operands are variables."""

Functions = Mapping[FunctionKey, AffineFunction]


class ProgramBuilder:
    """Builds the steps of a graph while it is analysed.

    Attributes:
        program: The steps.
        functions: The affine functions that nodes compute.
    """

    def __init__(self, analysis: IntervalAnalysis, narrow: Narrow, larger: Functions) -> None:
        """Prepare.

        Args:
            analysis: Bounds the operations.
            narrow: Returns better bounds of a variable that a curve reads, given those that are known.
            larger: The affine functions of an analysis of a larger box; of none if that is empty.
        """
        self.functions: dict[FunctionKey, AffineFunction] = {}
        self._larger = larger
        self._analysis, self._narrow = analysis, narrow
        self.program = Program()
        self._selected: dict[int, list[OutputSelect]] = {}
        for op in analysis.graph.order:
            if isinstance(op, OutputSelect):
                self._selected.setdefault(id(op.operation), []).append(op)

    def add(self, op: Operation, outputs: Sequence[Interval] | None) -> None:
        """Add the variables that an operation writes, and its step if its row names a form that fits here.

        Args:
            op: An input or a node; its operands have been added before.
            outputs: Bounds of its outputs; None where their shape depends on the input.
        """
        selected = self._selected.get(id(op), [])
        sources: Sequence[tuple[Operation, int]] = [(select, select.index) for select in selected] or [(op, 0)]
        writes = [None if outputs is None else self._variable(source, outputs[i]) for source, i in sources]
        if isinstance(op, Input):
            self.program.inputs.append(writes[0])
        elif outputs is not None:
            if isinstance(form_of(op), Extremum | Rowwise):
                writes = [number for (_, index), number in zip(sources, writes, strict=True) if not index]
            numbers = tuple(number for number in writes if number is not None)
            if numbers and len(numbers) == len(writes):
                self._step(op, numbers, outputs[0].dtype)

    def _variable(self, source: Operation | np.ndarray, bounds: Interval) -> int | None:
        if not bounds.is_floating or bounds.is_point:
            return None
        low, high = (bound.expand(bounds.shape).unsqueeze(0) for bound in bounds.doubles())
        number = self.program.add(BoundedTensor(bounds.shape, (low, high)))
        self.program.numbers[id(source)] = number
        return number

    def _step(self, op: Operation, writes: tuple[int, ...], dtype: torch.dtype) -> None:
        form, operands = self._form(op), self._operands(op)
        self._dtype = dtype
        if isinstance(form, DecomposedRows):
            form = None if self._spelled(op, form, writes[0]) else form.otherwise
        if form is None or operands is None:
            return
        if isinstance(form, Relaxation):
            self._curve(op, form, operands, writes)
        elif isinstance(form, Quotient):
            self._quotient(op, operands, writes)
        elif isinstance(form, AffineThenCurve):
            self._compose(op, form, operands, writes)
        elif isinstance(form, UnivariateOf):
            self._gated(op, form, operands, writes)
        elif isinstance(form, Extremum):
            self._extreme(op, form, operands, writes[0])
        elif isinstance(form, Rowwise):
            self._rowwise(op, form, operands, writes[0])
        else:
            self._affine(op, form, operands, writes)

    def _form(self, op: Operation) -> LinearForm | None:
        """Return how a node depends on its operands; None if that rests on constants that runtimes compute differently.

        Forms that are made for a node may look at its constants, and a gate at those of other nodes.
        """
        form = form_of(op)
        if self._analysis.is_exact:
            return form
        if isinstance(form, UnivariateOf | DecomposedRows):
            return form.otherwise
        made = form is not spec_of(op).linear and not isinstance(form, Affine | Quotient)
        return None if made and not self._analysis.has_exact_constants(op) else form

    def _operands(self, op: Operation) -> list[int | Tensor | np.ndarray | None] | None:
        """Return variables, constants and static operands; None if an operand is none of these, or types differ."""
        found: list[int | Tensor | np.ndarray | None] = []
        fields, values = spec_of(op).operands_of(op), self._analysis.operands(op)
        # A narrower type among several may round what is made of it, more than the results' type says.
        if len({value.dtype for value in values if isinstance(value, Interval) and value.is_floating}) > 1:
            return None
        for source, value in zip(fields, values, strict=True):
            if source is None:
                found.append(None)
            elif isinstance(value, np.ndarray):
                found.append(value)
            elif id(source) in self.program.numbers:
                found.append(self.program.numbers[id(source)])
            elif value is None:
                return None
            elif value.is_point:
                found.append(_double(value.expand()[0]))
            else:
                # A constant that runtimes compute differently is free within its bounds.
                number = self._variable(source, value) if isinstance(source, np.ndarray) else None
                if number is None:
                    return None
                found.append(number)
        return found

    # forms ------------------------------------------------------------------------------------------------------

    def _curve(self, op: Operation, form: Relaxation, operands: Sequence[object], writes: tuple[int, ...]) -> None:
        read = operands[0]
        computed = [x for x in operands if isinstance(x, int)]
        if not isinstance(read, int) or len(computed) != 1 or len(writes) != 1:
            return
        results = self.program.variables[writes[0]].box
        dtype = self._dtype
        stray = self._envelope(op)
        if stray is None or not _is_finite(results) or results[0].shape != self.program.variables[read].box[0].shape:
            return
        # |kernel - g| <= r |g| + a, and |kernel| is bounded.
        size = (_size(results) + stray.absolute) / (1 - stray.relative)
        error = (stray.relative + 2 * unit(dtype)) * size + stray.absolute + tiny(dtype)
        self.program.append(CurveStep(read, writes[0], form, error, tiny(dtype), results))

    def _quotient(self, op: Operation, operands: Sequence[object], writes: tuple[int, ...]) -> None:
        divisor = operands[1]
        if not isinstance(divisor, int):
            self._affine(op, Affine(operands=("a",), divisors=("b",)), operands, writes)
            return
        of = self.program.variables[divisor]
        low, high = of.box
        if bool(((low <= 0) & (high >= 0)).any()):
            return
        ends = high.reciprocal(), low.reciprocal()
        own = double_share(1)
        results = ends[0] * (1 - own * ends[0].sign()), ends[1] * (1 + own * ends[1].sign())
        inverse = self.program.add(BoundedTensor(of.shape, results))
        smallest = tiny(self._dtype)
        self.program.append(
            CurveStep(divisor, inverse, RECIPROCAL, torch.zeros(1, dtype=torch.float64), smallest, results)
        )
        product = Call(lambda op, a, b: a * b, op, (operands[0], inverse), 2, (1, 1))
        self._linear(op, product, ("a", "b"), writes)

    def _compose(
        self, op: Operation, form: AffineThenCurve, operands: Sequence[object], writes: tuple[int, ...]
    ) -> None:
        bounds = self._analysis.part_of(op, form.bounds)
        if not bounds.may_be_infinite:
            low, high = (bound.expand(bounds.shape).unsqueeze(0) for bound in bounds.doubles())
            inner = self.program.add(BoundedTensor(bounds.shape, (low, high)))
            self._affine(op, form.inner, operands, (inner,))
            self._narrow(inner, bounds, [form.outer])
            self._curve(form.last, form.outer, (inner,), writes)

    def _gated(self, op: Operation, form: UnivariateOf, operands: Sequence[object], writes: tuple[int, ...]) -> None:
        read = self.program.numbers.get(id(form.operand))
        results = self.program.variables[writes[0]].box
        of = None if read is None else self.program.variables[read].box
        fits = of is not None and of[0].shape == results[0].shape and _is_finite(of) and _is_finite(results)
        most = max(abs(end) for end in self._analysis.part_of(op, form.stray).extremes)
        # Half precision may round the factors apart.
        if read is None or not fits or math.isinf(most) or accumulation(self._dtype) is not self._dtype:
            if form.otherwise is not None:
                self._affine(op, form.otherwise, operands, writes)
            return
        relative = GATED_ROUNDINGS * unit(self._dtype)
        # |kernel - g| <= r |g| + a, and |kernel| is bounded.
        error = relative * (_size(results) + most) / (1 - relative) + most + tiny(self._dtype)
        self.program.append(CurveStep(read, writes[0], form.curve, error, tiny(self._dtype), results))

    def _extreme(self, op: Operation, form: Extremum, operands: Sequence[object], write: int) -> None:
        reads = tuple(x for x in operands if isinstance(x, int))
        results = self.program.variables[write].box
        if not all(_is_finite(box) for box in (results, *(self.program.variables[x].box for x in reads))):
            return
        places, constants = find_places(operands, [math.prod(self._shape(x)) for x in reads])
        shown = [p.reshape(self._shape(x)) if p is not None else x for p, x in zip(places, operands, strict=True)]
        windows = cast(Tensor, form.windows(op, *shown))
        if not windows.numel() or windows.numel() > _MOST_CHOICES or bool((windows.amax(-1) < 0).any()):
            return
        shapes = [self._shape(x) for x in reads]
        flat = windows.reshape(-1, windows.shape[-1])
        self.program.append(
            ExtremeStep(reads, write, shapes, constants, flat, greatest=form.greatest, dtype=self._dtype)
        )

    def _rowwise(self, op: Operation, form: Rowwise, operands: Sequence[object], write: int) -> None:
        if form.inner is not None and form.bounds is not None:
            operands = self._make_rows(op, form.inner, self._analysis.part_of(op, form.bounds), operands)
        read = operands[0]
        if not isinstance(read, int) or not math.prod(self._shape(read)):
            return
        shape, box = self._shape(read), self.program.variables[read].box
        rows = Rows(shape, form.dims(op, len(shape)))
        function = form.function(op, self._dtype, self._analysis.runtimes, rows.size)
        if function is None or not (_is_finite(box) or (function.is_masked and rows.keep_some(box))):
            return
        if form.outer is None:
            results, inner = self.program.variables[write].box, write
        else:
            y = function.bound(rows.cut(box[0]), rows.cut(box[1]))
            results = rows.join(y.least), rows.join(y.greatest)
            inner = self.program.add(BoundedTensor(shape, results))
        if _is_finite(results):
            squares = self._mean_squares(read, rows, function.centred)
            self.program.append(RowStep(read, inner, function, rows, results, self._dtype, squares))
            if form.outer is not None:
                self._affine(op, form.outer, (inner, *operands[1:]), (write,))

    def _mean_squares(self, read: int, rows: Rows, centred: bool | None) -> tuple[int, ...]:
        """Add the mean squares of rows, about the mean or not, in real numbers, and narrow them; none where no use."""
        if centred is None or accumulation(self._dtype) is not self._dtype:
            return ()
        box = self.program.variables[read].box
        steps, found = squares_of_rows(read, len(self.program.variables), rows, box, centred=centred)
        for variable in found:
            self.program.add(variable)
        for step in steps:
            self.program.append(step)
        end = len(self.program.variables) - 1
        low, high = found[-1].box
        self._narrow(end, Interval(low[0], high[0], found[-1].shape), None)
        return (end,)

    def _spelled(self, op: Operation, form: DecomposedRows, write: int) -> bool:
        """Add the step of what several nodes compute, if this is one; half precision rounds each of them."""
        read, results = self.program.numbers.get(id(form.operand)), self.program.variables[write].box
        fits = read is not None and self._shape(read) == self._shape(write) and math.prod(self._shape(write)) > 0
        if read is None or not fits or accumulation(self._dtype) is not self._dtype:
            return False
        found = self._analysis.ask(op, form.rows)
        if found is None or not _is_finite(results) or not _is_finite(self.program.variables[read].box):
            return False
        rows = Rows(self._shape(read), found.dims)
        function = found.function(self._dtype, self._analysis.runtimes, rows.size)
        self.program.append(RowStep(read, write, function, rows, results, self._dtype))
        return True

    def _make_rows(self, op: Operation, form: Affine, bounds: Interval, operands: Sequence[object]) -> list[object]:
        """Add what a node makes of some of its operands; return it and the other operands at their places."""
        low, high = (bound.expand(bounds.shape).unsqueeze(0) for bound in bounds.doubles())
        inner = self.program.add(BoundedTensor(bounds.shape, (low, high)))
        self._affine(op, form, operands, (inner,))
        others = zip(spec_of(op).operands[1:], operands[1:], strict=True)
        return [inner, *(None if name in (form.operands or ()) else x for name, x in others)]

    def _affine(self, op: Operation, form: Affine, operands: Sequence[object], writes: tuple[int, ...]) -> None:
        spec = spec_of(op)
        names = [*spec.operands, *[spec.operands[-1]] * len(operands)][: len(operands)]
        computed = [name for name, x in zip(names, operands, strict=True) if isinstance(x, int)]
        if form.operands is not None and not set(computed) <= set(form.operands):
            return
        shapes = [self._shape(x) for x in operands]
        terms = form.terms(op, shapes, self.program.variables[writes[0]].shape)
        signs = tuple(-1 if name in form.subtracted else 0 if name in form.divisors else 1 for name in names)
        outputs = () if form.function else tuple(select.index for select in self._selected.get(id(op), []))
        is_product = form.terms is contraction
        call = Call(form.function or spec.torch, op, tuple(operands), terms, signs, outputs, is_product)
        factors = tuple(name for name in computed if name in form.factors)
        both = [x for name, x in zip(names, operands, strict=True) if name in factors]
        if len(factors) == 2 and both[0] == both[1] and form.terms(op, [(), ()], ()) == 4:
            self._curve(op, SQUARE, operands[:1], writes)
            return
        self._linear(op, call, factors, writes)

    def _linear(self, op: Operation, call: Call, factors: tuple[str, ...], writes: tuple[int, ...]) -> None:
        dtype = self._dtype
        variables = [self.program.variables[x] for x in call.operands if isinstance(x, int)]
        results = [self.program.variables[x].box for x in writes]
        gone = [~(low[0].isfinite() & high[0].isfinite()) for low, high in results]
        gone = [] if all(map(_is_finite, results)) else gone
        # What infinite operands are part of is infinite too.
        call = call.without_infinities() if gone else call
        length = call.terms + FUSED_ROUNDINGS
        share, partial = self._shares(call, length)
        if not math.isfinite(share):
            return
        spare = tiny(dtype) / share
        sizes = [(_size_of_kept(x.box) if gone else _size(x.box))[0] + spare for x in variables]
        if not all(bool(size.isfinite().all()) for size in sizes):
            return
        reads = tuple(x for x in call.operands if isinstance(x, int))
        least = length * 2 * tiny(dtype)

        # A coefficient of an operand is a sum over all results that read it.
        elements = sum(math.prod(self.program.variables[x].shape) for x in writes)
        own = double_share(max(call.terms, elements))

        def errors() -> list[Tensor]:
            magnitudes = call.magnitudes(sizes, spare, together=len(factors) == 2)
            strays = [(share + own) * size + least for size in magnitudes]
            if partial:
                sums = length * _bound_partial_sum(magnitudes[0], results[0])
                if isinstance(step, AffineStep) and not gone and step.function.coefficients <= _MOST_TERMS:
                    boxes = [(low[0] - spare, high[0] + spare) for low, high in (x.box for x in variables)]
                    sums = torch.minimum(sums, bound_partial_sums(*step.bound_terms(boxes)).reshape(sums.shape))
                strays[0] = strays[0] + partial * sums
            return strays

        shapes = [variable.shape for variable in variables]
        if len(factors) < 2:
            step: AffineStep | ProductStep = AffineStep(
                reads, writes, AffineFunction(call, shapes) if gone else self._function(call, shapes), errors, gone
            )
            step.work = elements * call.terms
            self.program.append(step)
        elif len(reads) == 2 and not gone:
            pair, work = (reads[0], reads[1]), 2 * elements * call.terms
            product = call.product_of_sizes
            step = ProductStep(pair, writes[0], call.first, shapes, product, lambda: errors()[0], work)
            self.program.append(step)

    def _shares(self, call: Call, length: int) -> tuple[float, float]:
        """Return the error of sums of some length, as shares of all magnitudes and of all partial sums together."""
        share = gamma(length, self._dtype)
        if not call.is_product or not math.isfinite(share):
            return share, 0.0
        beyond = product_rounding(call.terms, self._dtype, self._analysis.runtimes).beyond(length, self._dtype)
        if beyond:
            return share + beyond * (1 + share), 0.0
        return partial_sum_shares(call.terms, self._dtype, FUSED_ROUNDINGS)

    def _function(self, call: Call, shapes: Sequence[tuple[int, ...]]) -> AffineFunction:
        """Return an affine function, that of the analysis of a larger box if it is the same."""
        # What is constant over a larger box is so here: where the same operands are, they are the same constants.
        key = (id(call.op), call.function, call.outputs, tuple(isinstance(x, int) for x in call.operands))
        known = self._larger.get(key)
        self.functions[key] = AffineFunction(call, shapes) if known is None else known
        return self.functions[key]

    # facts ------------------------------------------------------------------------------------------------------

    def _shape(self, operand: object) -> tuple[int, ...]:
        if isinstance(operand, int):
            return self.program.variables[operand].shape
        return tuple(operand.shape) if isinstance(operand, (Tensor, np.ndarray)) else ()

    def _envelope(self, op: Operation) -> Envelope | None:
        """Return the error of all kernels that an operation's row names; None if one was not measured."""
        try:
            kernels = [envelope(name, self._dtype, self._analysis.runtimes) for name in spec_of(op).kernel]
            return reduce(Envelope.union, kernels, EXACT)
        except KeyError:
            return None


def _double(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def _size(box: Box) -> Tensor:
    return torch.maximum(box[0].abs(), box[1].abs())


def _bound_partial_sum(size: Tensor, box: Box) -> Tensor:
    """Return the most that some terms come to: all positive ones or all negative ones.

    Args:
        size: The sum of the magnitudes of all terms.
        box: Bounds of their sum.
    """
    return (size + torch.minimum(_size(box)[0], size)) / 2


def _size_of_kept(box: Box) -> Tensor:
    """Return sizes of a variable, but 0 where it is surely infinite."""
    return torch.where(box[0] == box[1], box[0].nan_to_num(0.0, 0.0, 0.0), _size(box))


def _is_finite(box: Box) -> bool:
    return all(bool(bound.isfinite().all()) for bound in box)
