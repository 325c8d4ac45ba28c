"""Search for a counterexample of a property over outputs: robustness, equivalence, VNN-LIB."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.errors import ReplayCrashError, ReplayTimeoutError
from ranum_falsify.network import spec_of
from ranum_falsify.properties.formula.applications import NetworkCall, ValidityGoal
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.replay.confirmer import is_in_question
from ranum_falsify.search.beside import find_failing_in_torch
from ranum_falsify.search.objective import Objective
from ranum_falsify.search.result import Counterexample
from ranum_falsify.search.search import Progress, Region, SearchContext, descend, find_worst_vertices

__all__ = ["ClauseSearch"]

_PATIENCE = 5
"""Evaluations to wait after a candidate that ONNX Runtime did not confirm."""


class ClauseSearch:
    """Searches for inputs that make one clause of the property negative; ends with the first counterexample."""

    def __init__(self, context: SearchContext) -> None:
        self.context = context
        self.counterexample: Counterexample | None = None
        self.unconfirmed: list[str] = []
        self._wait = 0
        self._rounds = 0
        self._all_targets = context.targets()

    @property
    def _targets(self) -> list[Target]:
        return [target for target in self._all_targets if not self.context.is_proved(target)]

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to find."""
        return self.counterexample is not None

    def run(self, *, endless: bool = False) -> None:
        """Search all regions, round by round; `endless` until something is found or time is up."""
        objective = self.context.objective(self._targets, by_clause=True)
        regions = list(self.context.regions())
        while self.counterexample is None and not self.context.budget.expired:
            for number, region in enumerate(regions):
                text = f"round {self._rounds + 1}"
                self.context.report(Progress(stage="search", done=number / len(regions), text=text))
                self._round(objective, region, first=self._rounds == 0)
                if self.counterexample is not None or self.context.budget.expired:
                    return
            self._rounds += 1
            if not endless:
                return

    def objectives(self) -> Iterator[tuple[Objective, Callable[[Sequence[Tensor]], bool]]]:
        """Yield the objectives for other back ends, each with a function that replays a batch of one candidate."""
        if self.counterexample is not None:
            return
        objective = self.context.objective(self._targets, by_clause=True)
        yield objective, lambda inputs: self._confirm(objective.evaluate(inputs).margins, inputs, near_miss=True)

    def _round(self, objective: Objective, region: Region, *, first: bool) -> None:
        count = self.context.config.batch
        if count == 0:
            return
        starts = self.context.starts(region, count, first=first)
        if first:
            clauses = len(self.context.problem.clause_names)
            starts = self.context.insert_points(region, starts, find_worst_vertices(objective, region, clauses))
        assigned = self._assign(objective, starts)
        margins, inputs = descend(self.context, objective, region, starts, assigned, self._visit)
        if self.counterexample is None and not self.context.budget.expired:
            self._confirm(margins, inputs, near_miss=True)

    def _assign(self, objective: Objective, starts: Sequence[Tensor]) -> Tensor | None:
        """Give half of the starts the clause nearest to violation and the other half one at random."""
        clauses = len(self.context.problem.clause_names)
        if clauses == 1:
            return None
        nearest = objective.evaluate(starts).margins.argmin(1)
        other = torch.randint(clauses, nearest.shape, generator=self.context.generator).to(nearest.device)
        # In pairs, because descent gives every other start another kind of step.
        return torch.where(torch.arange(len(nearest), device=nearest.device) // 2 % 2 == 0, nearest, other)

    def _visit(self, margins: Tensor, inputs: Sequence[Tensor]) -> bool:
        self._wait -= 1
        if self._wait > 0 or not bool((margins < 0).any()):
            return False
        if self._confirm(margins, inputs, near_miss=False):
            return True
        self._wait = _PATIENCE
        return False

    def _confirm(self, margins: Tensor, inputs: Sequence[Tensor], *, near_miss: bool) -> bool:
        """Replay the most negative sample; at the end of a round also one that only nearly violates."""
        least, position = margins.amin(1).min(0)
        if not near_miss and least >= 0:
            return False
        env = self.context.arrays(inputs, int(position))
        began = time.monotonic()
        try:
            violated = not self.context.problem.holds(env, self.context.confirmer.apply, self._is_valid)
            if violated and self.context.config.judge == "torch":
                violated = not self.context.problem.holds(env, _apply_in_torch, _is_valid_in_torch)
        except (ReplayCrashError, ReplayTimeoutError) as error:
            self.unconfirmed = [str(error)]
            return False
        finally:
            self.context.budget.replay_seconds += time.monotonic() - began
        if violated:
            self.counterexample = Counterexample(inputs=env)
        elif least < 0:
            judges = "ONNX Runtime" if self.context.config.judge == "onnxruntime" else "ONNX Runtime and PyTorch"
            self.unconfirmed = [f"a margin of {float(least):.3g} in the search, not confirmed by {judges}"]
        return violated

    def _is_valid(self, goal: ValidityGoal, arguments: tuple[np.ndarray, ...]) -> bool:
        feeds = dict(zip(goal.call.graph.input_names, arguments, strict=True))
        findings = self.context.confirmer.findings(goal.call, feeds)
        return not any(
            self.context.config.reach in (None, finding.reach) and is_in_question(goal, finding, self.context.confirmer)
            for finding in findings
        )


def _apply_in_torch(call: NetworkCall, arguments: tuple[np.ndarray, ...]) -> Sequence[np.ndarray]:
    outputs: Sequence[np.ndarray] = call.graph(*arguments, squeeze=False)
    return outputs


def _is_valid_in_torch(goal: ValidityGoal, arguments: tuple[np.ndarray, ...]) -> bool:
    """Tell whether a goal holds; what draws random numbers is ONNX Runtime's to show."""
    graph = goal.call.graph
    failing = find_failing_in_torch(graph, dict(zip(graph.input_names, arguments, strict=True)))
    return failing is not None and not any(
        (goal.only is None or spec_of(op).op_type in goal.only) and (goal.nodes is None or op.name in goal.nodes)
        for op in graph.nodes
        if op.name in failing
    )
