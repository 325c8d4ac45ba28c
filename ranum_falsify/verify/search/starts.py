"""Starting points: a portfolio of shapes at which real defects lie, and uniform points between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.order import SIGNED
from ranum_falsify.network import Graph, spec_of


@dataclass(frozen=True)
class Box:
    """Bounds of one input variable, in its shape and dtype."""

    lower: Tensor
    upper: Tensor

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the variable."""
        return self.lower.dtype

    def at(self, fractions: Tensor) -> Tensor:
        """Return points inside the box, at fractions in [0, 1] of the way from lower to upper, `(batch, *shape)`."""
        lower, upper = self.lower.double(), self.upper.double()
        return self.find_nearest(lower * (1 - fractions) + upper * fractions)

    def find_nearest(self, values: Tensor) -> Tensor:
        """Return values (float64, shape `(batch, *shape)`) as elements of the box, integers rounded."""
        if self.dtype.is_floating_point:
            return self.project(values.to(self.dtype))
        values = values.round()
        lower, upper = self.lower.double(), self.upper.double()
        # The greatest integers of 64 bits round up in float64, out of their type.
        return self.project(torch.where(values >= upper, self.upper, values.clamp(lower, upper).to(self.dtype)))

    def project(self, x: Tensor) -> Tensor:
        """Return the nearest points of the box."""
        if self.dtype is torch.bool:
            return (x | self.lower) & self.upper
        if signed := SIGNED.get(self.dtype):
            # With the highest bit flipped, signed integers have the order of the unsigned ones of the same bits.
            flip = torch.iinfo(signed).min
            x, lower, upper = (value.view(signed) ^ flip for value in (x, self.lower, self.upper))
            return (torch.maximum(torch.minimum(x, upper), lower) ^ flip).view(self.dtype)
        return torch.maximum(torch.minimum(x, self.upper), self.lower)


Sampler = Callable[[Box, int, torch.Generator], Tensor]


def _rand(box: Box, count: int, generator: torch.Generator) -> Tensor:
    return torch.rand((count, *box.lower.shape), generator=generator, dtype=torch.float64)


def _one_each(box: Box, count: int) -> tuple[int, ...]:
    return (count, *([1] * box.lower.dim()))


def sample_uniform(box: Box, count: int, generator: torch.Generator) -> Tensor:
    """Return points anywhere in a box."""
    return box.at(_rand(box, count, generator))


def _corners(box: Box, count: int, generator: torch.Generator) -> Tensor:
    return box.at((_rand(box, count, generator) < 0.5).double())


def _constants(box: Box, count: int, generator: torch.Generator) -> Tensor:
    """All elements equal, half of them to dyadic values, whose mean is computed exactly."""
    low, high = box.lower.double().min(), box.upper.double().max()
    share = torch.rand(_one_each(box, count), generator=generator, dtype=torch.float64)
    values = low * (1 - share) + high * share
    # Halves, because the width of a box of float64 can overflow.
    grid = torch.exp2(torch.floor(torch.log2((high / 2 - low / 2).clamp_min(1e-30))) - 1)
    values[::2] = torch.round(values[::2] / grid) * grid
    return box.find_nearest(values.expand(count, *box.lower.shape))


def _grid(box: Box, count: int, generator: torch.Generator) -> Tensor:
    """Few distinct values, so that differences of elements cancel exactly."""
    return box.at(torch.round(_rand(box, count, generator) * 4) / 4)


def _sparse(box: Box, count: int, generator: torch.Generator) -> Tensor:
    """All elements 0, or the nearest value to it, except a few."""
    zero = torch.zeros(_one_each(box, count), dtype=torch.float64)
    keep = torch.rand(_one_each(box, count), generator=generator, dtype=torch.float64) * 0.2
    points = sample_uniform(box, count, generator).double()
    return box.find_nearest(torch.where(_rand(box, count, generator) < keep, points, zero))


