"""Violations by the rounding of ONNX Runtime's kernels, which PyTorch does not show: many points in one run of it.

The sigmoid of one number in tens of thousands may exceed 1 by the last bit there, so that 1 - sigmoid is negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.errors import ReplayError
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.search.search import Region, SearchContext

__all__ = ["NEAR", "find_strange"]

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


def find_strange(context: SearchContext, region: Region, near: Sequence[Sequence[Tensor]]) -> Iterator[list[Tensor]]:
    """Yield points, each with a batch of 1, on which an output of ONNX Runtime is not finite.

    Args:
        context: The search.
        region: Where to look: everywhere, and around the points of which margins are small.
        near: These points, each one tensor with a batch of 1 per input.
    """
    calls = context.problem.calls
    if len(calls) != 1 or None in calls[0].variables or not context.models[0].batches:
        return
    graph, names = context.models[0].graph, [variable.name for variable in region.variables]
    if graph is not calls[0].graph:
        return
    size = sum(math.prod(variable.shape) for variable in region.variables)
    count = max(1, min(_ELEMENTS // max(size, 1), context.portion // _SHARE))
    for _ in range(_RUNS):
        if context.budget.expired:
            return
        points = [_draw(context, region, number, count, near) for number in range(len(names))]
        stacked = {name: to_numpy(x.flatten(0, 1)) for name, x in zip(names, points, strict=True)}
        feeds = {name: stacked[str(of)] for name, of in zip(graph.input_names, calls[0].variables, strict=True)}
        try:
            outputs = context.confirmer.outputs_of_batch(graph, feeds)
        except ReplayError:
            return  # some shape in the model is that of a single sample
        for position in _find_rows(outputs, count)[:_MOST]:
            yield [x[position][None] for x in points]


def _draw(context: SearchContext, region: Region, number: int, count: int, near: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return points of one input, `(count, *shape)`: half anywhere, half around known ones, at all scales."""
    box, generator = region.boxes[number], context.generator
    shape = tuple(box.lower.shape)
    anywhere = box.at(torch.rand((count - count // 2, *shape), generator=generator, dtype=torch.float64))
    centres = torch.cat([point[number].cpu() for point in near]).double()
    chosen = centres[torch.randint(len(centres), (count // 2,), generator=generator)]
    width = box.upper.double() - box.lower.double()
    scales = torch.exp2(_FINEST * torch.rand((count // 2, *[1] * len(shape)), generator=generator))
    steps = torch.randn((count // 2, *shape), generator=generator, dtype=torch.float64)
    return torch.cat([anywhere, box.find_nearest(chosen + scales * width * steps)])


def _find_rows(outputs: Sequence[np.ndarray], count: int) -> list[int]:
    """Return the samples of which an output is not finite; none where outputs are not one for each sample."""
    bad = np.zeros(count, dtype=bool)
    for y in outputs:
        if y.dtype.kind == "f" and y.shape[:1] == (count,):
            bad |= ~np.isfinite(y.reshape(count, -1)).all(1)
    return np.flatnonzero(bad).tolist()
