"""Search for invalid inputs of operators: every vulnerable operator is a target of its own."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.errors import ReplayCrashError, ReplayError, ReplayRefusalError, ReplayTimeoutError
from ranum_falsify.network.nesting import has_subgraphs
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.verify.replay.broken import DENORMAL
from ranum_falsify.verify.replay.confirmer import feeds_of, meets_conditions
from ranum_falsify.verify.search.aiming import aim
from ranum_falsify.verify.search.bisection import bisect
from ranum_falsify.verify.search.confirmation_oracle import ConfirmationOracle
from ranum_falsify.verify.search.device import chunks
from ranum_falsify.verify.search.objective import Objective
from ranum_falsify.verify.search.operator_status import describe_status, is_shadowed
from ranum_falsify.verify.search.result import Counterexample, OperatorResult
from ranum_falsify.verify.search.scan import NEAR, find_revealing, find_runtime_only
from ranum_falsify.verify.search.search import Progress, Region, SearchContext, descend, find_worst_vertices
from ranum_falsify.verify.search.starts import mix, replace_row
from ranum_falsify.verify.search.torch_replay import compare

_REFUSALS = 16
"""Candidates of a target that ONNX Runtime may refuse before a round of the search turns to others."""

_WIDE = 10
"""Starts per target in the first pass, where many targets share a batch."""

_OVERFLOW_ROOM = 60.0
"""Descent on an overflow starts only if the output is within this many nats of the largest float."""

_OVERFLOW_TARGETS = 16
"""Overflow targets that share the round."""

_PATIENCE = 30
"""Steps without progress on any of a round's targets after which the round ends."""

_PROGRESS = 0.01
"""A gain counts as progress from this share of the best margin on."""

_PARENTS = 4
"""Counterexamples that are mixed with fresh points."""

_UNSEEN = 8
"""Starts of each region that are replayed although torch sees nothing there."""

_INSIDE_NODES, _INSIDE_SECONDS = 1_000, 2.0
"""Most nodes of loops whose length inputs decide, unrolled to look into them, and the time of a round for that."""


@dataclass
class TargetState:
    """What the search knows about one target.

    Attributes:
        target: The target.
        best: Its least margin so far.
        at_start: The same before descents.
        points: Where that is, with a batch of 1.
        refused: Candidates in this round that ONNX Runtime did not confirm.
        doubtful: The last of them, those of earlier rounds too.
    """

    target: Target
    best: float = float("inf")
    at_start: float = float("inf")
    points: list[Tensor] = field(default_factory=list)
    refused: int = 0
    doubtful: deque[list[Tensor]] = field(default_factory=lambda: deque(maxlen=_REFUSALS))

    @property
    def limit(self) -> float:
        """A margin below this is worth a replay."""
        return DENORMAL if self.target.is_gradient else 0.0

    @property
    def is_given_up(self) -> bool:
        """Whether ONNX Runtime has refused so many candidates that this round tries no more."""
        return self.refused >= _REFUSALS

    def note(self, margins: Tensor, inputs: Sequence[Tensor]) -> None:
        """Remember the best point of a batch, with a batch of 1."""
        least, position = margins.min(0)
        self.best = float(least)
        self.points = _take(inputs, int(position))

    def refuse(self, inputs: Sequence[Tensor], position: int) -> None:
        """Remember a candidate that ONNX Runtime does not confirm."""
        self.refused += 1
        self.doubtful.append(_take(inputs, position))


def _take(inputs: Sequence[Tensor], position: int) -> list[Tensor]:
    return [x[position][None].clone() for x in inputs]


