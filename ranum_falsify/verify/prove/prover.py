"""The prover: interval analysis first, then linear bounds and splitting of the inputs' box."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.config import ProveConfig, Runtime
from ranum_falsify.domain import IntervalAnalysis
from ranum_falsify.domain.linear.slope_optimisation import SlopeRecord
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.nesting import black_boxes_of
from ranum_falsify.process.deadline import NEVER, Deadline, OutOfTime
from ranum_falsify.properties.formula.terms import NetworkCall, ValidityGoal
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.verify.prove.analyses import (
    FOLLOWING,
    REWRITING,
    Analyses,
    analyses_of,
    make_linear,
    notices_of,
    without_execution,
)
from ranum_falsify.verify.prove.applications import Applications, Box, box_of, select_operators
from ranum_falsify.verify.prove.bisection import cut, is_narrow
from ranum_falsify.verify.prove.box_grouping import Decided, decide_together
from ranum_falsify.verify.prove.margins import MarginProof
from ranum_falsify.verify.prove.notices import describe_constants, describe_outputs, describe_varying, list_steep
from ranum_falsify.verify.prove.proof import OperatorProof, Proof, join_operators
from ranum_falsify.verify.prove.term_bounds import margin_bounds
from ranum_falsify.verify.prove.unconditional import keeps_outputs_finite
from ranum_falsify.verify.prove.watch import Drive, Observed, ProvedBounds, watch

_WORK_PER_SECOND = 6e8
"""Multiplications that a second of linear bounds of a whole box counts for."""

_WORK_SHARE = 0.9
"""Share of the time for linear bounds that is planned: if time is up before a run ends, all of it is lost."""

_ROOT_SHARE = 0.85
"""Share of the time for a property that its linear bounds on the whole box may take, before any margin is bounded."""

_ASCENT_SHARE = 0.75
"""Share of the work for linear bounds that goes into their slopes, where these are chosen."""

_SLACK = 1.5
"""How much longer an analysis may take than what it has done tells, and what comes after it."""

_TELLING = 0.1
"""Share of the operators of which the time tells that of all."""

_FEW = 8
"""Regions of which all boxes that wait to be cut are kept for the next turn."""

_PASSES = 4
"""How many times as long as linear bounds of the whole box there must be time for, for slopes inside the network."""

_INSIDE_SHARE = 0.75
"""Share of the time for a property that these may take."""

_SLOPES_SHARE = 0.25
"""Share of the time for open operators that goes into slopes, where cutting the box may close them, too."""


class Prover:
    """Proves as much as it can of one problem.

    Attributes:
        proof: What is proved so far.
        is_exhausted: Whether more time for `refine` would change nothing.
        runtimes: Runtimes that it covers.
        further: Runtimes that its bounds cover besides.
        watched: What ONNX Runtime did before a proof for it was to count; None where there was none.
    """

    def __init__(
        self,
        problem: Problem,
        config: ProveConfig,
        graphs: Mapping[int, Graph] | None = None,
        tick: Callable[[], None] = lambda: None,
        drive: Drive = lambda box: (),
        outputs_alone: bool = False,
        runtimes: tuple[Runtime, ...] | None = None,
        watches: bool = True,
    ) -> None:
        """Prepare.

        Args:
            problem: The problem.
            config: How to prove.
            graphs: The graph that runs for each application, by `id` of the application, if that is not its own.
            tick: Called at every operator; may raise to end the proof.
            drive: See `watch`.
            outputs_alone: Whether only invalid outputs count.
            runtimes: Runtimes that the proof must cover, if not those of the settings.
            watches: Whether ONNX Runtime runs what is proved for it, before that counts.
        """
        self.runtimes, self._watches = config.runtimes if runtimes is None else runtimes, watches
        self.further: tuple[Runtime, ...] = ()
        self.problem, self.config, self.outputs_alone = problem, config, outputs_alone
        self.graphs = {id(call): (graphs or {}).get(id(call), call.graph) for call in problem.calls}
        self.proof = Proof(runtimes=self.runtimes)
        self.is_exhausted = False
        self.watched: Observed | None = None
        self._seconds, self._drive = 0.0, drive
        self._tick, self._ticks, self._began = tick, 0, 0.0
        self._deadline = NEVER
        self._analyses: dict[int, Analyses] = {}
        self._regions: list[_Region] = []
        self._slopes: dict[int, dict[int, SlopeRecord]] = {}

    def analyse(self) -> Proof:
        """Prove by interval analysis alone, which costs about as much as an inference."""
        with torch.no_grad():
            began = time.thread_time()
            self._analyse_regions()
            self._seconds = time.thread_time() - began
            return self._conclude()

    def analyse_without_further(self) -> Proof:
        """Analyse again where further runtimes may be what stands against a proof."""
        # What ONNX Runtime did against one stands, whatever the bounds are.
        if not self.further or self.watched is not None:
            return self.proof
        self.forget_bounds()
        self.further = ()
        return self.analyse()

    def _analyse_regions(self) -> None:
        boxes = [(case, variables) for case in self.problem.each_case for variables in case.regions]
        decided = decide_together(self.problem, lambda box: self.apply(self.problem, box))
        self._regions = [
            _Region(self, boxes[i], known, self._slopes.setdefault(i, {}), keep=i == 0)
            for i, known in enumerate(decided)
        ]

    def describe_rest(self) -> str:
        """Return how far `analyse` had come when its time was up, and how much more it needs where that tells."""
        boxes = sum(len(case.regions) for case in self.problem.each_case)
        graphs = [analysis.graph for analyses in self._analyses.values() for analysis in analyses.all]
        whole = max(1, boxes) * sum(len(graph.order) for graph in graphs)
        done = self._ticks
        far = (
            f"the first analysis had bounded {min(done, whole)} of {whole} operators when time was up: raise --timeout"
        )
        if done < _TELLING * whole:
            return far
        more = _SLACK * (time.monotonic() - self._began) * max(whole / done - 1, 0)
        return f"{far} by about {math.ceil(max(more, 1))} s"

    def for_runtimes(self, runtimes: tuple[Runtime, ...]) -> Prover:
        """Return what proves the same for other runtimes, none of which is here to be watched."""
        other = Prover(
            self.problem,
            self.config,
            self.graphs,
            self._tick,
            outputs_alone=self.outputs_alone,
            runtimes=runtimes,
            watches=False,
        )
        other._slopes = self._slopes
        return other

    def forget_bounds(self) -> None:
        """Free what only more work on this proof needs: one for other runtimes takes as much memory again."""
        self._analyses.clear()
        self._regions.clear()

    def refine(self, deadline: Deadline, violated: Collection[tuple[int, str]] = (), *, cuts: bool = True) -> Proof:
        """Try harder on what `analyse` left open, until a deadline; `cuts` is about boxes for properties of outputs.

        Operators that are known to fail go by position of the validity goal and name of the node.
        """
        try:
            with torch.no_grad():
                left = [region for region in self._regions if not region.holds()]
                self.is_exhausted = True
                for region, self._deadline in deadline.share_among(left):
                    try:
                        region.refine(self._deadline, violated, cuts=cuts)
                    except OutOfTime:
                        self.is_exhausted = False
                    if len(left) > _FEW:
                        region.proofs = None
                    if self._deadline.has_passed:
                        self.is_exhausted = False
                    if deadline.has_passed:
                        break
        finally:
            self._deadline = NEVER
            with torch.no_grad():
                self._conclude()
        return self.proof

    @property
    def may_cut(self) -> bool:
        """Whether there is an open box of so few elements that cutting it may help."""
        return any(is_narrow(region.box) for region in self._regions if not region.holds())

    def suspects(self) -> dict[int, Sequence[Tensor]]:
        """Return points of the parts for which no proof was found, by position of the region.

        Each is one tensor `(points, *shape)` per input variable.
        """
        return {number: region.suspects for number, region in enumerate(self._regions) if region.suspects}

    def analyses_of(self, call: NetworkCall) -> Analyses:
        """Return the analyses of an application's graph."""
        graph = self.graphs[id(call)]
        if id(graph) not in self._analyses:
            self._analyses[id(graph)] = analyses_of(
                graph,
                (*self.runtimes, *self.further),
                lambda graph, runtimes: IntervalAnalysis(graph, runtimes=runtimes),
            )
        return self._analyses[id(graph)]

    def apply(self, problem: Problem, box: Box) -> Applications:
        """Return what interval analysis knows about the applications over a box."""
        return Applications(problem, self.graphs, self.analyses_of, box, self.tick)

    def linear_analyses_of(
        self,
        call: NetworkCall,
        deadline: Deadline,
        towards: Collection[int] | None = None,
        slopes: SlopeRecord | None = None,
        passes: float = 0.0,
    ) -> Analyses:
        """Return analyses with backward linear bounds of all operands, or of those of the operators `towards`, by `id`.

        With slopes that were chosen before for the same box, operands get the best bounds that there is time for, in
        place of those of one pass, which took some seconds before where that is known.
        """
        plain, speed = self.analyses_of(call), _WORK_PER_SECOND
        count, ascents = len(plain.all), 1 + FOLLOWING * (len(plain.all) - 1)
        work = _WORK_SHARE * deadline.left * speed
        # What one pass takes must not be missing in the end.
        ascent = 0.0 if slopes is None else min(_ASCENT_SHARE * work, work - _SLACK * passes * speed)
        return make_linear(
            plain,
            towards,
            work=(work - ascent) / count,
            ascent=ascent / ascents,
            speed=speed,
            slopes=slopes,
            tick=self.tick_until(deadline),
        )

    def tick_until(self, deadline: Deadline) -> Callable[[], None]:
        """Return what does nothing while there is time until a deadline that may be earlier; see `tick`."""

        def tick() -> None:
            self.tick()
            deadline.check()

        return tick

    def tick(self) -> None:
        """Do nothing while there is time; else raise `OutOfTime`."""
        self._began = self._began or time.monotonic()
        self._ticks += 1
        self._tick()
        self._deadline.check()

    def _conclude(self) -> Proof:
        # Of operators without a row, nothing is known, not even how far the harm goes.
        known = not any(black_boxes_of(graph) for graph in self.graphs.values())
        if known and self._watches and self.watched is None and REWRITING in self.runtimes:
            self._watch()
        held = frozenset(number for number, region in enumerate(self._regions) if known and region.holds())
        holds = len(held) == len(self._regions)
        self.proof = Proof(
            holds=holds,
            operators=join_operators([region.operators() for region in self._regions]),
            runtimes=self.runtimes,
            notices=tuple(dict.fromkeys((*self._notices(), *self._describe(holds)))),
            held_regions=held,
            departure={} if self.watched is None else self.watched.feeds,
            steep=list_steep(self.problem, self.graphs, [region.is_steep for region in self._regions]) if holds else (),
        )
        return self.proof

    def _watch(self) -> None:
        """Have ONNX Runtime run what is proved; where that fails, nothing is proved for it."""
        if not all(region.holds() for region in self._regions):
            return
        region, at = lambda i: self._regions[i].known, lambda case, box: self.apply(case, box_of(box))
        bounds = ProvedBounds(region, at, self._seconds)
        self.watched = watch(self.problem, self.graphs, self.analyses_of, bounds, self._drive)
        faults = {} if self.watched is None else self.watched.faults
        for call in (call for call in self.problem.calls if id(call) in faults):
            graph = self.graphs[id(call)]
            self._analyses[id(graph)] = without_execution(self.analyses_of(call), graph, faults[id(call)])
        if faults:
            self._analyse_regions()

    def _notices(self) -> Iterator[str]:
        faults = {} if self.watched is None else self.watched.faults
        for call in self.problem.calls:
            yield from notices_of(call.network, self.graphs[id(call)], self.runtimes)
            if id(call) in faults:
                yield f"nothing is proved about network {call.network} for ONNX Runtime, {faults[id(call)]}"

    def _describe(self, holds: bool) -> Iterator[str]:
        for region in () if holds else self._regions:
            yield from region.describe_open()
        for call in self.problem.calls if holds and self.problem.is_pure_validity else ():
            bounds = [region.known.check(call).outputs for region in self._regions]
            yield from describe_outputs(call.network, self.graphs[id(call)], bounds)


