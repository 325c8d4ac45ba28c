"""Violations that PyTorch does not show: many points in ONNX Runtime itself, one by one, every tensor looked at.

Networks whose samples do not keep apart along a first dimension run no other way; and of those that do, whole batches
show only what reaches an output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ranum_falsify.errors import ReplayError
from ranum_falsify.search.scan import draw_around, feeds_of_points
from ranum_falsify.search.search import Region, SearchContext
from ranum_falsify.search.starts import sample_starts

__all__ = ["find_telling"]

_POINTS = 4096
"""Points of one round."""

_ELEMENTS = 1 << 20
"""Elements of all inputs in one round."""

_SHARE = 8
"""Part of the memory for samples that the points of a round may take, one after the other: few of a large network."""

_SECONDS = 2.0
"""Time of one round, which only slow networks take."""


def find_telling(context: SearchContext, region: Region, near: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """Return points, each with a batch of 1, on which a tensor of ONNX Runtime is not finite.

    Args:
        context: The search.
        region: Where to look: everywhere, and around the points of which margins are small.
        near: These points, each one tensor with a batch of 1 per input.
    """
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
        told = context.confirmer.find_telling(
            calls[0].graph, feeds_of_points(calls[0], region, points), min(_SECONDS, context.budget.left)
        )
    except ReplayError:
        return []  # it crashes, or takes too long
    return [[x[position][None] for x in points] for position in told]
