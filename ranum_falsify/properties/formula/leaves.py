"""The leaves of a circuit: margins of comparisons, of validity goals and of formulas whose truth is known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.lazy import cached_property
from ranum_falsify.properties.formula.formula import Goal, Kind, Truth
from ranum_falsify.properties.formula.terms import Arg, Const, Elementwise, Frame, Gather, Term

_LARGEST_PRODUCT = 4096
"""Elements of a matrix up to which a product takes no longer than picking elements."""


class Differences:
    """Differences between few elements of a term, or of them and constants: the term times a matrix of 1, -1 and 0.

    The numbers are the same as by picking elements, because a sum of zeros and two numbers is rounded once.
    """

    def __init__(self, base: Term, matrix: np.ndarray, offset: np.ndarray) -> None:
        self.base = base
        self._arrays = (offset, matrix)
        self._tensors: dict[torch.device, tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, first: Term, second: Term) -> Differences | None:
        """Return `first - second`, None if they are not elements of one small term."""
        shape = np.broadcast_shapes(first.shape, second.shape)
        bases = {id(base): base for base in map(_base, (first, second)) if base is not None}
        if len(bases) != 1:
            return None
        (base,) = bases.values()
        count = math.prod(shape)
        if base.size * count > _LARGEST_PRODUCT:
            return None
        matrix, offset = np.zeros((base.size, count)), np.zeros(count)
        for term, sign in ((first, 1.0), (second, -1.0)):
            if isinstance(term, Const):
                offset += sign * np.broadcast_to(term.array, shape).reshape(-1)
            else:
                index = term.index if isinstance(term, Gather) else np.arange(term.size).reshape(term.shape)
                matrix[np.broadcast_to(index, shape).reshape(-1), np.arange(count)] += sign
        return cls(base, matrix, offset)

    def compute(self, frame: Frame) -> Tensor:
        """Return the differences `(batch, elements)`."""
        if frame.device not in self._tensors:
            offset, matrix = (torch.from_numpy(array).to(frame.device) for array in self._arrays)
            self._tensors[frame.device] = offset, matrix
        offset, matrix = self._tensors[frame.device]
        return torch.addmm(offset, flatten(frame.value(self.base)), matrix)


def _base(term: Term) -> Term | None:
    """Return the term from which a term's elements are taken; None for a constant."""
    if isinstance(term, Const):
        return None
    return term.base if isinstance(term, Gather) else term


def flatten(value: Tensor) -> Tensor:
    """Return a value `(batch, ...)` as `(batch, elements)`."""
    return value if value.dim() == 2 else value.reshape(value.shape[0], -1)


EPS = 5e-324
"""The smallest positive float64: how far below 0 the margin of a strict comparison is at equality."""

_LARGEST = float(np.finfo(np.float64).max)


class ComparisonLeaf:
    """Margins of the elements of comparisons of one kind between two terms."""

    def __init__(self, kind: Kind, negated: bool, left: Term, right: Term) -> None:
        self.kind = kind
        self.negated = negated
        self.size = int(np.prod(np.broadcast_shapes(left.shape, right.shape)))
        self.arg = arg_equality(kind, left, right)
        self.left, self.right = left, right
        # The sign is chosen so that the last operation is the strict one's subtraction of EPS.
        self.first, self.second = (left, right) if negated and kind != "==" else (right, left)
        self.both_vary = not isinstance(left, Const) and not isinstance(right, Const)
        self.difference = Elementwise("-", torch.sub, self.first, self.second)
        self.same = Elementwise("same", torch.eq, self.first, self.second)
        self.product = Differences.of(self.first, self.second)
        self.strict = (kind == "<") != negated

    def compute_plain(self, frame: Frame) -> Tensor:
        """Return the margins without regard to EPS, NaN and infinities."""
        if self.arg is not None:
            margin = flatten(self.arg.margins(frame))
            return -margin if self.negated else margin
        return self._sign(flatten(frame.value(self.difference)))

    def compute_quick(self, frame: Frame) -> Tensor:
        """Return `compute_plain` by fewer operations, with NaN where any element compared is infinite or NaN."""
        return self.compute_plain(frame) if self.product is None else self._sign(self.product.compute(frame))

    def _sign(self, difference: Tensor) -> Tensor:
        if self.kind != "==":
            return difference
        return difference.abs() if self.negated else -difference.abs()

    def margins(self, frame: Frame) -> Tensor:
        """Return the margins `(batch, elements)`."""
        margin = self.compute_plain(frame)
        if self.arg is not None:
            return margin - EPS if self.negated else margin
        if self.both_vary:
            # Infinity equals itself, but their difference is NaN.
            margin = torch.where(flatten(frame.value(self.same)), 0.0, margin)
        if self.strict:
            margin = margin - EPS
        return margin.nan_to_num(nan=torch.inf if self.negated else -torch.inf, posinf=torch.inf, neginf=-torch.inf)


