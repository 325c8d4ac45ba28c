"""Clips: ranges of chosen tensors, as wide as they can be made, within which operators are proved to be valid."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input
from torch import Tensor

from ranum_falsify.config import RUNTIMES, ProveConfig, Runtime
from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.order import greatest, least
from ranum_falsify.domain.rounding import flush
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.order import topological_order
from ranum_falsify.operators.support.conditions import conditions_of, gradient_conditions, name_bounds
from ranum_falsify.process.deadline import NEVER, Deadline, OutOfTime
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.properties.problem.targets import Target, targets_of
from ranum_falsify.repair.abstraction.maximal_box import BoxExpansion
from ranum_falsify.repair.abstraction.ranges import KeptRange, Ranges, is_same
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.prove.analyses import Analyses, analyses_of
from ranum_falsify.verify.prove.applications import Applications, box_of, select_operators
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.verify.search.batching import margins_of
from ranum_falsify.verify.search.converter import convert

_POINTS = 8
"""Points at which derivatives are taken."""

_LEAST = 1e-30
"""The least margin whose logarithm is taken."""

_SPREAD = 2.0
"""From which ratio on costs of elements differ."""


def rate_elements(problem: Problem, ranges: Ranges, tensors: Sequence[str]) -> Mapping[str, Tensor]:
    """Return by how much each element of inputs moves margins of the operators in question.

    Where no weights are fixed, uniform ranges make all elements alike, and nothing is computed.

    Args:
        problem: A problem with one application of a network.
        ranges: Bounds of all inputs of the network, within which points are drawn.
        tensors: Names of the inputs to rate; others are left out.
    """
    graph = problem.calls[0].graph
    if not _has_fixed_weights(graph):
        return {}
    try:
        with torch.enable_grad():
            found = _differentiate(problem, graph, ranges)
    except (RanumFalsifyError, RuntimeError, NotImplementedError):
        return {}  # costs only steer; a model that PyTorch cannot run has none
    rated = {name: found[name].sqrt() for name in tensors if name in found}
    return {name: costs for name, costs in rated.items() if bool(costs.amax() > _SPREAD * costs.amin())}


def _has_fixed_weights(graph: Graph) -> bool:
    arrays = (x for op in graph.nodes for x in spec_of(op).operands_of(op) if isinstance(x, np.ndarray))
    return any(x.dtype.kind == "f" and x.size > 1 and bool((x != x.flat[0]).any()) for x in arrays)


def _differentiate(problem: Problem, graph: Graph, ranges: Ranges) -> dict[str, Tensor]:
    """Return for each float input by how much its elements change margins, relative to these, at random points."""
    targets = [t for number, goal in enumerate(problem.goals) for t in targets_of(number, goal) if not t.is_remote]
    of_operators: dict[int, list[Target]] = {}
    for target in targets:
        of_operators.setdefault(id(target.op), []).append(target)
    probes = {key: margins_of(found) for key, found in of_operators.items()}
    model, generator = convert(graph), torch.Generator().manual_seed(0)
    costs: dict[str, Tensor] = {}
    for _ in range(_POINTS):
        point = {name: _draw(ranges[name], generator) for name in graph.input_names}
        floating = {name: x for name, x in point.items() if x.requires_grad}
        _, observed = model.observe(list(point.values()), probes, outputs=False)
        # Random signs: what two margins share must not cancel.
        signs = [torch.randint(0, 2, margins.shape, generator=generator) * 2 - 1 for margins in observed]
        terms = [(s * m.abs().clamp_min(_LEAST).log()).sum() for s, m in zip(signs, observed, strict=True)]
        if not any(term.requires_grad for term in terms):
            continue
        slopes = torch.autograd.grad(torch.stack(terms).sum(), list(floating.values()), allow_unused=True)
        for name, slope in zip(floating, slopes, strict=True):
            if slope is not None:
                costs[name] = costs.get(name, 0.0) + slope.double().nan_to_num(0.0, 0.0, 0.0).square()
    return costs


def _draw(x: Interval, generator: torch.Generator) -> Tensor:
    lower, upper = x.expand()
    share = torch.rand(x.shape, generator=generator, dtype=torch.float64)
    drawn = (lower + share * (upper.double() - lower.double())).to(lower.dtype)
    return drawn.requires_grad_(drawn.is_floating_point())


class PartialAnalysis(IntervalAnalysis):
    """Tells of one box after another whether operators are valid; it remembers the bounds of the box before."""

    def __init__(self, graph: Graph, runtimes: Sequence[Runtime]) -> None:
        super().__init__(graph, runtimes=runtimes, keep=True)
        self._sources: dict[str, Operation] = {op.name: op for op in graph.inputs}
        self._sources |= {name: op for op in graph.order for name in _tensors(op) if name not in self._sources}
        self._affected = _list_affected(graph)
        self._conditions: Mapping[int, tuple[Constraint, ...]] = {}
        self._limits: dict[int, Interval] = {}
        self._known: dict[str, Interval] = {}
        self._stale = set[int]()
        self._failing = set[int]()
        self._needed: list[int] = []
        self._is_open = False

    def check_only(self, conditions: Mapping[int, tuple[Constraint, ...]]) -> None:
        """Set what must hold.

        Args:
            conditions: By `id` of the operators.  Nothing is analysed but what these depend on.
        """
        self._conditions = conditions
        needed = set(conditions)
        for op in reversed(self.graph.order):
            if id(op) in needed:
                needed.update(self.graph.reads[id(op)])
        self._needed = [i for i, op in enumerate(self.graph.order) if id(op) in needed and not isinstance(op, Input)]
        self._stale = set(self._needed)
        self._known.clear()

    def holds(self, box: Mapping[str, Interval]) -> bool:
        """Tell whether all conditions hold on a box.

        Args:
            box: Bounds of every input; of other tensors, to which they are clipped.
        """
        self._move_to(box)
        order = self.graph.order
        if not self._failing <= self._stale:
            return False
        for position in self._needed:
            if position not in self._stale:
                continue
            op = order[position]
            self._finite.pop(id(op), None)
            self._is_open = bool(self._conditions.get(id(op)))  # unless it can be analysed
            self._advance(op, self._judge)
            self._clip(op)
            self._stale.discard(position)
            self._failing.discard(position)
            if self._is_open:
                self._failing.add(position)
                return False
        return True

    def _move_to(self, box: Mapping[str, Interval]) -> None:
        """Replace the bounds of tensors, after which those of all that depends on them are stale."""
        for name in {*box, *self._known}:
            bounds, op = box.get(name), self._sources.get(name)
            if op is None or self._known.get(name) is bounds:
                continue
            if bounds is None:
                del self._known[name], self._limits[id(op)]
            else:
                self._known[name] = bounds
                if isinstance(op, Input):
                    self._values[id(op)] = (flush(bounds),)
                else:
                    self._limits[id(op)] = bounds
            self._stale.update(self._affected[id(op)])

    def _judge(self, visited: Visited) -> None:
        if self._is_open:
            bounds = name_bounds(spec_of(visited.op), visited)
            self._is_open = not all(c.holds(visited.op, bounds) for c in self._conditions[id(visited.op)])

    def _clip(self, op: Operation) -> None:
        limits, outputs = self._limits.get(id(op)), self._values[id(op)]
        if limits is None or outputs is None:
            return
        low, high = (least(greatest(end, limits.lower), limits.upper) for end in (outputs[0].lower, outputs[0].upper))
        self._values[id(op)] = (replace(Interval.of(low, high, outputs[0].shape), gap=0.0),)


def _tensors(op: Operation) -> tuple[str, ...]:
    """Return the name of the tensor that an operation with one output computes."""
    names = [name for name in getattr(op, "output_names", ()) if name]
    return tuple(names) if len(names) == 1 else ()


def _list_affected(graph: Graph) -> dict[int, list[int]]:
    """Return, by `id` of each operation, the positions of itself and of all that depends on it, in order."""
    affected: dict[int, list[int]] = {id(op): [] for op in graph.order}
    before: dict[int, set[int]] = {}
    for position, op in enumerate(graph.order):
        before[id(op)] = {id(op)}.union(*(before[operand] for operand in graph.reads[id(op)]))
        if not isinstance(op, Input):
            for key in before[id(op)]:
                affected[key].append(position)
    return affected


Place = Literal["input", "weight", "tensor"]


def list_clippable(problem: Problem) -> dict[str, Place]:
    """Return the tensors of the model that range over a box of the property: inputs and freed weights, by name."""
    if len(problem.calls) != 1:
        return {}
    call = problem.calls[0]
    boxes = {v.name: v for v in problem.inputs}
    weights = set(call.graph.options.free)
    found: dict[str, Place] = {}
    for name, variable in zip(call.graph.input_names, call.variables, strict=True):
        box = boxes.get(variable or "")
        if box is not None and box.dtype.kind in "fiu" and bool((box.lower < box.upper).any()):
            found[name] = "weight" if name in weights else "input"
    return found


def find_clips(
    problem: Problem,
    at: Collection[str],
    *,
    nodes: Collection[str] | None = None,
    runtimes: Sequence[Runtime] = RUNTIMES,
    deadline: Deadline = NEVER,
) -> tuple[KeptRange, ...] | None:
    """Return ranges of tensors within which operators are proved to be valid.

    Args:
        problem: A problem with one application of a network, whose arguments to be narrowed are variables.
        at: Names of the tensors that may be narrowed: inputs and freed weights (:func:`list_clippable`), outputs of
            operators.
        nodes: Names of the operators that shall become valid, with all operators before them; all operators that the
            problem asks about if not given.
        runtimes: Runtimes that the proof must cover.
        deadline: When to stop.

    Returns:
        The ranges of the tensors that must be narrowed, none if all operators are valid already; None if no such ranges
        were found.  Those of inputs and weights are proved by the ordinary prover, those that other tensors are among
        by interval analysis of the network as written.

    Raises:
        ValueError: A name is none of those.
    """
    if len(problem.calls) != 1 or not at:
        return None
    with torch.no_grad():
        return _Task(problem, at, nodes, runtimes, deadline).search()


def narrow(problem: Problem, ranges: Collection[KeptRange]) -> Problem:
    """Return a problem whose inputs and weights are clipped to ranges."""
    names = dict(zip(problem.calls[0].graph.input_names, problem.calls[0].variables, strict=True))
    kept = {names[part.tensor]: part for part in ranges if part.tensor in names}

    def clip(variables: tuple[InputVariable, ...]) -> tuple[InputVariable, ...]:
        return tuple(_clip_variable(v, kept[v.name]) if v.name in kept else v for v in variables)

    return replace(
        problem,
        inputs=clip(problem.inputs),
        regions=tuple(map(clip, problem.regions)),
        cases=tuple(narrow(case, ranges) for case in problem.cases),
    )


def _clip_variable(variable: InputVariable, kept: KeptRange) -> InputVariable:
    lower, upper = (np.clip(bound, kept.lower, kept.upper) for bound in (variable.lower, variable.upper))
    return replace(variable, lower=lower, upper=upper)


class _Task:
    """The search for ranges of some tensors of one problem."""

    def __init__(
        self,
        problem: Problem,
        at: Collection[str],
        nodes: Collection[str] | None,
        runtimes: Sequence[Runtime],
        deadline: Deadline,
    ) -> None:
        self._problem = problem
        self._graph = problem.calls[0].graph
        self._nodes = nodes
        self._runtimes = tuple(runtimes)
        self._deadline = deadline
        self._places = list_clippable(problem)
        self._analyses: list[PartialAnalysis] = []
        pair = analyses_of(self._graph, self._runtimes, self._make_analysis)
        self._set_conditions(pair)
        self._box = _bound_inputs(problem)
        self._whole = {} if self._box is None else self._find_whole(at, self._box)

    def search(self) -> tuple[KeptRange, ...] | None:
        """Return the widest ranges found that are proved."""
        box = self._box
        if box is None or not self._whole:
            return None

        def holds(ranges: Ranges) -> bool:
            self._deadline.check()
            return self._analyses[0].holds({**box, **ranges})

        def proves(ranges: Ranges) -> bool:
            return holds(ranges) and all(analysis.holds({**box, **ranges}) for analysis in self._analyses[1:])

        best: Ranges | None = None
        with suppress(OutOfTime):
            if proves(self._whole):
                return ()
            for finding in BoxExpansion(self._whole, holds, proves, self._rate_elements).findings():
                best = finding.ranges
        if best is None:
            return None
        kept = tuple(
            KeptRange.of(name, self._places.get(name, "tensor"), best[name], whole)
            for name, whole in self._whole.items()
            if not is_same(best[name], whole)
        )
        return kept if self._is_proved(kept) else None

    def _is_proved(self, kept: Collection[KeptRange]) -> bool:
        if any(part.place == "tensor" for part in kept):
            return True  # whoever puts these clips into the model proves that model
        config = ProveConfig(prove_timeout=0.0, runtime=self._runtimes)
        proof = Prover(narrow(self._problem, kept), config).analyse()
        operators = [op for op in proof.operators.values() if self._nodes is None or op.node in self._nodes]
        return all(operator.proved for operator in operators)

    def _rate_elements(self, ranges: Ranges) -> Mapping[str, Tensor]:
        return rate_elements(self._problem, {**(self._box or {}), **ranges}, tuple(ranges))

    # preparation --------------------------------------------------------------------------------------------------

    def _make_analysis(self, graph: Graph, runtimes: Sequence[Runtime]) -> PartialAnalysis:
        self._analyses.append(PartialAnalysis(graph, runtimes))
        return self._analyses[-1]

    def _set_conditions(self, pair: Analyses) -> None:
        """Tell the analyses what must hold: the operators in question and all before them are valid."""
        wanted, steep = list[Operation](), set[int]()
        for goal in self._problem.goals:
            found = [op for op in select_operators(goal, self._graph) if self._nodes is None or op.name in self._nodes]
            wanted += found
            steep.update(id(op) for op in found if goal.gradient)
        before = frozenset(id(op) for op in topological_order(wanted))
        for analysis in self._analyses:
            relevant = before if analysis is pair.written or pair.execution is None else pair.execution.runs(before)
            analysis.check_only(
                {
                    id(op): (*conditions_of(op), *(gradient_conditions(op) if id(op) in steep else ()))
                    for op in analysis.graph.nodes
                    if id(op) in relevant
                }
            )

    def _find_whole(self, at: Collection[str], box: Ranges) -> Ranges:
        """Return the original ranges of the tensors that may be narrowed, in topological order."""
        found = {name: box[name] for name in self._places if name in at}
        inner = {name: op for op in self._graph.nodes for name in op.output_names if name in at and name not in found}
        if inner:
            analysis = IntervalAnalysis(self._graph, runtimes=self._runtimes, keep=True)
            analysis.run([box[name] for name in self._graph.input_names])
            bounds = {name: analysis.bounds_of(op) for name, op in inner.items() if len(op.output_names) == 1}
            found |= {name: x.keep_finite() for name, x in bounds.items() if x is not None and x.is_floating}
        if missing := sorted(set(at) - set(found)):
            raise ValueError(f"tensors that cannot be clipped: {', '.join(missing)}")
        return found


def _bound_inputs(problem: Problem) -> Ranges | None:
    """Return bounds of the inputs of the problem's network; None if nothing is known about one of them."""
    call = problem.calls[0]
    box = box_of(problem.inputs)
    known = Applications(problem, {id(call): call.graph}, _analyse_nothing, box, lambda: None).inputs(call)
    return None if known is None else dict(zip(call.graph.input_names, known, strict=True))


def _analyse_nothing(call: NetworkCall) -> Analyses:
    raise NotImplementedError("a problem with one application has no arguments that depend on another")
