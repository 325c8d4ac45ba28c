"""The applications of a problem over one box: bounds of their arguments, and what holds inside them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice

import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.interval import dtype_range
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph
from ranum_falsify.network.tensors import torch_dtype
from ranum_falsify.operators.support.conditions import conditions_of
from ranum_falsify.properties.formula.circuit import Choice
from ranum_falsify.properties.formula.terms import NetworkCall, Output, Term, ValidityGoal
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.properties.problem.targets import operators_of
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.prove.analyses import Analyses
from ranum_falsify.verify.prove.checked import Checked, branches_of, reach_of_nan
from ranum_falsify.verify.prove.term_bounds import BoundsFrame

Box = Mapping[str, Interval]
"""Bounds of each input variable, by name."""


def box_of(variables: Sequence[InputVariable]) -> Box:
    """Return the box that variables range over."""
    return {v.name: Interval.box(v.lower, v.upper) for v in variables}


def select_operators(goal: ValidityGoal, graph: Graph) -> list[Operation]:
    """Return the operators that a validity goal asks about, and those that have such operators in a subgraph."""
    wanted = {id(op) for op in operators_of(goal, graph)}
    return [op for op in graph.nodes if id(op) in wanted or _hides(op, goal)]


def _hides(op: Operation, goal: ValidityGoal) -> bool:
    inner = branches_of(op)
    return any(operators_of(goal, graph) or any(_hides(part, goal) for part in graph.nodes) for graph in inner)


class Applications:
    """What is known about each application over one box; each is analysed once.

    Attributes:
        problem: The problem.
        graphs: The graph that runs for each application, by `id` of the application: its own, or the same with some
            inputs as constants.
        box: The box of the inputs.
        closed: Operators whose conditions were proved by other means, by `id` of application and operator.
        analyses_of: The analyses of an application's graph.
        tick: Called at every operator; may raise to end an analysis.
        cells: Whether cells count, which whoever checks a proof file does not know.
    """

    def __init__(
        self,
        problem: Problem,
        graphs: Mapping[int, Graph],
        analyses_of: Callable[[NetworkCall], Analyses],
        box: Box,
        tick: Callable[[], None],
        *,
        cells: bool = True,
    ) -> None:
        self.problem = problem
        self.graphs = graphs
        self.box = box
        self.analyses_of = analyses_of
        self.closed: set[tuple[int, int]] = set()
        self._checked: dict[int, Checked] = {}
        self._before: tuple[int, Mapping[int, Mapping[int, tuple[str, ...]]]] | None = None
        self.tick, self.cells = tick, cells

    @cached_property
    def given(self) -> BoundsFrame:
        """Bounds of terms that hold as long as no operator is invalid."""
        return BoundsFrame(self._env, self._outputs_given, lambda goal: torch.tensor([False]))

    def frame_surely(self) -> BoundsFrame:
        """Return bounds of terms that hold in any case."""
        return BoundsFrame(self._env, self.outputs_surely, lambda goal: torch.tensor([self.is_valid(goal)]))

    def check(self, call: NetworkCall) -> Checked:
        """Return what holds inside an application; nothing does if nothing is known about an argument."""
        key = id(call)
        if key not in self._checked:
            inputs = self.inputs(call)
            graph = self.graphs[key]
            if inputs is None:
                every = {id(op): conditions_of(op) for op in graph.nodes}
                self._checked[key] = Checked((None,) * len(graph.output_operations), every, {})
            else:
                self._checked[key] = self.analyses_of(call).check(inputs, tick=self.tick, cells=self.cells)
        return self._checked[key]

    def inputs(self, call: NetworkCall) -> list[Interval] | None:
        """Return bounds of the inputs of the application's graph; None if nothing is known about one of them."""
        names, found = self.graphs[id(call)].input_names, list[Interval]()
        details = call.graph.input_details
        for name, argument, detail in zip(call.graph.input_names, call.arguments, details, strict=True):
            if name not in names:
                continue
            if argument.variable_name is not None:
                found.append(self.box[argument.variable_name])
                continue
            bounds = _cast(self.given.value(argument), torch_dtype(detail.dtype), argument.shape)
            if bounds is None:
                return None
            found.append(bounds)
        return found

    # verdicts ---------------------------------------------------------------------------------------------------

    @property
    def before(self) -> Mapping[int, Mapping[int, tuple[str, ...]]]:
        """By `id` of the application and of the operator, the first open operators before it."""
        if self._before is None or self._before[0] != len(self.closed):
            failed = {id(call): set(self.find_open(call)) for call in self.problem.calls}
            constants = {id(call): self.check(call).constants for call in self.problem.calls}
            self._before = len(self.closed), find_before(self.problem, self.graphs, failed, constants)
        return self._before[1]

    def find_open(self, call: NetworkCall) -> dict[int, tuple[Constraint, ...]]:
        """Return the open conditions of an application by `id` of the operator, except those on derivatives."""
        found = self.check(call).open
        return {key: conditions for key, conditions in found.items() if (id(call), key) not in self.closed}

    def find_open_conditions(self, goal: ValidityGoal, op: Operation) -> tuple[Constraint, ...]:
        """Return the conditions of an operator that a validity goal asks for and the bounds do not prove."""
        checked = self.check(goal.call)
        found = () if (id(goal.call), id(op)) in self.closed else checked.open.get(id(op), ())
        return (*found, *checked.open_gradient.get(id(op), ())) if goal.gradient else found

    def is_valid(self, goal: ValidityGoal) -> bool:
        """Tell whether a validity goal holds on the whole box."""
        before = self.before[id(goal.call)]
        return not any(
            self.find_open_conditions(goal, op) or before[id(op)]
            for op in select_operators(goal, self.graphs[id(goal.call)])
        )

    def is_sound(self, call: NetworkCall) -> bool:
        """Tell whether bounds enclose all outputs: no operator of an application, or before it, can be invalid."""
        ends = map(id, self.graphs[id(call)].output_operations)
        if not reach_of_nan(self.graphs[id(call)]).carriers.isdisjoint(ends):
            return False
        return not (self.find_open(call) or self.check(call).constants) and all(
            self.is_sound(inner) for argument in call.arguments for inner in find_applications(argument)
        )

    def find_bounded(self, call: NetworkCall) -> Callable[[IntervalAnalysis, Operation], bool]:
        """Return what tells of an operator of one of an application's analyses whether its bounds hold in any case."""
        graph, before = self.graphs[id(call)], self.before[id(call)]
        valid = {id(op) for op in graph.nodes if id(op) not in self.find_open(call) and not before[id(op)]}

        def is_bounded(analysis: IntervalAnalysis, op: Operation) -> bool:
            # What is open as it is run may be any part of the network, and constants belong to all of it.
            if len(valid) < len(graph.nodes) and (analysis.graph is not graph or id(op) not in valid):
                return False
            return id(op) not in reach_of_nan(analysis.graph).carriers

        return is_bounded

    def outputs_surely(self, call: NetworkCall) -> Sequence[Enclosure]:
        """Return bounds of the outputs of an application that hold in any case; NaN where there are none."""
        if not self.is_sound(call):
            return [_make_unknown(details.shape) for details in call.graph.output_details]
        return self._outputs_given(call)

    # bounds -----------------------------------------------------------------------------------------------------

    @cached_property
    def _env(self) -> dict[str, Enclosure]:
        return {name: _doubles(x) for name, x in self.box.items()}

    def _outputs_given(self, call: NetworkCall) -> Sequence[Enclosure]:
        ends = self.graphs[id(call)].output_operations
        known = zip(self.check(call).outputs, ends, call.graph.output_details, strict=True)
        carriers = reach_of_nan(self.graphs[id(call)]).carriers
        return [
            _make_unknown(details.shape) if bounds is None or id(end) in carriers else _doubles(bounds)
            for bounds, end, details in known
        ]


