"""Common parts of both searches: boxes, budget, randomness, and the candidates with the most promising first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.config import SearchConfig
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.process.deadline import Deadline, OutOfTime
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.properties.problem.targets import Target, targets_of
from ranum_falsify.verify.prove.proof import NOTHING, Proof
from ranum_falsify.verify.replay.confirmer import Confirmer
from ranum_falsify.verify.search.converter import TorchModel
from ranum_falsify.verify.search.descent import Descent, StepSizes
from ranum_falsify.verify.search.device import batch_limit, bytes_per_sample
from ranum_falsify.verify.search.objective import Objective
from ranum_falsify.verify.search.result import OperatorResult
from ranum_falsify.verify.search.starts import Box, Crossings, find_crossings, sample_crossings, sample_starts

_PORTION_BYTES = 1 << 30
"""Memory of the samples that are evaluated at once where no gradients are needed."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is.

    Attributes:
        stage: What is going on, such as `prove` or `search`.
        done: Share of the work done, 0 to 1.
        text: What a user may want to see beside the bar.
    """

    stage: str
    done: float
    text: str = ""


@dataclass
class Budget:
    """Time left and work done."""

    deadline: Deadline
    began: float = field(default_factory=time.monotonic)
    steps: int = 0
    starts: int = 0
    replay_seconds: float = 0.0
    prove_seconds: float = 0.0

    @property
    def expired(self) -> bool:
        """Whether the timeout has passed."""
        return self.deadline.has_passed

    @property
    def left(self) -> float:
        """Seconds until the timeout, at least 0."""
        return self.deadline.left

    def check(self) -> None:
        """Do nothing while there is time left; else raise `OutOfTime`."""
        self.deadline.check()

    @contextmanager
    def end_within(self, seconds: float) -> Iterator[None]:
        """End the block after some seconds, as the timeout would end it."""
        whole = self.deadline
        self.deadline = whole.within(seconds)
        try:
            yield
        except OutOfTime:
            whole.check()
        finally:
            self.deadline = whole

    @contextmanager
    def time_proof(self) -> Iterator[None]:
        """Count the time of a proof."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.prove_seconds += time.monotonic() - began


@dataclass(frozen=True)
class Region:
    """A box of the problem or of a case of it, by its position: on the CPU for sampling, and on the search's device."""

    number: int
    problem: Problem
    variables: tuple[InputVariable, ...]
    boxes: tuple[Box, ...]
    device_boxes: tuple[Box, ...]

    @classmethod
    def of(cls, number: int, problem: Problem, variables: Sequence[InputVariable], device: torch.device) -> Region:
        """Return a region of the given variables' bounds."""
        boxes = tuple(Box(to_torch(v.lower), to_torch(v.upper)) for v in variables)
        moved = tuple(Box(box.lower.to(device), box.upper.to(device)) for box in boxes)
        return cls(number, problem, tuple(variables), boxes, moved)