def _log_uniform(box: Box, count: int, generator: torch.Generator) -> Tensor:
    """Magnitudes spread evenly over the decades below the bounds; those of the last are the smallest normal number."""
    size = torch.maximum(box.lower.double().abs(), box.upper.double().abs())
    shrunk = size * torch.pow(10.0, -8 * torch.rand(_one_each(box, count), generator=generator, dtype=torch.float64))
    sign = torch.where(_rand(box, count, generator) < 0.5, -1.0, 1.0)
    points = sign * shrunk * _rand(box, count, generator)
    if box.dtype.is_floating_point:
        points[-1] = torch.where(box.upper > 0, 1.0, -1.0) * torch.finfo(box.dtype).tiny
    return box.find_nearest(points)


def _lowest(box: Box) -> Tensor:
    """All lower bounds; where that is 0, which is a point of its own, the smallest normal number."""
    if not box.dtype.is_floating_point:
        return box.lower[None]
    return box.project(torch.where(box.lower == 0, torch.finfo(box.dtype).tiny, box.lower)[None])


_DETERMINISTIC: tuple[Callable[[Box], Tensor], ...] = (
    lambda box: box.find_nearest(torch.zeros_like(box.lower, dtype=torch.float64)[None]),
    lambda box: box.at(torch.full_like(box.lower, 0.5, dtype=torch.float64)[None]),
    _lowest,
    lambda box: box.at(torch.ones_like(box.lower, dtype=torch.float64)[None]),
)

_PORTFOLIO: tuple[tuple[Sampler, float], ...] = (
    (sample_uniform, 0.5),
    (_corners, 0.15),
    (_constants, 0.1),
    (_grid, 0.05),
    (_sparse, 0.1),
    (_log_uniform, 0.1),
)


def sample_starts(boxes: Sequence[Box], count: int, generator: torch.Generator, *, first: bool = True) -> list[Tensor]:
    """Return starting points, `(count, *shape)` per box, all on the CPU whatever the device of the search.

    The kind of point is drawn independently for each input, so that a special value of one meets ordinary ones of
    another.  The `first` ones include the fixed points: zero, centre, all lower bounds, all upper bounds.
    """
    return [_sample(box, count, generator, first=first, shuffle=len(boxes) > 1) for box in boxes]


def _sample(box: Box, count: int, generator: torch.Generator, *, first: bool, shuffle: bool) -> Tensor:
    if box.lower.numel() == 0:
        return box.lower.expand(count, *box.lower.shape).clone()
    fixed = [point(box) for point in _DETERMINISTIC[:count]] if first else []
    left = count - len(fixed)
    sizes = [int(left * share) for _, share in _PORTFOLIO]
    sizes[0] += left - sum(sizes)
    drawn = [draw(box, size, generator) for (draw, _), size in zip(_PORTFOLIO, sizes, strict=True) if size]
    if shuffle and drawn:
        rest = torch.cat(drawn)
        drawn = [rest[torch.randperm(len(rest), generator=generator)]]
    return torch.cat([*fixed, *drawn])


def mix(x: Tensor, parent: Tensor, generator: torch.Generator) -> Tensor:
    """Replace half of the samples, chosen at random, by a known one."""
    keep = torch.rand(len(x), generator=generator).to(x.device) < 0.5
    return torch.where(keep.reshape(-1, *([1] * (x.dim() - 1))), x, parent)


def replace_row(x: Tensor, position: int, row: Tensor) -> Tensor:
    """Put another sample in the place of one."""
    return torch.cat([x[:position], row, x[position + 1 :]])


_GRID = 33
"""Points at which the features are computed; between them they count as lines."""

Crossings = dict[int, list[float]]
"""For elements of all inputs, numbered through: shares of the way through the box at which a threshold is met."""


def find_crossings(graph: Graph, boxes: Sequence[Box]) -> Crossings:
    """Return where inputs stand when the features of the graph's operators meet their thresholds."""
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
    """Return points, `(count, *shape)` per box, whose elements stand half way between thresholds, or at one.

    Between its thresholds an operator is constant, so each of its values is taken at such points.
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