def _doubles(x: Interval) -> Enclosure:
    """Return bounds in the form of terms: float64, with a batch of 1."""
    return Enclosure(*x.expand()).map(lambda end: end.double()[None])


def _make_unknown(shape: Sequence[int]) -> Enclosure:
    unknown = torch.full((1, *shape), torch.nan, dtype=torch.float64)
    return Enclosure(unknown, unknown)


def _cast(bounds: Enclosure, dtype: torch.dtype, shape: tuple[int, ...]) -> Interval | None:
    """Return bounds of a term as those of a network's input; None if they say nothing or leave the input's type."""
    low, high = bounds.map(lambda end: end[0])
    if bool(low.isnan().any()):
        return None
    if dtype is torch.bool:
        return Interval.of((low > 0) | (high < 0), (low != 0) | (high != 0), shape)
    if not dtype.is_floating_point:
        least, greatest = dtype_range(dtype)
        if bool((low <= least).any()) or bool((high >= greatest).any()):
            return None
    # Rounding to nearest is monotone, and so is the truncation to integers.
    lower, upper = low.to(dtype), high.to(dtype)
    return Interval.of(lower, lower if torch.equal(lower, upper) else upper, shape)


# dependencies: which open operators come before an operator -----------------------------------------------------------

_MOST_NAMES = 16
"""Number of names kept for an operator; in a network with everything open, each has all others before it."""