class _Region:
    """What is proved about one of the problem's boxes."""

    def __init__(
        self,
        prover: Prover,
        box: tuple[Problem, tuple[InputVariable, ...]],
        decided: Decided | None,
        slopes: dict[int, SlopeRecord],
        *,
        keep: bool,
    ) -> None:
        self._prover, (self._problem, self._variables) = prover, box
        self.suspects: Sequence[Tensor] = ()
        self._linear: Analyses | None = None
        self.proofs: list[MarginProof] | None = None
        self._seconds = self._pass_seconds = 0.0
        self._has_ascended = False
        self.slopes = slopes
        self._holds = None if decided is None else decided[1]
        if decided is not None and decided[0] is not None:
            self.known = decided[0]
        for call in self._problem.calls if decided is None else ():
            self.known.check(call)  # so that open operators are known even if time runs out
        if not self._problem.goals and self.holds() and not keep:
            # Only the watch asks more of the bounds, of one region, and there may be thousands.
            vars(self).pop("known", None)

    @cached_property
    def known(self) -> Applications:
        return self._applications(self.box)

    @cached_property
    def box(self) -> Box:
        """The box."""
        return box_of(self._variables)

    def holds(self) -> bool:
        """Tell whether the property holds on the box."""
        if self._holds is None:
            self._holds = self._holds_on(self.known)
        return self._holds

    def operators(self) -> dict[tuple[int, str], OperatorProof]:
        """Return what is known about every operator in question."""
        before = self.known.before if self._problem.goals else {}
        return {
            (number, op.name): OperatorProof(
                network=goal.call.network,
                node=op.name,
                op_type=spec_of(op).op_type,
                open=self.known.find_open_conditions(goal, op),
                after=before[id(goal.call)][id(op)],
                inside=self.known.check(goal.call).inside.get(op.name, ()),
            )
            for number, goal in enumerate(self._problem.goals)
            for op in select_operators(goal, self._prover.graphs[id(goal.call)])
        }

    def describe_open(self) -> Iterator[str]:
        """Yield what users should know of constants, and of shapes that vary over the box; leave open what follows."""
        for call in () if self.holds() else self._problem.calls:
            known, graph = self.known.check(call), self._prover.graphs[id(call)]
            yield from describe_varying(self._problem, call, graph, known.varying, self._variables)
            yield from describe_constants(graph, known.constants)

    def is_steep(self, goal: ValidityGoal, op: Operation) -> bool:
        """Tell whether an operator's derivative may not be finite although the goal does not ask about it."""
        return not goal.gradient and bool(self.known.check(goal.call).open_gradient.get(id(op)))

    def refine(self, deadline: Deadline, violated: Collection[tuple[int, str]], *, cuts: bool) -> None:
        """Try linear bounds on the whole box, then cut it; for a property of outputs, go on where that ended before."""
        left, is_pure = deadline.left, self._problem.is_pure_validity
        is_short = self._linear is None or self._linear.is_short
        if is_pure or (is_short and left > self._seconds):
            self._bound_whole(deadline.share(_SLOPES_SHARE if is_pure else _ROOT_SHARE))
            self._seconds, self._holds = left, self._holds_on(self.known)
        if not self._holds and is_pure:
            self._close_operators(deadline, violated)
        elif not self._holds:
            self._holds = self._margins_hold(deadline, cuts=cuts and not self._may_ascend)
            if not self._holds and self._may_ascend:
                self._ascend(deadline)
                self._holds = self._margins_hold(deadline, cuts=cuts)

    @property
    def _may_ascend(self) -> bool:
        """Whether better slopes inside the network are worth their time: not where all is bounded anew for each cut."""
        return not (self._has_ascended or is_narrow(self.box)) and self.proofs != []

    def _ascend(self, deadline: Deadline) -> None:
        """Bound the whole box with slopes chosen for every operand, if there is time to choose many."""
        self._has_ascended = True
        if self._linear is None or self._linear.is_short or deadline.left < _PASSES * self._pass_seconds:
            return
        known, linear = self.known, self._linear
        try:
            self._bound_whole(deadline.share(_INSIDE_SHARE), ascends=True)
        except OutOfTime:
            self.known, self._linear, self.proofs = known, linear, None

    def _slopes_of(self, call: NetworkCall) -> SlopeRecord:
        return self.slopes.setdefault(self._problem.calls.index(call), SlopeRecord())

    def _bound_whole(self, deadline: Deadline, *, ascends: bool = False) -> None:
        prover, began = self._prover, time.monotonic()
        linear = {
            id(call): prover.linear_analyses_of(
                call, deadline, None, self._slopes_of(call) if ascends else None, self._pass_seconds
            )
            for call in self._problem.calls
        }
        known = Applications(self._problem, prover.graphs, lambda call: linear[id(call)], self.box, prover.tick)
        for call in self._problem.calls:
            known.check(call)
        self.known, self._linear, self.proofs = known, linear[id(self._problem.calls[0])], None
        self._pass_seconds = time.monotonic() - began

    def _holds_on(self, known: Applications) -> bool:
        if self._problem.is_pure_validity:
            return all(known.is_valid(goal) for goal in self._problem.goals) or self._hides(known)
        frame = known.frame_surely()
        if bool((margin_bounds(self._problem.clause_circuit, frame).low >= 0).all()):
            return True
        return bool((margin_bounds(self._problem.penalty_circuit, frame).high < 0).any())

    def _hides(self, known: Applications) -> bool:
        """Tell whether no output shows what is invalid, where only outputs count."""
        goals, calls = self._problem.goals, self._problem.calls
        if not self._prover.outputs_alone or len(calls) > 1 or any(goal.gradient for goal in goals):
            return False
        inputs, analyses = known.inputs(calls[0]), self._prover.analyses_of(calls[0])
        return inputs is not None and keeps_outputs_finite(analyses, inputs, self._prover.tick)

    def _margins_hold(self, deadline: Deadline, *, cuts: bool) -> bool:
        if self.proofs is None and self._linear is not None:
            valid = {id(goal): self.known.is_valid(goal) for goal in self._problem.goals}
            is_sound = self.known.is_sound(self._problem.calls[0])
            self.proofs = MarginProof.of_each(self._problem, self._linear, valid) if is_sound else []
        for proof, until in deadline.share_among(self.proofs or []):
            result = proof.run(until, cuts=cuts)
            if not result.proved:
                if not cuts or until.has_passed or (self._linear is not None and self._linear.is_short):
                    self._prover.is_exhausted = False
                self.suspects = proof.centres(result, self.box)
                return False
        if self.proofs or not (cuts and is_narrow(self.box)):
            return bool(self.proofs)
        return cut(self.box, lambda box: self._holds_on(self._applications(box)), deadline=deadline)

    def _close_operators(self, deadline: Deadline, violated: Collection[tuple[int, str]]) -> None:
        """Close open operators by better slopes, then by cutting the box for one after another."""
        failing = {node for _, node in violated}
        may_cut = is_narrow(self.box)
        share = _SLOPES_SHARE if may_cut else 1.0
        self._close_by_slopes(deadline.share(share), failing)
        if may_cut:
            self._close_by_cutting(deadline, failing)
        self._holds = self._holds_on(self.known)

    def _find_open(self, failing: AbstractSet[str]) -> list[tuple[NetworkCall, Operation]]:
        """Return the open operators in topological order, without those that fail and those after them."""
        before = self.known.before
        return [
            (call, op)
            for call in self._problem.calls
            for op in self._prover.graphs[id(call)].nodes
            if id(op) in self.known.find_open(call)
            and op.name not in failing
            and failing.isdisjoint(before[id(call)][id(op)])
        ]

    def _close_by_slopes(self, deadline: Deadline, failing: AbstractSet[str]) -> None:
        """Bound the operands of all open operators as well as slopes of lines about curves can."""
        try:
            for call in self._problem.calls:
                ends = {id(op) for own, op in self._find_open(failing) if own is call}
                inputs = self.known.inputs(call)
                analyses = self._prover.linear_analyses_of(call, deadline, ends, self._slopes_of(call))
                if ends and inputs is not None:
                    checked = analyses.check(inputs, only=ends, tick=self._prover.tick_until(deadline))
                    self.known.closed.update((id(call), key) for key in ends if key not in checked.open)
        except OutOfTime:
            self._prover.is_exhausted = False

    def _close_by_cutting(self, deadline: Deadline, failing: AbstractSet[str]) -> None:
        """Cut the box for one open operator after another, in topological order."""
        open_ops = self._find_open(failing)
        for (call, op), until in deadline.share_among(open_ops):
            if self._is_closed_by_cutting(call, op, until):
                self.known.closed.add((id(call), id(op)))
            elif until.has_passed:
                self._prover.is_exhausted = False

    def _is_closed_by_cutting(self, call: NetworkCall, op: Operation, deadline: Deadline) -> bool:
        analyses = self._prover.analyses_of(call)

        def decide(box: Box) -> bool:
            inputs = self._applications(box).inputs(call)
            if inputs is None:
                return False
            # Cells of one number were cut on the whole box already.
            return not analyses.check(inputs, only={id(op)}, tick=self._prover.tick, decides=False).open

        return cut(self.box, decide, deadline=deadline)

    def _applications(self, box: Box) -> Applications:
        return self._prover.apply(self._problem, box)
