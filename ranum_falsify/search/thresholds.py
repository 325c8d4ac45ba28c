"""Starting points on either side of thresholds: where operators jump, no slope leads from one side to the other.

The features that a tree compares are functions of the inputs, such as scaled columns.  The inputs move together from
one end of the box to the other, and where a feature then passes a threshold, its own input stands in place.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network import Graph, spec_of
from ranum_falsify.search.starts import Box

__all__ = ["Crossings", "find_crossings", "sample_crossings"]

_GRID = 33
"""Points at which the features are computed; between them they count as lines."""

Crossings = dict[int, list[float]]
"""For elements of all inputs, numbered through: shares of the way through the box at which a threshold is met."""


def find_crossings(graph: Graph, boxes: Sequence[Box]) -> Crossings:
    """Return where inputs stand when the features of the graph's operators meet their thresholds.

    Args:
        graph: The network.
        boxes: Bounds of its inputs, in order.
    """
    total = sum(box.lower.numel() for box in boxes)
    found: Crossings = {}
    for op in graph.nodes:
        spec = spec_of(op)
        if spec.thresholds is None:
            continue
        operand = spec.operands_of(op)[0]
        if not isinstance(operand, Operation):
            continue
        features = _evaluate(graph.cut_after([operand]), boxes)
        if features.shape[1] != total:
            continue  # which input a feature is made of is not clear
        for feature, values in spec.thresholds(op).items():
            for row in range(feature, total, max(1, graph.details_of(operand).shape[-1])):
                found.setdefault(row, []).extend(_meet(features[:, row], values))
    return {row: shares for row, shares in found.items() if shares}


def _evaluate(graph: Graph, boxes: Sequence[Box]) -> Tensor:
    """Return the elements of a graph's output at points on the way through the box, `(points, elements)`."""
    rows = []
    with torch.no_grad():
        for share in torch.linspace(0, 1, _GRID, dtype=torch.float64):
            inputs = [box.at(share.expand(1, *box.lower.shape))[0] for box in boxes]
            rows.append(graph.evaluate(inputs)[0].double().reshape(-1))
    return torch.stack(rows)


def _meet(feature: Tensor, values: Sequence[float]) -> list[float]:
    limits = torch.tensor(values, dtype=torch.float64)
    before, after = feature[:-1, None], feature[1:, None]
    met = (torch.minimum(before, after) <= limits) & (limits < torch.maximum(before, after))
    position = torch.arange(_GRID - 1)[:, None]
    shares = (position + (limits - before) / (after - before)) / (_GRID - 1)
    return shares[met].tolist()


def sample_crossings(
    crossings: Crossings, boxes: Sequence[Box], count: int, generator: torch.Generator
) -> list[Tensor]:
    """Return points whose elements stand half way between neighbouring thresholds, or at one.

    Between its thresholds an operator is constant, so each of its values is taken at such points.

    Returns:
        One tensor of shape `(count, *shape)` per box.
    """
    sizes = [box.lower.numel() for box in boxes]
    shares = torch.rand((count, sum(sizes)), generator=generator, dtype=torch.float64)
    for row, known in crossings.items():
        ends = torch.tensor([0.0, *sorted(set(known)), 1.0], dtype=torch.float64)
        middles = (ends[1:] + ends[:-1]) / 2
        # Every fourth point stands at a threshold, where a comparison may include it or not.
        places = torch.cat([middles.repeat(3), ends[: len(middles)]])
        shares[:, row] = places[torch.randint(len(places), (count,), generator=generator)]
    parts = shares.split(sizes, 1)
    return [box.at(part.reshape(count, *box.lower.shape)) for box, part in zip(boxes, parts, strict=True)]