@dataclass(frozen=True, eq=False)
class ArgEquality:
    """`argmax(a) == c`, or two argmax: how far the score at c is above the best other one."""

    arg: Arg
    other: Term

    @cached_property
    def lead(self) -> Term | None:
        """The score at a constant index minus each other one, `(*shape, choices - 1)`; None for any other index."""
        if not isinstance(self.other, Const) or not self._is_possible or self.arg.choices < 2:
            return None
        positions = np.moveaxis(np.arange(self.arg.base.size).reshape(self.arg.base.shape), self.arg.axis, -1)
        chosen = np.broadcast_to(self.other.array.astype(np.int64), self.arg.shape)[..., None]
        others = positions[np.arange(self.arg.choices) != chosen].reshape(*self.arg.shape, -1)
        at_index = np.broadcast_to(np.take_along_axis(positions, chosen, -1), others.shape)
        first, second = (Gather(self.arg.base, index) for index in (at_index, others))
        return Elementwise("-", torch.sub, *((first, second) if self.arg.kind == "argmax" else (second, first)))

    @cached_property
    def loses_ties(self) -> np.ndarray:
        """Where in `lead` the other index is the first of two equal scores, so that a tie goes to it."""
        assert isinstance(self.other, Const)
        chosen = np.broadcast_to(self.other.array, self.arg.shape)[..., None]
        return np.asarray(np.arange(self.arg.choices - 1) < chosen)

    @property
    def _is_possible(self) -> bool:
        """Whether the other side is an index of the scores."""
        assert isinstance(self.other, Const)
        index = self.other.array
        return bool(((index >= 0) & (index < self.arg.choices) & (index == np.floor(index))).all())

    def margins(self, frame: Frame) -> Tensor:
        """Return the margins `(batch, *shape)`."""
        index, other = self.arg.compute(frame), frame.value(self.other)
        margin = _lead(self.arg, frame, other)
        if isinstance(self.other, Arg):
            margin = torch.minimum(margin, _lead(self.other, frame, index))
        margin = torch.where(index == other, margin.clamp_min(0), (margin - EPS).clamp_max(-EPS))
        return margin.nan_to_num(nan=-torch.inf)


def _lead(arg: Arg, frame: Frame, index: Tensor) -> Tensor:
    """Return the score at `index` minus the highest other score, both without NaN; -1 for an impossible index."""
    scores = arg.scores(frame).nan_to_num(nan=_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)
    index = torch.broadcast_to(index, scores.shape[:-1])
    chosen = index.nan_to_num(nan=0).round().clamp(0, arg.choices - 1).to(torch.int64)[..., None]
    others = scores.scatter(-1, chosen, -torch.inf).amax(-1)
    lead = scores.gather(-1, chosen)[..., 0] - others
    return torch.where(index == chosen[..., 0], lead, torch.full_like(lead, -1.0))


def arg_equality(kind: Kind, left: Term, right: Term) -> ArgEquality | None:
    """Return a comparison of an argmax or argmin with an index; None for any other."""
    if kind != "==" or left.shape != right.shape:
        return None
    if isinstance(left, Arg):
        return ArgEquality(left, right)
    return ArgEquality(right, left) if isinstance(right, Arg) else None


class GoalLeaf:
    """Margin of one validity goal."""

    size = 1

    def __init__(self, goal: Goal) -> None:
        self.goal = goal

    def margins(self, frame: Frame) -> Tensor:
        """Return the margin `(batch, 1)`."""
        margin = self.compute_plain(frame).nan_to_num(
            nan=torch.inf if self.goal.negated else -torch.inf, posinf=torch.inf, neginf=-torch.inf
        )
        return margin - EPS if self.goal.negated else margin

    def compute_quick(self, frame: Frame) -> Tensor:
        """Return `compute_plain`."""
        return self.compute_plain(frame)

    def compute_plain(self, frame: Frame) -> Tensor:
        """Return the margin without regard to EPS and NaN."""
        margin = frame.validity(self.goal.goal)[:, None]
        return -margin if self.goal.negated else margin


class TruthLeaf:
    """Margin of a formula whose truth is known."""

    size = 1

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def margins(self, frame: Frame) -> Tensor:
        """Return the margin `(batch, 1)`."""
        sign = 1.0 if self.truth.value else -1.0
        return torch.full((frame.batch, 1), sign, dtype=torch.float64, device=frame.device)

    compute_plain = compute_quick = margins


Leaf = ComparisonLeaf | GoalLeaf | TruthLeaf


class Columns:
    """Columns of a `(batch, n)` tensor, by a constant integer array of any shape."""

    def __init__(self, index: np.ndarray) -> None:
        self.index = index
        flat = index.reshape(-1)
        self._start = int(flat[0]) if flat.size else 0
        self._consecutive = bool(np.array_equal(flat, np.arange(self._start, self._start + flat.size)))
        self._tensors: dict[torch.device, Tensor] = {}

    def take(self, values: Tensor) -> Tensor:
        """Return the columns `(batch, *index_shape)`; a view where they stand side by side."""
        if self._consecutive and self._start == 0 and self.index.size == values.shape[1]:
            columns = values
        elif self._consecutive:
            columns = values.narrow(1, self._start, self.index.size)
        else:
            if values.device not in self._tensors:
                self._tensors[values.device] = torch.from_numpy(self.index.reshape(-1)).to(values.device)
            columns = values.index_select(1, self._tensors[values.device])
        return columns if self.index.ndim == 1 else columns.reshape(-1, *self.index.shape)
