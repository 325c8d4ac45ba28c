"""The problem of a property: input boxes, network applications, and margins on a batch of inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.lazy import cached_property
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.properties.formula.circuit import Circuit
from ranum_falsify.properties.formula.formula import Formula, Goal, describe
from ranum_falsify.properties.formula.terms import Evaluator, Frame, NetworkCall, ValidityGoal


@dataclass(frozen=True, kw_only=True, eq=False)
class InputVariable:
    """A quantified input and the box it ranges over.

    Attributes:
        name: Name of the variable in the property.
        shape: Its shape, that of the network input it is passed to.
        dtype: The dtype of that input.
        lower: Lower bounds, of this shape and dtype, rounded inward from the property's bounds; where no value of the
            dtype lies between them, the nearest one.
        upper: Upper bounds, likewise; nowhere below `lower`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    lower: np.ndarray
    upper: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Margins:
    """Margins of a batch, in float64 (not for descent: `clauses`; for descent: `loss` and `penalties`).

    Attributes:
        clauses: `(batch, clauses)`, negative exactly where that conjunct of the property is false; without gradient.
        loss: Same shape, to be descended; 0 or less only where the clause is violated.  For a disjunction
            it is the sum of the hinges of its disjuncts, so that those already false no longer pull.
        penalties: `(batch, penalties)`, negative where a side condition that a counterexample must satisfy is not.
    """

    clauses: Tensor
    loss: Tensor
    penalties: Tensor

    @property
    def violated(self) -> Tensor:
        """`(batch,)`, whether some clause is violated and every side condition satisfied (the box aside)."""
        return (self.clauses < 0).any(-1) & (self.penalties >= 0).all(-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """A reduced property.

    Attributes:
        inputs: The quantified variables, outermost first, with the box that every counterexample lies in.
        regions: Boxes whose union holds every counterexample, each a tuple like `inputs`; more than one where the
            property bounds its inputs by a disjunction, none where no input satisfies its conditions.
        calls: The applications of networks, each once.
        goals: The validity goals, each once.
        clauses: The property's conjuncts, in the order of `Margins.clauses`.
        penalties: The side conditions, in the order of `Margins.penalties`.
        cases: Problems whose counterexamples together are those of this one, where the boxes of a disjunction come with
            conditions of their own; all have its variables, applications and goals. Then it has all their regions and
            clauses, and what decides is each case.
    """

    inputs: tuple[InputVariable, ...]
    regions: tuple[tuple[InputVariable, ...], ...]
    calls: tuple[NetworkCall, ...]
    goals: tuple[ValidityGoal, ...]
    clauses: tuple[Formula, ...] = field(repr=False)
    penalties: tuple[Formula, ...] = field(repr=False)
    cases: tuple[Problem, ...] = field(default=(), repr=False)

    @property
    def each_case(self) -> tuple[Problem, ...]:
        """The cases; the problem itself if it is the only one."""
        return self.cases or (self,)

    @cached_property
    def clause_circuit(self) -> Circuit:
        """The clauses as one circuit."""
        return Circuit(self.clauses)

    @cached_property
    def penalty_circuit(self) -> Circuit:
        """The penalties as one circuit."""
        return Circuit(self.penalties)

    @cached_property
    def clause_names(self) -> tuple[str, ...]:
        """The clauses on one line each."""
        return tuple(map(describe, self.clauses))

    @cached_property
    def penalty_names(self) -> tuple[str, ...]:
        """The penalties on one line each."""
        return tuple(map(describe, self.penalties))

    @property
    def clause_goals(self) -> tuple[ValidityGoal | None, ...]:
        """The validity goal that each clause is; None if it is another formula, such as a goal's negation."""
        return tuple(
            clause.goal if isinstance(clause, Goal) and not clause.negated else None for clause in self.clauses
        )

    @property
    def is_pure_validity(self) -> bool:
        """Whether every clause is a validity goal, on all inputs."""
        return not self.cases and all(goal is not None for goal in self.clause_goals)

    def margins(self, env: Mapping[str, Tensor], evaluator: Evaluator, *, quick: bool = False) -> Margins:
        """Evaluate on a batch; differentiable, without data-dependent control flow unless `quick`.

        Args:
            env: A tensor `(batch, *shape)` for each input variable, in its dtype.
            evaluator: Runs the networks.
            quick: Whether values may decide what is computed, which `torch.func.vmap` forbids.
        """
        frame = Frame(env, evaluator)
        clauses, loss = self.clause_circuit.losses(frame, quick=quick)
        penalties = self.penalty_circuit.margins(frame) if self.penalties else clauses.new_zeros(frame.batch, 0)
        return Margins(clauses=clauses, loss=loss, penalties=penalties)

    def arguments(self, call: NetworkCall, env: Mapping[str, Tensor], evaluator: Evaluator) -> tuple[Tensor, ...]:
        """Return what `call` is applied to, each `(batch, *input_shape)` in the graph's input dtype."""
        return Frame(env, evaluator).arguments(call)

    def contains(self, env: Mapping[str, np.ndarray]) -> bool:
        """Whether concrete inputs lie in one of the regions, compared as they are."""
        return any(
            all(bool(np.all((v.lower <= env[v.name]) & (env[v.name] <= v.upper))) for v in region)
            for region in self.regions
        )

    def holds(
        self,
        env: Mapping[str, np.ndarray],
        run: Callable[[NetworkCall, tuple[np.ndarray, ...]], Sequence[np.ndarray]],
        valid: Callable[[ValidityGoal, tuple[np.ndarray, ...]], bool] | None = None,
    ) -> bool:
        """Whether concrete inputs satisfy the property: false is a counterexample.

        Values are compared in float64, as they are; an input outside the box satisfies the property.

        Args:
            env: An array of its shape and dtype for each input variable.
            run: Runs one application on arrays of the input shapes, such as on ONNX Runtime.
            valid: Decides a validity goal; needed if the property has one.
        """
        if self.cases:
            return all(case.holds(env, run, valid) for case in self.cases)
        if not self.contains(env):
            return True
        tensors = {v.name: to_torch(np.asarray(env[v.name], dtype=v.dtype)[None]) for v in self.inputs}
        with torch.no_grad():
            return not bool(self.margins(tensors, _Concrete(run, valid)).violated.item())


@dataclass(frozen=True)
class _Concrete:
    """An evaluator of single arrays."""

    run: Callable[[NetworkCall, tuple[np.ndarray, ...]], Sequence[np.ndarray]]
    valid: Callable[[ValidityGoal, tuple[np.ndarray, ...]], bool] | None

    def outputs(self, call: NetworkCall, arguments: tuple[Tensor, ...]) -> list[Tensor]:
        arrays = tuple(to_numpy(argument[0]) for argument in arguments)
        return [to_torch(np.asarray(output))[None] for output in self.run(call, arrays)]

    def validity(self, goal: ValidityGoal, arguments: tuple[Tensor, ...]) -> Tensor:
        if self.valid is None:
            raise ValueError("a property with a validity goal needs `valid`")
        holds = self.valid(goal, tuple(to_numpy(argument[0]) for argument in arguments))
        return torch.tensor([1.0 if holds else -1.0], dtype=torch.float64)
