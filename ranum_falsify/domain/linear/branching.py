"""Boxes of branch and bound: bounds of a batch of them, and the places at which each one is halved.

The steps of the graph are those of the whole box, whose bounds on rounding hold for every part of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ranum_falsify.domain.linear.affine_composition import condense
from ranum_falsify.domain.linear.backsubstitution import BoxBatch, Program, descend
from ranum_falsify.domain.linear.functionals import Functional, LinearBounds
from ranum_falsify.domain.linear.steps import Box, CurveStep, MatrixStep, flatten
from ranum_falsify.lazy import cached_property
from ranum_falsify.process.deadline import Deadline

_MOST_BYTES = 1 << 30
"""Memory that boxes may take while they wait."""

_DEPTH = 64
"""Cuts of a box, one inside another, for which there is room."""


@dataclass(frozen=True)
class Boxes:
    """Boxes that wait.

    Attributes:
        low: Flat lower bounds `(boxes, elements)` of the inputs, and of the watched variables after them.
        high: The upper bounds.
        own: What else is kept of each, `(boxes, ...)`; both halves have it.
    """

    low: Tensor
    high: Tensor
    own: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, part: slice | Tensor) -> Boxes:
        return Boxes(self.low[part], self.high[part], tuple(x[part] for x in self.own))

    @property
    def bytes(self) -> int:
        """Memory of all."""
        return sum(x.numel() * x.element_size() for x in (self.low, self.high, *self.own))

    def columns(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the bounds of some elements."""
        return self.low[:, start:stop], self.high[:, start:stop]


def join(parts: Sequence[Boxes]) -> Boxes:
    """Return boxes one after another."""
    own = tuple(torch.cat(of) for of in zip(*(part.own for part in parts), strict=True))
    return Boxes(torch.cat([part.low for part in parts]), torch.cat([part.high for part in parts]), own)


