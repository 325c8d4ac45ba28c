"""One evaluation of terms on a batch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ranum_falsify.network.tensors import torch_dtype
from ranum_falsify.properties.formula.applications import Evaluator, NetworkCall, ValidityGoal
from ranum_falsify.properties.formula.terms import Term


class Frame:
    """The values of one evaluation, each computed once."""

    def __init__(self, env: Mapping[str, Tensor], evaluator: Evaluator | None) -> None:
        self.env = env
        self._evaluator = evaluator
        self._values: dict[int, Tensor] = {}
        self._calls: dict[int, tuple[Tensor, ...]] = {}
        first = next(iter(env.values()))
        self.batch = first.shape[0]
        self.device = first.device

    @property
    def evaluator(self) -> Evaluator:
        """What runs the networks."""
        assert self._evaluator is not None, "only terms without networks can be evaluated without an evaluator"
        return self._evaluator

    def value(self, term: Term) -> Tensor:
        """Return a term's value `(batch, *term.shape)`, or `(1, *term.shape)` where it is constant."""
        key = id(term)
        if key not in self._values:
            self._values[key] = term.compute(self)
        return self._values[key]

    def arguments(self, call: NetworkCall) -> tuple[Tensor, ...]:
        """Return the arguments of an application in the graph's input dtypes."""
        tensors = []
        for argument, details in zip(call.arguments, call.graph.input_details, strict=True):
            if argument.variable_name is not None:
                tensors.append(self.env[argument.variable_name])
            else:
                tensors.append(self.value(argument).to(torch_dtype(details.dtype)))
        batched = [tensor.shape[0] != 1 for tensor in tensors]
        if any(batched):
            tensors = [t if t.shape[0] != 1 else t.expand(self.batch, *t.shape[1:]) for t in tensors]
        return tuple(tensors)

    def outputs(self, call: NetworkCall) -> tuple[Tensor, ...]:
        """Return the outputs of an application, evaluated once."""
        key = id(call)
        if key not in self._calls:
            self._calls[key] = tuple(self.evaluator.outputs(call, self.arguments(call)))
        return self._calls[key]

    def validity(self, goal: ValidityGoal) -> Tensor:
        """Return the margin `(batch,)` of a validity goal in float64."""
        key = id(goal)
        if key not in self._values:
            margin = self.evaluator.validity(goal, self.arguments(goal.call)).to(torch.float64)
            self._values[key] = margin.expand(self.batch)
        return self._values[key]