class OperatorSearch:
    """Finds, for each operator in question, a confirmed input on which it is invalid.

    Passes: the portfolio of starts on all targets; a wide descent in which targets share batches; a deep one for each
    target that moved; bisection towards exact zeros; replay of near misses; descent on overflows that are within reach;
    replay of a few starts at which torch sees nothing; where margins are small, many points in ONNX Runtime itself, in
    batches and one by one, and inputs that meet the numbers at which its kernels fail.
    """

    def __init__(self, context: SearchContext) -> None:
        self.context = context
        self.goals = context.problem.goals
        self.targets = context.targets()
        self.states = [TargetState(target) for target in self.targets]
        self._rounds = 0
        self.found: dict[tuple[int, str], OperatorResult] = {}
        self._seen: set[tuple[bytes, int | None]] = set()
        self._failures: dict[str, None] = {}
        self._masked: dict[tuple[int, str], OperatorResult] = {}
        self._violated: Target | None = None
        self._witness = ConfirmationOracle(context, self.targets)

    # passes -----------------------------------------------------------------------------------------------------

    @property
    def has_found(self) -> bool:
        """Whether an operator is known to be invalid."""
        return bool(self.found)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to find."""
        return all(self._is_decided(state) for state in self.states)

    def run(self, *, endless: bool = False) -> None:
        """Search all regions, once more or, `endless`, until everything is found or time is up."""
        if self.context.config.batch == 0:
            return
        passes = (
            *(self._portfolio, self._search_wide, self._search_deep, self._bisection, self._replay_near_misses),
            *(self._overflow, self._crossover, self._replay_unseen, self._scan, self._try_out, self._aim),
        )
        while not endless or not self._rounds or (self._list_open() and not self.context.budget.expired):
            for region in self.context.regions():
                for part in passes:
                    if self.context.budget.expired:
                        return
                    part(region, self._rounds == 0)
            self._rounds += 1
            for state in self.states:
                state.refused = 0
            if not endless:
                return

    def replay(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Count what ONNX Runtime shows on inputs, by variable, on which it was seen to defy a proof; else nothing."""
        with suppress(ReplayError):
            if meets_conditions(self.context.problem, inputs, self.context.confirmer):
                self._replay(None, inputs)

    def objectives(self) -> Iterator[tuple[Objective, Region, Callable[[Sequence[Tensor]], bool]]]:
        """Yield what other back ends make negative, and where; each with a function that replays a candidate."""
        for state in self._list_open():
            for region in self.context.regions():
                if self._is_open(state):
                    yield self.context.objective([state.target]), region, partial(self._replays, state)

    def _replays(self, state: TargetState, inputs: Sequence[Tensor], position: int = 0) -> bool:
        self._confirm(state, inputs, position)
        return not self._is_open(state)

    def _list_open(self, *, remote: bool = False) -> list[TargetState]:
        """Return the states of targets whose operator is not found yet."""
        return [state for state in self.states if state.target.is_remote == remote and self._is_open(state)]

    def _list_descended(self) -> list[TargetState]:
        return [s for s in self._list_open() if not is_shadowed(s.target, self.context.proof, self.found)]

    def _portfolio(self, region: Region, first: bool) -> None:
        states = self._list_open() + self._list_open(remote=True)
        self._report("starts", 0.0)
        if states:
            objective = self.context.objective([s.target for s in states])
            starts = self.context.starts(region, self.context.config.batch, first=first)
            if first:
                starts = self.context.insert_points(region, starts, find_worst_vertices(objective, region, len(states)))
            for portion in chunks(starts, self.context.portion):
                if self._visit(states, objective.evaluate(portion).margins, portion):
                    return

    def _search_wide(self, region: Region, first: bool) -> None:
        group_size = max(1, self.context.config.batch // _WIDE)
        states = self._list_descended()
        for state in states:
            state.at_start = state.best
        for begin in range(0, len(states), group_size):
            group = [s for s in states[begin : begin + group_size] if self._is_open(s)]
            self._report("wide descent", 0.1 + 0.3 * begin / len(states))
            self._descend(region, group)

    def _search_deep(self, region: Region, first: bool) -> None:
        states = [state for state in self._list_descended() if state.best < state.at_start]
        for number, state in enumerate(states):
            self._report(f"descent on {state.target.op.name}", 0.4 + 0.3 * number / len(states))
            if self._is_open(state) and not self.context.budget.expired:
                self._descend(region, [state])

    def _bisection(self, region: Region, first: bool) -> None:
        states = self._list_descended()
        for number, state in enumerate(states):
            self._report(f"bisection on {state.target.op.name}", 0.7 + 0.15 * number / len(states))
            if self._is_open(state) and not self.context.budget.expired:
                starts = self.context.starts(region, self.context.config.batch, first=first)
                if state.points:
                    starts = [torch.cat([p, x[1:]]) for p, x in zip(state.points, starts, strict=True)]
                bisect(self.context, state.target, region, starts, partial(self._visit, [state]))

    def _replay_near_misses(self, region: Region, first: bool) -> None:
        for state in self._list_open():
            if state.points and not self.context.budget.expired:
                self._report(f"replay of {state.target.op.name}", 0.85)
                self._confirm(state, state.points, 0)

    def _overflow(self, region: Region, first: bool) -> None:
        """Descend on targets that need an overflow, where one is within reach."""
        near = sorted(self._list_open(remote=True), key=lambda s: s.best)[:_OVERFLOW_TARGETS]
        near = [state for state in near if state.best < _OVERFLOW_ROOM]
        self._report("overflow", 0.9)
        self._descend(region, near)

    def _crossover(self, region: Region, first: bool) -> None:
        """Mix counterexamples with fresh points, variable by variable: one violation often leads to the next."""
        states = self._list_open() + self._list_open(remote=True)
        if not states or len(region.boxes) < 2:
            return
        self._report("crossover", 0.95)
        objective = self.context.objective([s.target for s in states])
        known = {id(r.counterexample): r.counterexample for r in self.found.values() if r.counterexample}
        for counterexample in list(known.values())[:_PARENTS]:
            starts = self.context.starts(region, self.context.config.batch, first=first)
            arrays = (to_torch(counterexample.inputs[v.name]).to(self.context.device) for v in region.variables)
            mixed = [mix(x, parent, self.context.generator) for x, parent in zip(starts, arrays, strict=True)]
            self._visit(states, objective.evaluate(mixed).margins, mixed)

    def _replay_unseen(self, region: Region, first: bool) -> None:
        """Replay starts at which torch sees nothing: what makes constants, or merges operators, may fail by itself."""
        hides = not (self.found or self._witness.is_torch) and any(
            has_subgraphs(model.graph) for model in self.context.models
        )
        if not (first or hides) or (self.is_done and self.found):
            return
        self._report("replay of starts", 0.98)
        starts = self.context.starts(region, min(self.context.config.batch, _UNSEEN), first=first)
        until = Deadline.after(_INSIDE_SECONDS)
        for position in range(len(starts[0])):
            if not self.context.budget.expired:
                nodes = _INSIDE_NODES if hides and not self.found and not until.has_passed else 0
                self._attempt(None, starts, position, inside=nodes)

    def _scan(self, region: Region, first: bool) -> None:
        """Where nothing is found, run many points in ONNX Runtime if margins are so small that rounding matters."""
        near = self._list_near()
        if near and self._is_unseen():
            self._report("scan", 0.99)
            self._attempt_each(find_runtime_only(self.context, region, near))

    def _try_out(self, region: Region, first: bool) -> None:
        """Where nothing is found, run points in ONNX Runtime one by one; at first only if margins are small."""
        near = self._list_near()
        if (near or not first) and self._is_unseen():
            self._report("trials", 0.99)
            self._attempt_each(find_revealing(self.context, region, near))

    def _aim(self, region: Region, first: bool) -> None:
        """Where margins are so small that rounding matters, aim at numbers at which ONNX Runtime's kernels fail."""
        for state in self._list_open():
            if state.points and state.best < NEAR and self.context.varies and not self._witness.is_torch:
                self._report(f"numbers of {state.target.op.name}", 0.99)
                aim(self.context, state.target, region, state.points, partial(self._replays, state))

    def _is_unseen(self) -> bool:
        """Tell whether ONNX Runtime may show what torch has not shown."""
        return not self.found and not self._witness.is_torch and self.context.varies

    def _list_near(self) -> list[list[Tensor]]:
        """Return the points of small margins, those among them that ONNX Runtime did not confirm."""
        states = [s for s in self.states if not (s.target.is_remote or self._is_decided(s))]
        return [points for s in states for points in (*([s.points] * (s.best < NEAR)), *s.doubtful) if points]

    def _attempt_each(self, candidates: Iterable[list[Tensor]]) -> None:
        """Replay candidates, each with a batch of 1, until one shows a violation."""
        for inputs in candidates:
            self._attempt(None, inputs, 0)
            if self.found or self.context.budget.expired:
                return

    def _descend(self, region: Region, states: Sequence[TargetState]) -> None:
        """Descend from a batch that the states' targets share, the best known points among its starts."""
        if not states:
            return
        starts = self.context.starts(region, self.context.config.batch, first=False)
        assigned = torch.arange(self.context.config.batch) % len(states)
        for position, state in enumerate(states):
            if state.points and position < self.context.config.batch:
                starts = [replace_row(x, position, p) for x, p in zip(starts, state.points, strict=True)]
        objective = self.context.objective([s.target for s in states])
        waited = 0
        goals = [state.best for state in states]

        def visit(margins: Tensor, inputs: Sequence[Tensor]) -> bool:
            nonlocal waited
            done = self._visit(states, margins, inputs)
            waited += 1
            for i, state in enumerate(states):
                if state.best < goals[i] - _PROGRESS * abs(goals[i]):
                    goals[i], waited = state.best, 0
            return done or waited >= _PATIENCE

        descend(self.context, objective, region, starts, assigned.to(self.context.device), visit)

    # candidates -------------------------------------------------------------------------------------------------

    def _is_open(self, state: TargetState) -> bool:
        return not self._is_decided(state) and not state.is_given_up

    def _is_decided(self, state: TargetState) -> bool:
        return self._is_found(state.target) or self.context.is_proved(state.target)

    def _is_found(self, target: Target) -> bool:
        """Tell whether an operator, or one in a subgraph of it, is known to be invalid."""
        inside = f"{target.op.name}/"
        return any(
            goal == target.goal and (name == target.op.name or name.startswith(inside)) for goal, name in self.found
        )

    def _visit(self, states: Sequence[TargetState], margins: Tensor, inputs: Sequence[Tensor]) -> bool:
        """Note the best points and replay the violated ones; return whether nothing is left to find."""
        least = margins.amin(0).tolist()
        for column, state in enumerate(states):
            if least[column] < state.best and self._is_open(state):
                state.note(margins[:, column], inputs)
                if state.best < state.limit:
                    self._confirm_violated(state, margins[:, column], inputs)
        return not any(self._is_open(state) for state in states) or self.context.budget.expired

    def _confirm_violated(self, state: TargetState, margins: Tensor, inputs: Sequence[Tensor]) -> None:
        """Replay the violated samples of a batch, the worst first, until one is confirmed or the target is given up.

        Kernels that differ in the last bit disagree on most exact zeros, not on all.
        """
        for position in margins.argsort(stable=True)[: int((margins < state.limit).sum())].tolist():
            self._violated = state.target
            self._confirm(state, inputs, position)
            self._violated = None
            if not self._is_open(state) or self.context.budget.expired:
                return
        state.best = 0.0

    def _confirm(self, state: TargetState, inputs: Sequence[Tensor], position: int) -> None:
        """Replay one sample, and count a refusal if ONNX Runtime does not show what torch does."""
        replayed = self._attempt(state.target, inputs, position)
        if replayed and self._is_open(state) and state.best < state.limit:
            state.refuse(inputs, position)

    def _attempt(self, target: Target | None, inputs: Sequence[Tensor], position: int, *, inside: int = 0) -> bool:
        """Replay one sample, unless that was done; every operator that it shows to be invalid counts as found."""
        env = self.context.arrays(inputs, position)
        # One replay shows all that is invalid, but differentiates the target's operator only.
        differentiated = id(target) if target is not None and target.is_gradient else None
        key = (b"".join(array.tobytes() for array in env.values()), differentiated)
        if key in self._seen:
            return False
        self._seen.add(key)
        began = time.monotonic()
        try:
            if not meets_conditions(self.context.problem, env, self.context.confirmer):
                return False
            self._replay(target, env, inside=inside)
        except (ReplayCrashError, ReplayRefusalError, ReplayTimeoutError) as error:
            self._failures[str(error)] = None
        finally:
            self.context.budget.replay_seconds += time.monotonic() - began
        return True

    def _replay(self, target: Target | None, env: Mapping[str, np.ndarray], *, inside: int = 0) -> None:
        """Add what concrete inputs show; raise `ReplayError` where ONNX Runtime does not run them."""
        for number, goal in enumerate(self.goals):
            feeds = feeds_of(self.context.problem, goal.call, env, self.context.confirmer)
            example = Counterexample(inputs=env, network=goal.call.network, feeds=feeds)
            for shown in self._witness.list_shown(number, example, self._violated, inside=inside):
                self._add(number, shown)
            if not self._witness.is_torch:
                self.found |= compare(self.found, self.context.model_of(goal.call).graph, example)
            if target is not None and target.goal == number and target.is_gradient and not self._is_found(target):
                steep = self._witness.differentiate(target, example)
                if steep is not None:
                    self.found[number, steep.node] = steep

    def _add(self, number: int, shown: OperatorResult) -> None:
        """Add an operator that is invalid, unless more is known of it."""
        if not self.context.config.counts(shown.reach):
            self._masked.setdefault((number, shown.node), replace(shown, verdict="masked"))
            return
        known = self.found.get((number, shown.node))
        if known is None or _weight(known) < _weight(shown):
            self.found[number, shown.node] = shown
            self._report(f"{shown.op_type} {shown.node} violated", 0.5)

    # report -----------------------------------------------------------------------------------------------------

    def results(self) -> tuple[OperatorResult, ...]:
        """Return every operator in question in topological order, and those found besides."""
        listed, seen = dict[tuple[int, str], OperatorResult](), self._masked | self.found
        for target in self.targets:
            key = (target.goal, target.op.name)
            if key not in listed:
                listed[key] = seen.get(key) or describe_status(target, self.context.proof)
        return (*listed.values(), *(result for key, result in seen.items() if key not in listed))

    def list_unconfirmed(self) -> tuple[str, ...]:
        """Return what the search saw and the replay did not confirm, one line per operator."""
        judge = "PyTorch alone" if self._witness.is_torch else "ONNX Runtime"
        refused = (
            f"{s.target.spec.op_type} {s.target.op.name}: {s.target.constraint.describe()} fails in torch, "
            f"which {judge} does not confirm"
            for s in self.states
            if s.doubtful and not self._is_found(s.target) and (s.target.goal, s.target.op.name) not in self._masked
        )
        return (*refused, *self._failures)

    def notices(self) -> tuple[str, ...]:
        """Return what only a runtime shows that the answer is not about."""
        return self._witness.notices(self.found.keys())

    def _report(self, text: str, done: float) -> None:
        self.context.report(Progress(stage="search", done=done, text=f"{text} ({len(self.found)} found)"))


def _weight(seen: OperatorResult) -> tuple[bool, bool, bool]:
    """Return what makes one violation of an operator more important than another: whether users see it, and its own."""
    return seen.reach == "output", seen.optimisations != "off", not seen.after