def take(waiting: list[Boxes], size: int) -> Boxes:
    """Take the boxes that were cut last, at most some: they are neighbours, in which the same operands are bent."""
    # The fewer are cut at once, the fewer wait: of each cut, one half, as deep as the cuts go.
    room = _MOST_BYTES - sum(part.bytes for part in waiting)
    size = max(1, min(size, room // (_DEPTH * max(1, waiting[-1][:1].bytes))))
    taken, count = [], 0
    while waiting and count < size:
        last = waiting.pop()
        room = size - count
        if len(last) > room:
            waiting.append(last[: len(last) - room])
            last = last[len(last) - room :]
        taken.append(last)
        count += len(last)
    return join(taken)


def halve(boxes: Boxes, element: Tensor, at: Tensor) -> Boxes:
    """Return both halves of boxes, each cut at a value of one of its elements; halves of one box stay neighbours."""
    number = torch.arange(len(boxes))
    left, right = boxes.high.clone(), boxes.low.clone()
    left[number, element], right[number, element] = at, at
    own = tuple(x.repeat_interleave(2, 0) for x in boxes.own)
    return Boxes(_interleave(boxes.low, right), _interleave(left, boxes.high), own)


def _interleave(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([first, second], 1).flatten(0, 1)


_COEFFICIENTS = 1 << 20
"""Coefficients of one variable in one pass over many boxes: as many as the caches of a core hold."""

_FEWEST = 32
"""Boxes of one batch, however many coefficients they have."""

_LIGHT = 1 << 26
"""Multiplications of a pass below which threads cost more than they save."""

_WIDTH = 1e-9
"""Weight of an element's width in the choice of the cut if no functional depends on it."""

Decision = Callable[[LinearBounds], Tensor]
"""Tells of each box, from the bounds `(boxes, rows)`, whether it is proved: booleans `(boxes,)`."""


@dataclass(frozen=True)
class Cuts:
    """Boxes that a batch leaves open, and where each is cut.

    Attributes:
        boxes: The boxes, with their watched variables narrowed.
        element: The element of each box that is cut, by its column.
        at: The value at which it is cut; where it is not between the element's bounds, the box cannot be cut.
    """

    boxes: Boxes
    element: Tensor
    at: Tensor

    @property
    def is_possible(self) -> bool:
        """Whether every box can be cut."""
        low, high = (end.gather(1, self.element.unsqueeze(1))[:, 0] for end in (self.boxes.low, self.boxes.high))
        return bool((low < high).all())


def cuts_of(boxes: Boxes, element: Tensor) -> Cuts:
    """Return cuts in the middle of an element of each box."""
    low, high = (end.gather(1, element.unsqueeze(1))[:, 0] for end in (boxes.low, boxes.high))
    return Cuts(boxes, element, (low + high) / 2)


class Branching(ABC):
    """What is done with a batch of boxes.

    Attributes:
        root: The whole box.
    """

    root: Boxes

    def __init__(self, program: Program, functional: Functional) -> None:
        self._functional = functional
        self._program = condense(program, functional.variables)
        self._inputs = [v for v in program.inputs if v is not None]
        self._order = self._program.select_before(functional.variables)
        watched = {v for i in self._order for v in self._program.steps[i].watched if v in self._program.writers}
        self._watched = sorted(watched, key=lambda v: self._program.writers[v])
        self._start: dict[int, int] = {}
        stop = 0
        for v in (*self._inputs, *self._watched):
            self._start[v] = stop
            stop += self._size(v)
        self._width = sum(self._size(v) for v in self._inputs)
        self._largest = max((self._size(v) for i in self._order for v in self._program.steps[i].reads), default=1)
        ends = [self._program.variables[v].box for v in (*self._inputs, *self._watched)]
        low, high = (torch.cat([box[side].reshape(1, -1) for box in ends], dim=1) for side in (0, 1))
        self.root = Boxes(low, high)

    @property
    @abstractmethod
    def most(self) -> int:
        """How many boxes make a batch."""

    @cached_property
    def is_light(self) -> bool:
        """Whether a pass through a batch is so little work that sharing it among threads would cost more."""
        return self.most * sum(self._program.steps[i].work for i in self._order) < _LIGHT

    @abstractmethod
    def bound(self, batch: Boxes, deadline: Deadline) -> Cuts:
        """Bound boxes; those that are not proved are returned, and where to cut them.

        Args:
            batch: The boxes.
            deadline: When to stop looking for better bounds.
        """

    def cut_out(self, boxes: Boxes, keep: int) -> tuple[tuple[Tensor, Tensor] | None, ...]:
        """Return the bounds of each input of the graph on the first of some boxes."""
        return tuple(None if v is None else self._box(v, boxes[:keep]) for v in self._program.inputs)

    def strip(self, boxes: Boxes) -> Boxes:
        """Return boxes with the bounds of inputs alone."""
        return Boxes(boxes.low[:, : self._width], boxes.high[:, : self._width], boxes.own)

    def adopt(self, boxes: Boxes) -> Boxes:
        """Return boxes that have bounds of inputs alone with those that watched variables have in all of them."""
        known = [end[:, self._width :].expand(len(boxes), -1) for end in (self.root.low, self.root.high)]
        return Boxes(torch.cat([boxes.low, known[0]], 1), torch.cat([boxes.high, known[1]], 1), boxes.own)

    def _size(self, variable: int) -> int:
        return math.prod(self._program.variables[variable].shape)

    def _box(self, variable: int, batch: Boxes) -> Box:
        start, shape = self._start[variable], self._program.variables[variable].shape
        low, high = batch.columns(start, start + self._size(variable))
        return low.reshape(len(batch), *shape), high.reshape(len(batch), *shape)

    def _find_bent(self, variable: int, box: Box) -> Tensor:
        """Return where narrower bounds of a watched variable would help."""
        found = torch.zeros(box[0].shape, dtype=torch.bool)
        for step in self._program.steps:
            if variable in step.watched:
                found |= step.find_bent(box) if isinstance(step, CurveStep) else box[0] < box[1]
        return found

    def _score_inputs(self, coefficients: Sequence[Sequence[Tensor | None]], boxes: Boxes) -> Tensor:
        """Return for each box and input element how much of the functionals' spread is due to it."""
        low, high = boxes.columns(0, self._width)
        size, width = torch.zeros_like(low), high - low
        for of in coefficients:
            size += torch.cat([flatten(x.abs().sum(1), 1) for x in of if x is not None], dim=1)
        return torch.where(width > 0, size * width + _WIDTH * width, -1.0)


class InputBranching(Branching):
    """Boxes are cut along inputs; the bounds of all curves' operands are computed for each box anew."""

    def __init__(self, program: Program, functional: Functional, is_proved: Decision) -> None:
        super().__init__(program, functional)
        self._is_proved = is_proved
        bent = [self._find_bent(v, self._box(v, self.root)) for v in self._watched]
        self._rows = max(len(functional.constant), *(2 * int(of.sum()) for of in bent), 1)

    @property
    def most(self) -> int:
        """See :class:`Branching`."""
        size = max(_FEWEST, _COEFFICIENTS // (self._largest * self._rows))
        self._rows = len(self._functional.constant)
        return size

    def bound(self, batch: Boxes, deadline: Deadline) -> Cuts:
        """See :meth:`Branching.bound`."""
        bounds, batch = self._bound(batch)
        stays = ~self._is_proved(bounds)
        scores = self._score_inputs((bounds.lower_coefficients, bounds.upper_coefficients), batch)
        return cuts_of(batch[stays], scores[stays].argmax(1))

    def bound_each(self, inputs: Sequence[tuple[Tensor, Tensor]], count: int) -> tuple[Tensor, Tensor]:
        """Return bounds `(count, rows)` of the functional on parts of the box, given flat bounds of the inputs."""
        low, high = (torch.cat([part[side] for part in inputs], dim=1) for side in (0, 1))
        waiting, found = [self.adopt(Boxes(low, high))], []
        while waiting:
            bounds, _ = self._bound(take(waiting, self.most))
            found.append((bounds.lower, bounds.upper))
        # The last ones are taken first.
        lower, upper = (torch.cat(ends) for ends in zip(*found[::-1], strict=True))
        return lower, upper

    def _bound(self, batch: Boxes) -> tuple[LinearBounds, Boxes]:
        """Bound the functional over boxes; also return the boxes, with their watched variables narrowed."""
        count = len(batch)
        region = BoxBatch(self._program, {v: self._box(v, batch) for v in self._inputs})
        low, high = batch.low.clone(), batch.high.clone()
        for variable in self._watched:
            start = self._start[variable]
            stop = start + self._size(variable)
            narrow = self._narrow(variable, region, self._box(variable, batch))
            region.narrow(variable, narrow)
            low[:, start:stop], high[:, start:stop] = (bound.reshape(count, -1) for bound in narrow)
        return self._functional.bound(region, count), Boxes(low, high)

    def _narrow(self, variable: int, region: BoxBatch, box: Box) -> Box:
        """Bound those elements of a watched variable whose bounds matter, for each box its own."""
        low, high = (flatten(bound, 1).clone() for bound in box)
        bent = flatten(self._find_bent(variable, box), 1)
        most = int(bent.sum(1).amax())
        if not most:
            return box
        self._rows = max(self._rows, 2 * most)
        # A box with fewer of them bounds others too, which does no harm.
        chosen = bent.to(torch.uint8).topk(most, dim=1).indices
        constant, weights = self._rows_of(variable, chosen)
        # What is known to be one number still has bounds apart, by rounding.
        lower = descend(weights, region)[0] + constant if weights else constant.expand(len(low), -1)
        least, greatest = lower[:, :most], -lower[:, most:]
        # Rounding may make the two bounds of a point cross.
        least, greatest = torch.minimum(least, greatest), torch.maximum(least, greatest)
        old = low.gather(1, chosen), high.gather(1, chosen)
        new = torch.minimum(torch.maximum(old[0], least), old[1])
        low.scatter_(1, chosen, new)
        high.scatter_(1, chosen, torch.maximum(torch.minimum(old[1], greatest), new))
        return low.reshape(box[0].shape), high.reshape(box[1].shape)

    def _rows_of(self, variable: int, chosen: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        """Return coefficients that each select one of the chosen elements `(boxes, count)`, then their negatives."""
        step = self._program.steps[self._program.writers[variable]]
        if isinstance(step, MatrixStep):
            parts = zip(step.reads, step.matrices, step.shapes, strict=True)
            gathered = {v: (matrix[chosen], shape) for v, matrix, shape in parts}
            weights = {v: torch.cat([w, -w], 1).reshape(len(w), -1, *shape) for v, (w, shape) in gathered.items()}
            offset, error = step.offset[chosen], step.error[chosen]
            return torch.cat([offset - error, -offset - error], 1), weights
        rows = torch.nn.functional.one_hot(chosen, self._size(variable)).double()
        weight = torch.cat([rows, -rows], 1).reshape(len(rows), -1, *self._program.variables[variable].shape)
        return torch.zeros(1, dtype=torch.float64), {variable: weight}
