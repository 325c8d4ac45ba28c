"""Objectives of descent: margins of a problem's targets or clauses, on a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ranum_falsify.properties.formula.terms import NetworkCall, ValidityGoal
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.verify.search.batching import BatchedModel
from ranum_falsify.verify.search.converter import TorchModel
from ranum_falsify.verify.search.device import chunks
from ranum_falsify.verify.search.slopes import Estimates


@dataclass(frozen=True)
class Evaluated:
    """Margins of a batch and, where wanted, gradients.

    Attributes:
        margins: `(batch, targets)`, negative exactly where a target is violated and every side condition met.
        gradients: One per input, of the sum over the batch of the loss of each start's assigned target; None for
            inputs that are not floats.
        estimated: Whether gradients came through estimates of derivatives.
    """

    margins: Tensor
    gradients: tuple[Tensor | None, ...] = ()
    estimated: bool = False

    def keep(self, positions: Tensor) -> Evaluated:
        """Return what belongs to some samples."""
        gradients = tuple(None if x is None else x[positions] for x in self.gradients)
        return replace(self, margins=self.margins[positions], gradients=gradients)


class Objective:
    """Margins to make negative.

    Args:
        problem: The reduced property.
        models: A module per network call, in the order of the problem's calls.
        targets: Validity targets to observe.
        by_clause: Whether the clauses of the property are made negative, rather than each target on its own.
        limit: Samples that run at once; larger batches are split.
        between: Called before each part of a batch that is split; may raise to end the search.
    """

    def __init__(
        self,
        problem: Problem,
        models: Sequence[TorchModel],
        targets: Sequence[Target],
        *,
        by_clause: bool,
        limit: int,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self._problem = problem
        self._targets = list(targets)
        self._by_clause = by_clause
        self._limit = limit
        self._between = between
        indexed = list(enumerate(self._targets))
        self._batched = {
            id(call): BatchedModel(model, [(i, t) for i, t in indexed if problem.goals[t.goal].call is call])
            for call, model in zip(problem.calls, models, strict=True)
        }
        # Goals of one application share a run; each has its own columns of the observed margins.
        self._columns = {
            id(goal): [
                column
                for column, position in enumerate(self._batched[id(goal.call)].positions)
                if self._targets[position].goal == number
            ]
            for number, goal in enumerate(problem.goals)
        }

    def evaluate(self, inputs: Sequence[Tensor]) -> Evaluated:
        """Return the margins of a batch of inputs, each `(batch, *shape)`, in the order of the problem's inputs."""
        with torch.no_grad():
            parts = [self._margins(chunk)[0] for chunk in self._chunks(inputs)]
        return Evaluated(parts[0] if len(parts) == 1 else torch.cat(parts))

    def losses(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the losses that descent lowers, `(batch, targets)`, differentiable in the inputs."""
        return self._margins(inputs)[1]

    def differentiate(self, inputs: Sequence[Tensor], assigned: Tensor | None, *, estimated: bool = False) -> Evaluated:
        """Return margins and gradients; those of flat functions may be `estimated`, see `Estimates`.

        Each start has a target assigned, or descends on the least of its losses.
        """
        if len(inputs[0]) <= self._limit:
            return self._differentiate(inputs, assigned, estimated=estimated)
        indices = None if assigned is None else assigned.split(self._limit)
        parts = [
            self._differentiate(chunk, None if indices is None else indices[i], estimated=estimated)
            for i, chunk in enumerate(self._chunks(inputs))
        ]
        columns = zip(*(part.gradients for part in parts), strict=True)
        gradients = tuple(None if c[0] is None else torch.cat([g for g in c if g is not None]) for c in columns)
        return Evaluated(torch.cat([part.margins for part in parts]), gradients, any(part.estimated for part in parts))

    def _differentiate(self, inputs: Sequence[Tensor], assigned: Tensor | None, *, estimated: bool) -> Evaluated:
        leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
        estimates = Estimates()
        with estimates if estimated else nullcontext():
            margins, losses = self._margins(leaves)
        if losses.shape[1] == 1:
            chosen = losses
        else:
            chosen = losses.amin(1) if assigned is None else losses.gather(1, assigned[:, None])
        floating = [x for x in leaves if x.requires_grad]
        if not floating or not chosen.requires_grad:
            return Evaluated(margins.detach(), tuple(None for _ in leaves))
        # A sum, because torch imports sympy, for 0.7 seconds, as soon as it is given the gradients of a tensor.
        found = iter(torch.autograd.grad(chosen.sum(), floating, allow_unused=True))
        gradients = tuple(next(found) if x.requires_grad else None for x in leaves)
        return Evaluated(margins.detach(), gradients, estimates.used)

    def _chunks(self, inputs: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
        parts = chunks(inputs, self._limit)
        for part in parts:
            if len(parts) > 1:
                self._between()
            yield part

    def _margins(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return margins and losses, each `(batch, targets)`."""
        env = {v.name: x for v, x in zip(self._problem.inputs, inputs, strict=True)}
        wanted = self._by_clause or bool(self._problem.penalty_names)
        run = _Run(self._problem, self._batched, self._columns, outputs=wanted)
        if self._by_clause:
            found = self._problem.margins(env, run, quick=True)
            return _add_penalties(found.clauses, found.loss, found.penalties)
        columns = run.target_margins(env, len(self._targets))
        if not self._problem.penalty_names:
            return columns, columns
        return _add_penalties(columns, columns, self._problem.margins(env, run).penalties)


def _add_penalties(margins: Tensor, losses: Tensor, penalties: Tensor) -> tuple[Tensor, Tensor]:
    """Count a violation only where the side conditions hold, and descend towards them where they do not."""
    if penalties.shape[1] == 0:
        return margins, losses
    missing = (-penalties).clamp_min(0)
    met = (penalties >= 0).all(1, keepdim=True)
    apart = missing.sum(1, keepdim=True).to(losses.dtype)
    return torch.where(met, margins, margins.abs() + 1), losses.clamp_min(0) + apart


class _Run:
    """One evaluation of a problem's networks on a batch; values that several expressions share are computed once."""

    def __init__(
        self,
        problem: Problem,
        batched: Mapping[int, BatchedModel],
        columns: Mapping[int, Sequence[int]],
        *,
        outputs: bool,
    ) -> None:
        self._problem = problem
        self._batched = batched
        self._columns = columns
        self._outputs = outputs
        self._done: dict[int, tuple[tuple[Tensor, ...], Tensor | None]] = {}

    def outputs(self, call: NetworkCall, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """See `Evaluator.outputs`."""
        return self._of(call, arguments, outputs=True)[0]

    def validity(self, goal: ValidityGoal, arguments: tuple[Tensor, ...]) -> Tensor:
        """See `Evaluator.validity`."""
        margins = self._of(goal.call, arguments)[1]
        columns = self._columns[id(goal)]
        if margins is None or not columns:
            return torch.full((max(map(len, arguments)),), torch.inf, dtype=torch.float64, device=arguments[0].device)
        return (margins if len(columns) == margins.shape[1] else margins[:, columns]).amin(1)

    def target_margins(self, env: Mapping[str, Tensor], count: int) -> Tensor:
        """Return the margin of every target, `(batch, targets)`."""
        columns: list[Tensor] = [torch.empty(0)] * count
        # All arguments first, because they need the outputs of the networks inside them.
        calls = [(call, self._problem.arguments(call, env, self)) for call in self._problem.calls]
        for call, arguments in calls:
            margins = self._of(call, arguments)[1]
            if margins is not None:
                for position, column in zip(self._batched[id(call)].positions, margins.unbind(1), strict=True):
                    columns[position] = column
        return torch.stack(columns, dim=1)

    def _of(
        self, call: NetworkCall, arguments: tuple[Tensor, ...], *, outputs: bool = False
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        done = self._done.get(id(call))
        if done is None or (outputs and not done[0]):
            batched = self._batched[id(call)]
            inputs = batched.select(call.graph, arguments)
            done = self._done[id(call)] = batched.run(inputs, outputs=outputs or self._outputs)
        return done
