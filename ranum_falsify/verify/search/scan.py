"""Violations that PyTorch does not show: many points in ONNX Runtime, in one run, or one by one with every tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.errors import ReplayError
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.verify.search.search import Region, SearchContext
from ranum_falsify.verify.search.starts import Box, sample_starts, sample_uniform

NEAR = 1e-5
"""A margin below this may be one that rounding makes negative."""

_ELEMENTS = 1 << 20
"""Elements of all inputs in one run."""

_RUNS = 2

_SHARE = 8
"""Part of the memory for samples that one run takes: the share that a slow network gets of the time of a round."""

_FINEST = -24.0
"""Binary logarithm of the least distance, relative to the width of the box, at which points are drawn."""

_MOST = 4
"""Points of one run that are worth a replay."""


def find_runtime_only(
    context: SearchContext, region: Region, near: Sequence[Sequence[Tensor]]
) -> Iterator[list[Tensor]]:
    """Yield points, each with a batch of 1, on which an output of ONNX Runtime is not finite.

    They lie everywhere in the region, and around those points, each with a batch of 1, of which margins are small.
    """
    calls, models = context.problem.calls, context.models
    if len(calls) != 1 or None in calls[0].variables or not models[0].batches or models[0].graph is not calls[0].graph:
        return
    size = sum(math.prod(variable.shape) for variable in region.variables)
    count = max(1, min(_ELEMENTS // max(size, 1), context.portion // _SHARE))
    for _ in range(_RUNS):
        if context.budget.expired:
            return
        around = draw_around(context, region, near, count // 2)
        anywhere = (sample_uniform(box, count - count // 2, context.generator) for box in region.boxes)
        points = [torch.cat(pair) for pair in zip(anywhere, around, strict=True)]
        feeds = {name: x.reshape(-1, *x.shape[2:]) for name, x in feeds_of_points(calls[0], region, points).items()}
        try:
            outputs = context.confirmer.outputs_of_batch(calls[0].graph, feeds)
        except ReplayError:
            return  # some shape in the model is that of a single sample
        for position in _find_rows(outputs, count)[:_MOST]:
            yield [x[position][None] for x in points]


def draw_around(context: SearchContext, region: Region, near: Sequence[Sequence[Tensor]], count: int) -> list[Tensor]:
    """Return points around known ones, at all scales: `(count, *shape)` per input."""
    generator = context.generator
    chosen = torch.randint(len(near), (count,), generator=generator)
    scales = torch.exp2(_FINEST * torch.rand(count, generator=generator))
    return [
        _move(box, torch.cat([point[number].cpu() for point in near])[chosen], scales, generator)
        for number, box in enumerate(region.boxes)
    ]


def _move(box: Box, points: Tensor, scales: Tensor, generator: torch.Generator) -> Tensor:
    """Return points moved at random, each by a share of the box's width."""
    steps = torch.randn(points.shape, generator=generator, dtype=torch.float64)
    width = box.upper.double() - box.lower.double()
    return box.find_nearest(points.double() + scales.reshape(-1, *[1] * box.lower.dim()) * width * steps)


def feeds_of_points(call: NetworkCall, region: Region, points: Sequence[Tensor]) -> dict[str, np.ndarray]:
    """Return the feeds of a network that takes variables as they are, by ONNX input name, `(count, *shape)` each."""
    arrays = {variable.name: to_numpy(x) for variable, x in zip(region.variables, points, strict=True)}
    return {name: arrays[str(of)] for name, of in zip(call.graph.input_names, call.variables, strict=True)}


def _find_rows(outputs: Sequence[np.ndarray], count: int) -> list[int]:
    """Return the samples of which an output is not finite; none where outputs are not one for each sample."""
    bad = np.zeros(count, dtype=bool)
    for y in outputs:
        if y.dtype.kind == "f" and y.shape[:1] == (count,):
            bad |= ~np.isfinite(y.reshape(count, -1)).all(1)
    return np.flatnonzero(bad).tolist()


_POINTS = 4096
"""Points of one round."""

_SECONDS = 2.0
"""Time of one round, which only slow networks take."""


def find_revealing(context: SearchContext, region: Region, near: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """Return such points on which any tensor of ONNX Runtime is not finite; see `find_runtime_only`."""
    calls = context.problem.calls
    if len(calls) != 1 or None in calls[0].variables:
        return []
    size = sum(math.prod(variable.shape) for variable in region.variables)
    count = max(1, min(_POINTS, _ELEMENTS // max(size, 1), context.portion // _SHARE))
    points = sample_starts(region.boxes, count - count // 2 if near else count, context.generator, first=False)
    if near:
        around = draw_around(context, region, near, count // 2)
        # They take turns, so that both come first where time is short.
        order = torch.randperm(count, generator=context.generator)
        points = [torch.cat(pair)[order] for pair in zip(points, around, strict=True)]
    try:
        told = context.confirmer.find_revealing(
            calls[0].graph, feeds_of_points(calls[0], region, points), min(_SECONDS, context.budget.left)
        )
    except ReplayError:
        return []  # it crashes, or takes too long
    return [[x[position][None] for x in points] for position in told]
