"""Interval analysis of a graph: a DNNV visitor whose knowledge of operators is their rows.

Its statements hold by induction: the bounds of a tensor hold on every input on which no operator before it receives
invalid input.  So an operator that the bounds prove safe is never the first to fail, and where all are proved, none
fails at all.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from dnnv.nn import Operation, OperationVisitor
from dnnv.nn.operations import Input, OutputSelect
from dnnv.nn.utils import TensorDetails

from ranum_falsify.config import RUNTIMES, Runtime
from ranum_falsify.domain.attributes import apply_rule
from ranum_falsify.domain.cells.cones import cones_of
from ranum_falsify.domain.cells.table import narrow_by_cells
from ranum_falsify.domain.infinities import Value, find_overflows, finite_part, select_valid, settle
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import constant, flush
from ranum_falsify.domain.rules.support.building import (
    is_infinity_aware,
    is_shape_aware,
    keeps_infinity,
    unknown,
    without_elements,
)
from ranum_falsify.domain.site import Fact, IntervalRule, Site
from ranum_falsify.network import Graph, OperatorSpec, spec_of
from ranum_falsify.network.order import find_between
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.process.heap import heap

_KEPT_BYTES = 64 << 20
"""Up to this size, bounds that nothing reads any more are kept, for rules that look further back than one node."""

_CONE = 16
"""The largest number of nodes that are analysed again under an assumption on one of their operands."""

Outputs = tuple[Interval, ...] | None
"""Bounds of each output of a node; None where a shape depends on the input."""

Answer = TypeVar("Answer")

_constants: WeakKeyDictionary[Graph, dict[int, tuple[np.ndarray, Interval]]] = WeakKeyDictionary()
"""The constants of graphs by their ids, which no other array takes while they are kept, for all analyses of these."""


@dataclass(frozen=True, kw_only=True)
class Visited:
    """A node that was analysed.

    Attributes:
        op: The node.
        operands: Its operands in the row's order.
        outputs: The results of its rule, before the valid part is taken.
    """

    op: Operation
    operands: tuple[Value, ...]
    outputs: tuple[Interval, ...]


class IntervalAnalysis(OperationVisitor):
    """Bounds every tensor of a graph; reusable for any number of boxes.

    `generic_visit` looks the row up; a subclass may override single operators with `visit_<Op>` methods that return
    a tuple of intervals, one per output.

    Attributes:
        graph: The graph.
        runtimes: Runtimes that the bounds cover.
        is_inner: Whether the inputs are tensors of a graph around it.
        uses_cells: Whether functions of one tensor are bounded by cells of it, where something else reads them.
        folded: The rules' results for the operators that make constants.
        is_exact: Whether every runtime computes the same constants.
        open_inside: Of the latest run, names of the nodes in the subgraphs of a node that are not proved, by its name.
        inputs: Bounds of the inputs of the latest run.
    """

    def __init__(
        self, graph: Graph, *, runtimes: Sequence[Runtime] = RUNTIMES, keep: bool = False, inner: bool = False
    ) -> None:
        """Prepare.

        Args:
            graph: The graph to analyse.
            runtimes: Runtimes that the bounds must cover.
            keep: Whether all bounds are kept, for :meth:`bounds_of` after the run.
            inner: Whether the inputs are tensors of a graph around it.  Their bounds enclose flushed denormal numbers
                already, and where a test found a number positive, a runtime did not read it as 0.
        """
        super().__init__()
        self.graph, self.runtimes = graph, tuple(runtimes)
        self._keep, self.is_inner, self.uses_cells = keep, inner, False
        self._constants: dict[int, Interval] = {}
        self._fields: dict[int, list[tuple[Operation | np.ndarray | None, bool]]] = {}
        self.open_inside: dict[str, tuple[str, ...]] = {}
        self.inputs: Sequence[Interval] = ()
        self._latest: tuple[Operation | None, tuple[Value, ...]] = None, ()
        self._values: dict[int, Outputs] = {}
        self._finite: dict[int, Outputs] = {}
        self._given: Mapping[int, Interval] = {}
        self._uses = Counter(operand for read in graph.reads.values() for operand in read)
        self._uses.update(id(op) for op in graph.output_operations)
        self._selected: dict[int, dict[int, Operation]] = {}
        for op in graph.order:
            if isinstance(op, OutputSelect):
                self._selected.setdefault(id(op.operation), {})[op.index] = op
        self._folding: dict[int, tuple[TensorDetails, ...]] = {}
        self.folded = tuple(self._fold())
        self.is_exact = all(x.is_point for x in self._constants.values())

    def _fold(self) -> Iterator[Visited]:
        """Bound the constants that operators make, each as runtimes compute it."""
        for op, arrays in self.graph.folded:
            if not any(field is not None for field in spec_of(op).operands_of(op)):
                continue  # constants in the model are the same on every runtime
            self._folding[id(op)] = tuple(TensorDetails(x.shape, x.dtype) for x in arrays)
            outputs, operands = super().visit(op), self.operands(op)
            if outputs is None:
                continue
            heap.note(_bytes(outputs))
            yield Visited(op=op, operands=operands, outputs=outputs)
            for array, y in zip(arrays, select_valid(op, outputs, operands), strict=False):
                if not y.is_point:
                    self._constants[id(array)] = flush(_include_infinities(y, array))

    def run(
        self,
        inputs: Sequence[Interval],
        observe: Callable[[Visited], None] | None = None,
        given: Mapping[int, Interval] | None = None,
    ) -> tuple[Interval | None, ...]:
        """Analyse the graph over a box.

        Args:
            inputs: Bounds of the inputs.
            observe: Called with each node that can be analysed, in topological order.  Nodes after a tensor whose shape
                depends on the input cannot be.
            given: Bounds that are known besides, of operations with one output, by their id.

        Returns:
            Bounds of the outputs; None where the shape depends on the input.
        """
        read = inputs if self.is_inner else map(flush, inputs)
        self._values = {id(op): (x,) for op, x in zip(self.graph.inputs, read, strict=True)}
        self.inputs, self._finite, self._given, self.open_inside = inputs, {}, given or {}, {}
        uses, dead, kept = Counter(self._uses), deque[int](), 0
        for op in self.graph.order:
            self._advance(op, observe)
            for operand in self.graph.reads[id(op)]:
                uses[operand] -= 1
                if not uses[operand] and not self._keep:
                    dead.append(operand)
                    kept += _bytes(self._values[operand])
            while kept > _KEPT_BYTES:
                kept -= _bytes(self._values.pop(dead[0]))
                self._finite.pop(dead.popleft(), None)
        return tuple(self.bounds_of(op) for op in self.graph.output_operations)

    def _advance(self, op: Operation, observe: Callable[[Visited], None] | None) -> None:
        """Bound an operation whose operands are bounded already; see :meth:`run`."""
        outputs = self.visit(op)
        if outputs is not None and not isinstance(op, (Input, OutputSelect)):
            latest, operands = self._latest
            operands = operands if latest is op else self.operands(op)
            if observe is not None:
                observe(Visited(op=op, operands=operands, outputs=outputs))
            outputs = self.select(op, outputs, operands)
            if (known := self._given.get(id(op))) is not None:
                outputs = (outputs[0].meet(known),)
            heap.note(_bytes(outputs))
        self._values[id(op)] = outputs

    def select(self, op: Operation, outputs: tuple[Interval, ...], operands: Sequence[Value]) -> tuple[Interval, ...]:
        """Return the bounds of the results that count: those of a valid operator."""
        return select_valid(op, outputs, operands)

    def bounds_of(self, op: Operation) -> Interval | None:
        """Return the bounds of an operation's (first) output; None where its shape depends on the input.

        Raises:
            KeyError: It has not been analysed, or is not kept.
        """
        bounds = self._values[id(op)]
        return None if bounds is None else bounds[0]

    def is_bounded(self, op: Operation) -> bool:
        """Tell whether the latest run found bounds of an operation's output, kept or not."""
        return self._values.get(id(op), ()) is not None

    def finite_bounds_of(self, op: Operation) -> Interval | None:
        """Return bounds of the finite values of an operation's (first) output where its bounds alone do not tell."""
        finite = self._finite.get(id(op))
        return None if finite is None else finite[0]

    def bounds_given(self, op: Operation, facts: Sequence[Fact]) -> Interval:
        """Return the bounds of an operation under narrower ones of operations that it depends on.

        Args:
            op: The operation to bound; only operations with one output may lie between.
            facts: The operations that are assumed to have narrower bounds, each with those.

        Returns:
            The bounds that are known already, if too many nodes lie between or one cannot be analysed.
        """
        known = cast(Interval, self.bounds_of(op))
        assumed: dict[int, Interval] = {}
        for cause, bounds in facts:
            assumed[id(cause)] = assumed[id(cause)].meet(bounds) if id(cause) in assumed else bounds
        before, self._values = self._values, {**self._values, **{key: (bounds,) for key, bounds in assumed.items()}}
        finite, self._finite = self._finite, {k: v for k, v in self._finite.items() if k not in assumed}
        try:
            for inner in find_between([cause for cause, _ in facts], op, most=_CONE):
                outputs = self.visit(inner)
                if outputs is None:
                    return known
                self._values[id(inner)] = self.select(inner, outputs, self.operands(inner))
            return cast(Interval, self.bounds_of(op)).meet(known)
        except KeyError:  # other bounds that these nodes read are not kept
            return known
        finally:
            self._values, self._finite = before, finite

    # visitor ----------------------------------------------------------------------------------------------------

    def visit_Input(self, operation: Input) -> Outputs:
        """Return the bounds that the run was given."""
        return self._values[id(operation)]

    def visit_OutputSelect(self, operation: OutputSelect) -> Outputs:
        """Return one of several outputs."""
        whole = self._values[id(operation.operation)]
        if (finite := self._finite.get(id(operation.operation))) is not None:
            self._finite[id(operation)] = (finite[operation.index],)
        return None if whole is None else (whole[operation.index],)

    def generic_visit(self, operation: Operation) -> Outputs:
        """Return bounds of the results of a node whose operands are bounded already."""
        outputs = self._follow_rule(operation)
        if not self.uses_cells or outputs is None or id(operation) not in cones_of(self.graph).exits:
            return outputs
        return (narrow_by_cells(self, operation, outputs[0]),)

    def _follow_rule(self, operation: Operation) -> Outputs:
        """Return the result of the row's rule for a node."""
        operands = self.operands(operation)
        self._latest = operation, operands
        spec = spec_of(operation)
        if not self._has_fixed_shape(operation, spec, operands):
            return None
        rule, site = spec.interval, self._site(operation)
        if rule is None and spec.dynamic_shape:
            return None
        touched = [i for i, x in enumerate(operands) if isinstance(x, Interval) and x.may_be_infinite]
        if touched and not is_infinity_aware(rule):
            # What computes a shape may give another one than the example.
            return None if self._computes_static(operation) else tuple(_anything(y) for y in unknown(site))
        if rule is None:
            return unknown(site)
        outputs = self.apply(rule, site, operands)
        # The graph after an operator whose shape depends on values was read for the shapes of one example.
        if outputs is None or any(d and tuple(d.shape) != y.shape for d, y in zip(site.details, outputs, strict=False)):
            return None
        return self._follow_infinities(rule, site, operands, touched, outputs) if touched else outputs

    def apply(self, rule: IntervalRule, site: Site, operands: Sequence[Value]) -> Outputs:
        """Return what a rule says of each output of a node; None where their shapes are not known."""
        try:
            outputs = apply_rule(rule, site, operands)
            for output in outputs or ():
                output.check()
        except (IndexError, OverflowError, RuntimeError, ValueError):
            # Computed sizes and axes may be such as no runtime accepts, and torch refuses; so may what was not tried.
            if not self.graph.is_tried or self._computes_static(site.op):
                return None
            if spec_of(site.op).dynamic_shape or not (outputs := without_elements(site)):
                raise
        return outputs

    def _follow_infinities(
        self,
        rule: IntervalRule,
        site: Site,
        operands: Sequence[Value],
        touched: Sequence[int],
        outputs: tuple[Interval, ...],
    ) -> Outputs:
        """Return results of operands that may be infinite, those touched, with what finite operands add to them."""
        if not any(y.is_floating for y in outputs):
            return outputs
        # An operator of many elements is excused as a whole, whatever the finite ones among them do.
        whole = not spec_of(site.op).elementwise
        if whole:
            outputs = tuple([_anything(y) if y.overflows else y for y in outputs])
        excused = whole and any(isinstance(x, Interval) and x.surely_infinite for x in operands)
        keeps = all(keeps_infinity(rule, site.op, position) for position in touched)
        if excused and not keeps:
            return outputs
        fields = self._fields[id(site.op)]
        finite = self.apply(rule, site, [self._find_finite(f, x) for (f, _), x in zip(fields, operands, strict=True)])
        if finite is None:
            return None
        if keeps:
            self._finite[id(site.op)] = settle(finite)
        return outputs if excused else self.mark_overflows(site.op, outputs, finite)

    def mark_overflows(self, op: Operation, outputs: Sequence[Interval], finite: Sequence[Interval]) -> Outputs:
        """Return the results of a node whose operands may be infinite, marked where finite ones may overflow."""
        return find_overflows(outputs, finite)

    def _find_finite(self, field: Operation | np.ndarray | None, x: Value) -> Value:
        """Return bounds of the finite values of an operand."""
        if not isinstance(x, Interval) or not x.may_be_infinite:
            return x
        known = self.finite_bounds_of(field) if isinstance(field, Operation) else None
        return finite_part(x) if known is None else known

    def part_of(self, op: Operation, rule: IntervalRule) -> Interval:
        """Return the result of a rule for a part of a node whose operands are bounded already."""
        return cast(Interval, self.ask(op, rule))

    def ask(self, op: Operation, question: Callable[..., Answer]) -> Answer:
        """Return what `question(site, *operands)` says of a node whose operands are bounded already."""
        return question(self._site(op), *self.operands(op))

    def operands(self, op: Operation) -> tuple[Value, ...]:
        """Return the operands of a node in the row's order; a static one as an array if it is known."""
        found = self._fields.get(id(op))
        if found is None:
            spec = spec_of(op)
            fields = spec.operands_of(op)
            names = (*spec.operands, *[""] * len(fields))
            found = [(field, name in spec.static) for field, name in zip(fields, names, strict=False)]
            self._fields[id(op)] = found
        return tuple([self._operand(field, static) for field, static in found])

    def has_exact_constants(self, op: Operation) -> bool:
        """Tell whether every runtime computes the same constants among the operands of a node."""
        known = (self._constants.get(id(field)) for field in spec_of(op).operands_of(op))
        return all(x is None or x.is_point for x in known)

    def _computes_static(self, op: Operation) -> bool:
        """Tell whether a static operand of a node is not a constant."""
        return any(static and isinstance(field, Operation) for field, static in self._fields[id(op)])

    def _operand(self, field: Operation | np.ndarray | None, static: bool) -> Value:
        if field is None or (static and isinstance(field, np.ndarray)):
            return field
        if isinstance(field, np.ndarray):
            if id(field) not in self._constants:
                self._constants[id(field)] = _constant_in(self.graph, field)
            return self._constants[id(field)]
        bounds = self.bounds_of(field)
        if static and bounds is not None and bounds.is_point:
            return to_numpy(bounds.expand()[0])
        return bounds

    def find_known(self, field: Operation | np.ndarray) -> Interval | None:
        """Return the bounds of a field of some node."""
        return cast(Interval | None, self._operand(field, static=False))

    def _has_fixed_shape(self, op: Operation, spec: OperatorSpec, operands: Sequence[Value]) -> bool:
        fields = self._fields[id(op)]
        if any(value is None and field is not None for (field, _), value in zip(fields, operands, strict=True)):
            return False
        if not (spec.static or spec.dynamic_shape) or is_shape_aware(spec.interval):
            return True
        if spec.chosen is not None and op.output_names[0] in self.graph.options.sizes:
            return True
        known = [None if x is None else isinstance(x, np.ndarray) or x.is_point for x in operands]
        return spec.has_fixed_shape(known) or all(k is not False for k in known)

    def _site(self, op: Operation) -> Site:
        selected = self._selected.get(id(op), {})
        sources = [selected.get(i) for i in range(len(op.output_names))] if selected else [op]
        details = self._folding.get(id(op)) or tuple(
            None if source is None else self.graph.details_of(source) for source in sources
        )
        return Site(
            op=op,
            details=details,
            runtimes=self.runtimes,
            bounds_of=self.find_known,
            bounds_given=self.bounds_given,
            leave_open=partial(self._leave_open, op.name),
        )

    def _leave_open(self, name: str, inside: str) -> None:
        self.open_inside[name] = tuple(dict.fromkeys((*self.open_inside.get(name, ()), inside)))


def _constant_in(graph: Graph, array: np.ndarray) -> Interval:
    known = _constants.setdefault(graph, {})
    if id(array) not in known:
        known[id(array)] = array, constant(array)
    return known[id(array)][1]


def _include_infinities(y: Interval, array: np.ndarray) -> Interval:
    """Return bounds of a constant that enclose what it is where that is infinite, of invalid operands (`Log` of 0)."""
    value = Interval.point(array)
    return y.hull(value) if y.is_floating and value.may_be_infinite else y


def _anything(y: Interval) -> Interval:
    if not y.is_floating:
        return y
    return Interval(torch.full_like(y.lower, -torch.inf), torch.full_like(y.upper, torch.inf), y.shape, nan=True)


def _bytes(outputs: Outputs) -> int:
    return sum((2 - (y.lower is y.upper)) * y.lower.numel() * y.lower.element_size() for y in outputs or ())