def find_before(
    problem: Problem,
    graphs: Mapping[int, Graph],
    failed: Mapping[int, Collection[int]],
    constants: Mapping[int, Sequence[str]],
) -> Mapping[int, Mapping[int, tuple[str, ...]]]:
    """Return, for each operator, the names of the first open ones that its operands depend on, in topological order.

    Applications and operators go by their `id`.  `failed` are the operators with open conditions; `constants` name
    those that make constants, on which all operators of the graph count as depending.  Arguments apply earlier
    applications.
    """
    names: list[str] = []
    several = len({call.network for call in problem.calls}) > 1
    # A set of operators is the bits of one number, because unions are taken at every operator.
    outputs: dict[int, int] = {}
    found: dict[int, dict[int, int]] = {}
    for call in problem.calls:
        graph, masks = graphs[id(call)], dict[int, int]()
        arguments = _arguments(call, graph, outputs)
        found[id(call)] = {}
        broken = 0
        for name in constants.get(id(call), ()):
            broken |= 1 << len(names)
            names.append(f"{call.network}: {name}" if several else name)
        for op in graph.order:
            mask = broken | (arguments[op.name] if isinstance(op, Input) else 0)
            for operand in graph.reads[id(op)]:
                mask |= masks[operand]
            found[id(call)][id(op)] = mask
            if id(op) in failed.get(id(call), ()):
                mask |= 1 << len(names)
                names.append(f"{call.network}: {op.name}" if several else op.name)
            masks[id(op)] = mask
        outputs[id(call)] = 0
        for op in graph.output_operations:
            outputs[id(call)] |= masks[id(op)]

    @cache
    def text(mask: int) -> tuple[str, ...]:
        return tuple(names[bit] for bit in islice(_bits(mask), _MOST_NAMES))

    return {call: {op: text(mask) for op, mask in masks.items()} for call, masks in found.items()}


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _arguments(call: NetworkCall, graph: Graph, outputs: Mapping[int, int]) -> dict[str, int]:
    """Return, by name of the input, the open operators that its argument depends on."""
    result = dict.fromkeys(graph.input_names, 0)
    for name, argument in zip(call.graph.input_names, call.arguments, strict=True):
        for inner in find_applications(argument):
            if name in result:
                result[name] |= outputs.get(id(inner), 0)
    return result


def find_applications(term: Term) -> Iterator[NetworkCall]:
    """Yield the applications whose outputs a term reads, except those inside their arguments."""
    pending: list[Term] = [term]
    while pending:
        one = pending.pop()
        if isinstance(one, Output):
            yield one.call
        if one.applies_network:
            pending.extend(operand for operand in one.operands if not isinstance(one, Output))
            if isinstance(one, Choice):
                pending.extend(side for side in _sides(one))


def _sides(choice: Choice) -> Iterator[Term]:
    """Yield the terms that a choice's condition compares."""
    from ranum_falsify.properties.formula.formula import Comparison, Formula, Goal, Junction

    pending: list[Formula] = [choice.formula]
    while pending:
        formula = pending.pop()
        if isinstance(formula, Junction):
            pending.extend(formula.parts)
        elif isinstance(formula, Comparison):
            yield from (formula.left, formula.right)
        elif isinstance(formula, Goal):
            yield from (Output(formula.goal.call, 0),)
