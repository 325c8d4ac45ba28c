"""Clips: ranges of chosen tensors, as wide as they can be made, within which operators are proved to be valid."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.config import RUNTIMES, ProveConfig, Runtime
from ranum_falsify.domain import IntervalAnalysis
from ranum_falsify.network import Graph
from ranum_falsify.network.order import topological_order
from ranum_falsify.operators.support.conditions import conditions_of, gradient_conditions
from ranum_falsify.process.deadline import NEVER, Deadline, OutOfTime
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.repair.abstraction.costs import rate_elements
from ranum_falsify.repair.abstraction.maximal_box import BoxExpansion
from ranum_falsify.repair.abstraction.partial import PartialAnalysis
from ranum_falsify.repair.abstraction.ranges import KeptRange, Ranges, is_same
from ranum_falsify.verify.prove.analyses import Analyses, analyses_of
from ranum_falsify.verify.prove.applications import Applications, box_of, select_operators
from ranum_falsify.verify.prove.prover import Prover

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
