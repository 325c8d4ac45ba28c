"""Many boxes in batches: linear bounds of all of them go through the steps of the analysis of their hull."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.branch_and_bound import bound_parts
from ranum_falsify.domain.rounding import flush
from ranum_falsify.network.tensors import torch_dtype
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.verify.prove.analyses import Analyses, make_linear
from ranum_falsify.verify.prove.applications import Applications
from ranum_falsify.verify.prove.term_bounds import BoundsFrame

_WORK = 2e8
"""Multiplications for linear bounds of the hull."""

_MOST_ELEMENTS = 4096
"""Elements of all tensors of a network; in larger ones, boxes have little in common but their number."""

Parts = Mapping[str, tuple[Tensor, Tensor]]
"""Lower and upper bounds `(boxes, *shape)` of each input variable."""


class LinearBatches:
    """Linear bounds of the outputs of the only application of a problem, over many parts of a box."""

    def __init__(self, known: Applications) -> None:
        self._known = known
        self._linear = self._analyse()

    @property
    def is_usable(self) -> bool:
        """Whether there are such bounds."""
        return self._linear is not None

    def frames(self, parts: Parts) -> Iterator[BoundsFrame]:
        """Yield bounds of terms on parts of the box: of the network as written, and of what runs in its place."""
        assert self._linear is not None
        (call,) = self._known.problem.calls
        types = {v.name: torch_dtype(v.dtype) for v in self._known.problem.inputs}
        flushed = {name: _flush(low, high, types[name]) for name, (low, high) in parts.items()}
        count = len(next(iter(flushed.values())).low)
        for analysis in self._linear.all:
            self._known.tick()
            assert isinstance(analysis, LinearAnalysis)
            ops = analysis.graph.output_operations
            ends = [flushed[str(_variable_of(call, name))] for name in analysis.graph.input_names]
            low, high = bound_parts(analysis, ops, [(end.low, end.high) for end in ends])
            shapes = [details.shape for details in call.graph.output_details]
            sizes = [math.prod(shape) for shape in shapes]
            columns = zip(low.split(sizes, 1), high.split(sizes, 1), shapes, strict=True)
            outputs = [Enclosure(a.reshape(count, *shape), b.reshape(count, *shape)) for a, b, shape in columns]
            yield _frame(flushed, outputs)

    def _analyse(self) -> Analyses | None:
        problem = self._known.problem
        call, *more = problem.calls
        names = [v.name for v in problem.inputs]
        if more or problem.goals or sorted(map(str, call.variables)) != sorted(names):
            return None
        if any(v.dtype.kind != "f" for v in problem.inputs):
            return None
        plain = self._known.analyses_of(call)
        if plain.execution is not None and plain.executed is None:
            return None
        if any(set(a.graph.input_names) != set(call.graph.input_names) for a in plain.all):
            return None
        linear = make_linear(plain, None, work=_WORK, ascent=0.0, tick=self._known.tick)
        over = Applications(problem, self._known.graphs, lambda call: linear, self._known.box, self._known.tick)
        bounds = over.check(call).outputs
        if not over.is_sound(call) or any(x is None or not x.is_floating for x in bounds):
            return None
        return linear if all(map(_is_small, linear.all)) else None


def _is_small(analysis: IntervalAnalysis) -> bool:
    assert isinstance(analysis, LinearAnalysis)
    return sum(math.prod(variable.shape) for variable in analysis.program.variables) <= _MOST_ELEMENTS


def _frame(env: Mapping[str, Enclosure], outputs: Sequence[Enclosure]) -> BoundsFrame:
    def nothing_is_asked(goal: object) -> Tensor:
        raise AssertionError("there are no validity goals")

    return BoundsFrame(env, lambda call: outputs, nothing_is_asked)


def _variable_of(call: NetworkCall, name: str) -> str | None:
    return call.variables[call.graph.input_names.index(name)]


def _flush(low: Tensor, high: Tensor, dtype: torch.dtype) -> Enclosure:
    """Return bounds in float64 that enclose 0 where numbers are so small that kernels may take them for it."""
    x = flush(Interval(low.to(dtype), high.to(dtype), tuple(low.shape)))
    return Enclosure(*x.expand()).map(lambda end: end.double())
