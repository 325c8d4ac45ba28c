"""Exact zeros: bisection in floating point between points of opposite sign, then steps of one ulp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.verify.search.batching import BatchedModel, margin_and_crossing_of
from ranum_falsify.verify.search.device import chunks
from ranum_falsify.verify.search.search import Region, SearchContext, Visit
from ranum_falsify.verify.search.starts import Box

_HALVINGS = 70
"""Enough to bring the ends of any segment to neighbouring floats (52 bits and some exponents)."""

_ULP_ROUNDS = 40
"""Rounds of random steps of one ulp around the crossing."""


@dataclass(frozen=True)
class Observation:
    """Margins `(batch, 1)` and crossing `(batch, elements)`; no elements where the border is not a sign change."""

    margin: Tensor
    crossing: Tensor


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """Looks for points at which a crossing is exactly zero.

    Attributes:
        observe: Evaluates a batch.
        visit: Sees margins `(batch, 1)` and inputs after each evaluation; returns whether to stop.
        boxes: Bounds of each input.
        generator: Source of randomness, on the CPU.
        is_over: Whether time is up.
        halvings: How often the ends of segments come together at most.
        interpolates: Whether every other step goes to where a linear crossing would be zero, not to the middle.
        shakes: Rounds of random steps of one ulp after that.
    """

    observe: Callable[[Sequence[Tensor]], Observation]
    visit: Visit
    boxes: Sequence[Box]
    generator: torch.Generator
    is_over: Callable[[], bool]
    halvings: int = _HALVINGS
    interpolates: bool = False
    shakes: int = _ULP_ROUNDS

    def run(self, starts: Sequence[Tensor]) -> None:
        """Pair up starts, `(batch, *shape)` per input, between which a crossing changes its sign."""
        pairs = self._pair(self.observe(starts).crossing)
        if pairs is None:
            return
        left, right, element, sizes = pairs
        self._close_in([x[left] for x in starts], [x[right] for x in starts], element, sizes)

    def run_between(self, starts: Sequence[Tensor], ends: Sequence[Tensor]) -> None:
        """The same between given points, those with a change of sign."""
        before, after = (self.observe(points).crossing for points in (starts, ends))
        changes = before.sign() * after.sign() < 0
        chosen = changes.any(1)
        if not chosen.any():
            return
        element = changes[chosen].double().argmax(1, keepdim=True)
        sizes = torch.stack([crossing[chosen].gather(1, element)[:, 0] for crossing in (before, after)])
        rises = sizes[0] < 0
        some = [(x[chosen], y[chosen]) for x, y in zip(starts, ends, strict=True)]
        below = [_choose(rises, x, y) for x, y in some]
        above = [_choose(rises, y, x) for x, y in some]
        self._close_in(below, above, element, sizes.sort(0).values)

    def _close_in(self, below: Sequence[Tensor], above: Sequence[Tensor], element: Tensor, sizes: Tensor) -> None:
        """Bring the ends of segments together, of which the crossings are given, `(2, pairs)`."""
        for number in range(self.halvings):
            if self.is_over():
                return
            shares = sizes[0] / (sizes[0] - sizes[1]) if self.interpolates and number % 2 else None
            middle = [self._find_middle(a, b, shares) for a, b in zip(below, above, strict=True)]
            if shares is None and all(map(_is_between_neighbours, middle, below, above)):
                break
            seen = self.observe(middle)
            if self.visit(seen.margin, middle):
                return
            found = seen.crossing.gather(1, element)[:, 0]
            same = found < 0
            sizes = torch.stack([torch.where(same, found, sizes[0]), torch.where(same, sizes[1], found)])
            below = [_choose(same, m, a) for m, a in zip(middle, below, strict=True)]
            above = [_choose(same, b, m) for m, b in zip(middle, above, strict=True)]
        self._shake(below, element)

    def _pair(self, seen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """Pair starts on both sides of zero, given their crossings.

        Returned are indices below and above, the element that crosses `(pairs, 1)`, and its crossings `(2, pairs)`.
        """
        positive, negative = seen > 0, seen < 0
        crossing = (positive.any(0) & negative.any(0)).nonzero()[:, 0]
        if len(crossing) == 0:
            return None
        count = len(seen)
        chosen = crossing[torch.randint(len(crossing), (count,), generator=self.generator).to(crossing.device)]
        noise = torch.rand((2, count, count), generator=self.generator).to(crossing.device)
        left = (noise[0] * negative[:, chosen].T).argmax(1)
        right = (noise[1] * positive[:, chosen].T).argmax(1)
        return left, right, chosen[:, None], torch.stack([seen[left, chosen], seen[right, chosen]])

    def _find_middle(self, a: Tensor, b: Tensor, shares: Tensor | None) -> Tensor:
        """Return points between others, in the middle or at shares of the way; integers are taken from one of them."""
        if not a.is_floating_point():
            draw = torch.rand(a.shape, generator=self.generator).to(a.device)
            return torch.where(draw < 0.5, a, b)
        if shares is not None:
            return torch.lerp(a.double(), b.double(), shares.reshape(-1, *([1] * (a.dim() - 1)))).to(a.dtype)
        return (a.double() / 2 + b.double() / 2).to(a.dtype)

    def _shake(self, points: Sequence[Tensor], element: Tensor) -> None:
        """Move few elements by one ulp at random; keep what brings the crossing nearer to zero."""
        best = list(points)
        if not self.shakes:
            return
        size = self.observe(best).crossing.gather(1, element)[:, 0].abs()
        for _ in range(self.shakes):
            if self.is_over():
                return
            moved = [self._step_ulps(x).to(x.device) for x in best]
            moved = [box.project(x) for x, box in zip(moved, self.boxes, strict=True)]
            seen = self.observe(moved)
            if self.visit(seen.margin, moved):
                return
            distance = seen.crossing.gather(1, element)[:, 0].abs()
            better = distance <= size
            best = [_choose(better, new, old) for new, old in zip(moved, best, strict=True)]
            size = torch.where(better, distance, size)

    def _step_ulps(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        draw = torch.rand(x.shape, generator=self.generator).to(x.device)
        share = min(1.0, 4.0 / max(1, x[0].numel()))
        away = torch.where(draw < share / 2, -torch.inf, torch.inf).to(x.dtype)
        return torch.where(draw < share, torch.nextafter(x, away), x)


def bisect(context: SearchContext, target: Target, region: Region, starts: Sequence[Tensor], visit: Visit) -> None:
    """Look between pairs of starts for a point at which the target's crossing, if it has one, is exactly zero."""
    wanted = context.problem.goals[target.goal].call
    names = [v.name for v in context.problem.inputs]
    variables = [names.index(name) for name in wanted.variables if name is not None]
    if len(variables) < len(wanted.variables):
        return
    batched = BatchedModel(context.model_of(wanted))
    read = batched.model.graph.input_names
    variables = [v for v, name in zip(variables, wanted.graph.input_names, strict=True) if name in read]
    bisection = Bisection(
        observe=partial(_observe, batched, target, variables, context.sample_limit),
        visit=visit,
        boxes=region.device_boxes,
        generator=context.generator,
        is_over=lambda: context.budget.expired,
    )
    with suppress(_RaggedError):
        bisection.run(starts)


class _RaggedError(Exception):
    """Samples differ in the number of elements, so that none can be followed from one to the next."""


def _observe(
    batched: BatchedModel, target: Target, variables: Sequence[int], limit: int, inputs: Sequence[Tensor]
) -> Observation:
    """Return margin and crossing of one target on a batch, of which so many samples run at once."""
    probes = {id(target.op): margin_and_crossing_of(target)}
    with torch.no_grad():
        parts = [batched.observe(chunk, probes) for chunk in chunks([inputs[v] for v in variables], limit)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len({part.shape[1] for part in known}) > 1:
        raise _RaggedError
    seen = torch.cat(known)
    return Observation(seen[:, :1], seen[:, 1:])


def _is_between_neighbours(middle: Tensor, a: Tensor, b: Tensor) -> bool:
    """Tell whether the middle of two points is one of them in every element; of integers, whether they are the same."""
    return bool(((middle == a) | (middle == b)).all() if a.is_floating_point() else (a == b).all())


def _choose(mask: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(mask.reshape(-1, *([1] * (yes.dim() - 1))), yes, no)