@dataclass
class SearchContext:
    """What a search works with.

    `refute` tells why what PyTorch shows of the graph is not counted, None if it is.
    """

    problem: Problem
    config: SearchConfig
    models: Sequence[TorchModel]
    confirmer: Confirmer
    budget: Budget
    device: torch.device
    report: Callable[[Progress], None]
    refute: Callable[[OperatorResult], str | None] = lambda _: None
    proof: Proof = NOTHING
    suspects: dict[int, Sequence[Tensor]] = field(default_factory=dict)
    is_hurried: bool = field(default=False, init=False)
    """Whether a round has so few starts that they make all their steps before the time is up."""
    estimable: int = field(default=0, init=False)
    """Descents so far that could follow estimates of derivatives."""
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.config.seed)
        self._crossings: dict[int, Crossings] = {}
        self._bytes = bytes_per_sample([call.graph for call in self.problem.calls])

    @property
    def sample_limit(self) -> int:
        """How many samples run at once."""
        return batch_limit(self._bytes, self.device)

    @property
    def varies(self) -> bool:
        """Whether there is more than one input."""
        return any(bool((v.lower < v.upper).any()) for case in self.problem.each_case for r in case.regions for v in r)

    @property
    def portion(self) -> int:
        """Samples to evaluate before looking again at the clock and at what was found."""
        return max(1, _PORTION_BYTES // self._bytes)

    def model_of(self, call: NetworkCall) -> TorchModel:
        """Return the module that runs an application; in it, inputs that it lacks are constants."""
        return next(m for c, m in zip(self.problem.calls, self.models, strict=True) if c is call)

    def targets(self) -> list[Target]:
        """Return the targets of all validity goals, proved ones too."""
        goals = enumerate(self.problem.goals)
        return [t for number, goal in goals for t in targets_of(number, goal, self.model_of(goal.call).graph)]

    def is_proved(self, target: Target) -> bool:
        """Tell whether there is nothing to find for a target."""
        return self.proof.proves(target.goal, target.op.name)

    def regions(self) -> Iterator[Region]:
        """Yield the boxes that may hold counterexamples."""
        boxes = [(case, variables) for case in self.problem.each_case for variables in case.regions]
        for number, (case, variables) in enumerate(boxes):
            if number not in self.proof.held_regions:
                yield Region.of(number, case, variables, self.device)

    def objective(
        self, targets: Sequence[Target], *, by_clause: bool = False, problem: Problem | None = None
    ) -> Objective:
        """Return an objective over the problem's networks, or over those of one of its cases."""
        return Objective(
            problem or self.problem,
            self.models,
            targets,
            by_clause=by_clause,
            limit=self.sample_limit,
            between=self.budget.check,
        )

    def starts(self, region: Region, count: int, *, first: bool) -> list[Tensor]:
        """Return starting points on the search's device; the first ones for a region include the proof's suspects."""
        self.budget.starts += count
        starts = [x.to(self.device) for x in sample_starts(region.boxes, count, self.generator, first=first)]
        starts = self.insert_points(region, starts, self._sample_crossings(region, count // 4))
        return self.insert_points(region, starts, self.suspects.pop(region.number, ()))

    def _sample_crossings(self, region: Region, count: int) -> Sequence[Tensor]:
        """Return points at thresholds of a network's operators; none where it takes other inputs than the region's."""
        graph = self.models[0].graph if self.models else None
        shapes = [tuple(box.lower.shape) for box in region.boxes]
        if graph is None or not count or [details.shape for details in graph.input_details] != shapes:
            return ()
        if region.number not in self._crossings:
            self._crossings[region.number] = find_crossings(graph, region.boxes)
        crossings = self._crossings[region.number]
        return sample_crossings(crossings, region.boxes, count, self.generator) if crossings else ()

    def insert_points(self, region: Region, starts: list[Tensor], points: Sequence[Tensor]) -> list[Tensor]:
        """Put known points `(number, *shape)`, one tensor per input, in place of the last starts."""
        if not points:
            return starts
        count = min(len(points[0]), len(starts[0]) // 2)
        placed = (
            box.find_nearest(x[:count].cpu().double()).to(self.device)
            for box, x in zip(region.boxes, points, strict=True)
        )
        return [torch.cat([x[: len(x) - count], point]) for x, point in zip(starts, placed, strict=True)]

    def arrays(self, inputs: Sequence[Tensor], position: int) -> dict[str, np.ndarray]:
        """Return one sample of a batch as arrays by variable name."""
        return {v.name: to_numpy(x[position]).copy() for v, x in zip(self.problem.inputs, inputs, strict=True)}


Visit = Callable[[Tensor, Sequence[Tensor]], bool]
"""Sees margins and inputs after each evaluation; returns whether to stop."""


def descend(
    context: SearchContext,
    objective: Objective,
    region: Region,
    starts: Sequence[Tensor],
    assigned: Tensor | None,
    visit: Visit,
    *,
    steps: int | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Descend from a batch of starts, `(batch, *shape)` per input; return margins and inputs of the last evaluation.

    Each start has a target assigned, or descends on the least of its losses.  `visit` sees each evaluation; the number
    of steps is that of the configuration by default.
    """
    descent = Descent(region.device_boxes, starts, StepSizes(), context.generator)
    total = context.config.n_steps if steps is None else steps
    estimated = False
    for done in range(total + 1):
        began = time.monotonic()
        found = objective.differentiate(descent.inputs, assigned, estimated=estimated)
        if done == 0 and _follows_estimates(context, objective, descent.inputs, assigned, found.gradients):
            estimated = True
            found = objective.differentiate(descent.inputs, assigned, estimated=True)
        if visit(found.margins, descent.inputs) or context.budget.expired or done == total:
            break
        if done == 0 and context.is_hurried:
            kept = _choose_affordable(
                found.margins, context.budget.left / max(1e-9, (time.monotonic() - began) * total)
            )
            starts, assigned = [x[kept] for x in descent.inputs], None if assigned is None else assigned[kept]
            descent = Descent(region.device_boxes, starts, StepSizes(), context.generator)
            found = found.keep(kept)
        descent.step(found.gradients)
        context.budget.steps += 1
        if done % 10 == 9:
            _resample_stuck(context, region, descent, found.gradients)
    return found.margins, list(descent.inputs)


_FEWEST = 8
"""Starts that are kept however long their steps take."""


def _choose_affordable(margins: Tensor, share: float) -> Tensor:
    """Return the positions of the starts that come nearest to a violation: a share of all, in their order."""
    count = max(_FEWEST, int(share * len(margins)))
    if count >= len(margins):
        return torch.arange(len(margins), device=margins.device)
    return margins.amin(1).topk(count, largest=False).indices.sort().values


_PROBED = 8
"""Starts that show whether a network has flat functions."""


def _follows_estimates(
    context: SearchContext,
    objective: Objective,
    inputs: Sequence[Tensor],
    assigned: Tensor | None,
    gradients: Sequence[Tensor | None],
) -> bool:
    """Tell whether to descend along estimates: where flat functions leave no slope, and else every other time."""
    few = [x[:_PROBED] for x in inputs]
    if not objective.differentiate(few, None if assigned is None else assigned[:_PROBED], estimated=True).estimated:
        return False
    context.estimable += 1
    return bool(_find_stuck(gradients, len(inputs[0])).all()) or context.estimable % 2 == 0


_MOST_VERTICES = 32
"""Targets whose worst vertex is tried."""


def find_worst_vertices(objective: Objective, region: Region, targets: int) -> list[Tensor]:
    """Return the vertices of a box that lie downhill from its centre, `(targets, *shape)` for the first targets."""
    count = min(targets, _MOST_VERTICES)
    centre = [box.at(torch.full_like(box.lower, 0.5, dtype=torch.float64)[None]) for box in region.device_boxes]
    inputs = [x.expand(count, *x.shape[1:]) for x in centre]
    return find_downhill_vertices(objective, region, inputs, torch.arange(count, device=inputs[0].device))


def find_downhill_vertices(
    objective: Objective, region: Region, points: Sequence[Tensor], assigned: Tensor | None
) -> list[Tensor]:
    """Return the vertex of a box that lies downhill from each point; where there is no slope, its own elements.

    Points are `(batch, *shape)` per input; without a target assigned, the least loss of each decreases downhill.
    """
    found = objective.differentiate(points, assigned)
    if bool(_find_stuck(found.gradients, len(points[0])).all()):
        found = objective.differentiate(points, assigned, estimated=True)
    return [
        x if g is None else torch.where(g > 0, box.lower, torch.where(g < 0, box.upper, x))
        for x, g, box in zip(points, found.gradients or [None] * len(points), region.device_boxes, strict=True)
    ]


def _resample_stuck(
    context: SearchContext, region: Region, descent: Descent, gradients: Sequence[Tensor | None]
) -> None:
    """Move starts without any gradient to new places."""
    stuck = _find_stuck(gradients, len(descent.inputs[0])).to(context.device)
    if bool(stuck.any()):
        descent.replace(stuck, context.starts(region, len(stuck), first=False))


def _find_stuck(gradients: Sequence[Tensor | None], count: int) -> Tensor:
    """Return which of some starts have no gradient, `(count,)`."""
    sizes = [g.abs().reshape(len(g), -1).amax(1) for g in gradients if g is not None and g.numel()]
    if not sizes:
        return torch.ones(count, dtype=torch.bool)
    return ~(torch.stack(sizes).nan_to_num(nan=0.0).amax(0) > 0)
