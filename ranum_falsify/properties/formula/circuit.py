"""Formulas as few tensor operations: every comparison at once, then one operation per kind and size of junction.

Quantitative semantics: a margin is negative exactly where its formula is false.  For `a <= b` it is b - a, a
conjunction is the minimum, a disjunction the maximum, and the negation of m is -m - EPS.  EPS, the smallest positive
float64, makes strict comparisons negative at equality; the difference of two numbers that differ is at least EPS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.formula.formula import Comparison, Formula, Goal, Junction, Kind
from ranum_falsify.properties.formula.leaves import (
    EPS,
    Columns,
    ComparisonLeaf,
    GoalLeaf,
    Leaf,
    TruthLeaf,
    arg_equality,
)
from ranum_falsify.properties.formula.terms import Const, Frame, Gather, Term, align

Hinge = Callable[[Tensor], Tensor]


class Batched(Protocol):
    """A batch of points or of boxes on a device, on which a circuit is evaluated."""

    @property
    def batch(self) -> int:
        """Number of points."""

    @property
    def device(self) -> torch.device:
        """Where they are."""


class Circuit:
    """Margins of several formulas, the roots, evaluated together."""

    def __init__(self, roots: Sequence[Formula]) -> None:
        builder = _Builder()
        wires = [builder.wire(root) for root in roots]
        self.leaves: Sequence[Leaf] = builder.leaves()
        self._layers = builder.layers()
        columns = np.concatenate([np.empty(0, np.int64), *(builder.positions(wire) for wire in wires)])
        self._roots = Columns(columns)
        # In the common case all roots come from one step, and no tensor of everything is needed.
        ends = builder.size - len(columns) if self._layers and len(self._layers[-1]) == 1 else -1
        self._ends_with_step = bool(
            ends >= 0 and self._layers[-1][0].count == len(columns) and (columns == np.arange(ends, builder.size)).all()
        )

    def margins(self, frame: Frame) -> Tensor:
        """Return the roots' margins `(batch, roots)`, differentiable."""
        return self.propagate([leaf.margins(frame) for leaf in self.leaves], frame)

    def losses(self, frame: Frame, *, quick: bool = False) -> tuple[Tensor, Tensor]:
        """Return the roots' margins, without gradient, and losses, both `(batch, roots)`.

        On a small network the gradient of exact margins would take half the time of a step.  So the loss is
        differentiated
        along a plain path, and only its value is corrected where that path is inexact.

        Args:
            frame: The inputs.
            quick: Whether values may decide what is computed, which `torch.func.vmap` forbids: where all roots hold
                along the plain path they hold exactly too, since EPS, NaN and equal infinities change no such sign.
        """
        if quick:
            leaves = [leaf.compute_quick(frame) for leaf in self.leaves]
            plain = self.propagate(leaves, frame, torch.relu)
            if bool((plain > 0).all()):
                return self.propagate([leaf.detach() for leaf in leaves], frame), plain
        plain = self.propagate([leaf.compute_plain(frame) for leaf in self.leaves], frame, _hinge)
        # At a margin of 0 the clause still holds, and its gradient is needed.
        plain = plain + torch.finfo(plain.dtype).tiny
        with torch.no_grad():
            exact = self.margins(frame)
            # Both are false where `compute_plain` is NaN.
            agree = ((plain > 0) & (exact >= 0)) | ((plain <= 0) & (exact < 0))
            target = exact + EPS
        return exact, torch.where(agree, plain, target)

    def propagate(self, parts: list[Tensor], frame: Batched, hinge: Hinge | None = None) -> Tensor:
        """Return the roots' values `(batch, roots)` from those of the leaves, `(batch or 1, elements)` each.

        Disjunctions are sums of hinges, or maxima without; then the roots rise with the leaves.
        """
        parts = [part if part.shape[0] == frame.batch else part.expand(frame.batch, -1) for part in parts]
        if not parts:
            parts = [torch.zeros(frame.batch, 0, dtype=torch.float64, device=frame.device)]
        values = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        for number, layer in enumerate(self._layers, 1):
            results = [step.run(values, hinge) for step in layer]
            if number == len(self._layers) and self._ends_with_step:
                return results[0]
            values = torch.cat([values, *results], 1)
        return self._roots.take(values)


class _JunctionGroup:
    """All junctions of one kind and number of parts in one layer."""

    def __init__(self, any_: bool, index: np.ndarray) -> None:
        self.any = any_
        self.count = len(index)
        self.only = self.count == 1
        self.index = Columns(index[0] if self.only else index)

    def run(self, values: Tensor, hinge: Hinge | None) -> Tensor:
        parts = self.index.take(values)
        if not self.any:
            return parts.amin(-1, keepdim=self.only)
        return parts.amax(-1, keepdim=self.only) if hinge is None else hinge(parts).sum(-1, keepdim=self.only)


def _hinge(parts: Tensor) -> Tensor:
    """Return the positive parts; unlike that of `relu`, the gradient at 0 is 1, and it is needed there."""
    return parts.clamp_min(0)


# ---------------------------------------------------------------------------------------------------- building

_Key = tuple[Kind, bool, object, object]


@dataclass(frozen=True)
class _Elements:
    """Elements of a group of comparisons."""

    group: _Key
    start: int
    stop: int

    @property
    def count(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class _Single:
    """A validity goal or a known formula."""

    number: int
    count: int = 1


@dataclass(frozen=True)
class _Joined:
    """A junction."""

    number: int
    count: int = 1


_Wire = _Elements | _Single | _Joined


class _Builder:
    """Groups all comparisons by what they compare, and numbers the junctions over their elements."""

    def __init__(self) -> None:
        self._groups: dict[_Key, list[Comparison]] = {}
        self._group_sizes: dict[_Key, int] = {}
        self._offsets: dict[_Key, int] = {}
        self._singles: list[GoalLeaf | TruthLeaf] = []
        self._junctions: list[tuple[bool, list[_Wire]]] = []
        self._junction_positions: dict[int, int] = {}
        self.size = 0

    def wire(self, formula: Formula) -> _Wire:
        """Return what carries the formula's margin."""
        if isinstance(formula, Comparison):
            elements = self._elements(formula)
            return elements if elements.count == 1 else self._add(formula.any, [elements])
        if isinstance(formula, Junction):
            parts = [
                self._elements(part) if isinstance(part, Comparison) and part.any == formula.any else self.wire(part)
                for part in formula.parts
            ]
            return self._add(formula.any, parts)
        self._singles.append(GoalLeaf(formula) if isinstance(formula, Goal) else TruthLeaf(formula))
        return _Single(len(self._singles) - 1)

    def _add(self, any_: bool, parts: list[_Wire]) -> _Joined:
        self._junctions.append((any_, parts))
        return _Joined(len(self._junctions) - 1)

    def _elements(self, comparison: Comparison) -> _Elements:
        left, right = comparison.left, comparison.right
        unique = id(comparison) if arg_equality(comparison.kind, left, right) else _source(left)
        key = (comparison.kind, comparison.negated, unique, _source(right))
        self._groups.setdefault(key, []).append(comparison)
        start = self._group_sizes.get(key, 0)
        self._group_sizes[key] = start + _size(comparison)
        return _Elements(key, start, self._group_sizes[key])

    def leaves(self) -> list[Leaf]:
        """Return the leaves; their margins stand side by side in this order."""
        offset = 0
        for key, size in self._group_sizes.items():
            self._offsets[key] = offset
            offset += size
        groups = [ComparisonLeaf(key[0], key[1], *_merge(members)) for key, members in self._groups.items()]
        return [*groups, *self._singles]

    def layers(self) -> list[list[_JunctionGroup]]:
        """Return the junctions layer by layer: each one's parts stand in earlier layers."""
        depths: list[int] = []
        layers: dict[int, dict[tuple[bool, int], list[int]]] = {}
        for number, (any_, parts) in enumerate(self._junctions):
            depth = 1 + max((depths[part.number] for part in parts if isinstance(part, _Joined)), default=0)
            depths.append(depth)
            count = sum(part.count for part in parts)
            layers.setdefault(depth, {}).setdefault((any_, count), []).append(number)
        next_position = sum(self._group_sizes.values()) + len(self._singles)
        result = []
        for _, layer in sorted(layers.items()):
            steps = []
            for (any_, _), numbers in layer.items():
                rows = [np.concatenate([self.positions(part) for part in self._junctions[n][1]]) for n in numbers]
                steps.append(_JunctionGroup(any_, np.stack(rows)))
                for number in numbers:
                    self._junction_positions[number] = next_position
                    next_position += 1
            result.append(steps)
        self.size = next_position
        return result

    def positions(self, wire: _Wire) -> np.ndarray:
        """Return the columns of a wire; those of junctions are known once `layers` has placed them."""
        if isinstance(wire, _Joined):
            return np.array([self._junction_positions[wire.number]])
        if isinstance(wire, _Single):
            return np.array([sum(self._group_sizes.values()) + wire.number])
        return np.arange(wire.start, wire.stop) + self._offsets[wire.group]


def _size(comparison: Comparison) -> int:
    left, right = comparison.left, comparison.right
    if left.shape == right.shape:
        return left.size
    return int(np.prod(np.broadcast_shapes(left.shape, right.shape)))


def _source(term: Term) -> object:
    """Terms with the same source can be compared in one go, as elements of it."""
    if isinstance(term, Const):
        return "constant"
    return id(term.base) if isinstance(term, Gather) else id(term)


def _merge(comparisons: list[Comparison]) -> tuple[Term, Term]:
    if len(comparisons) == 1:
        return comparisons[0].left, comparisons[0].right
    shapes = [np.broadcast_shapes(c.left.shape, c.right.shape) for c in comparisons]
    return _join([c.left for c in comparisons], shapes), _join([c.right for c in comparisons], shapes)


def _join(terms: list[Term], shapes: list[tuple[int, ...]]) -> Term:
    """Return the terms, all elements of one source, flattened and side by side."""

    def flatten(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return np.broadcast_to(array, shape).reshape(-1)

    first = terms[0]
    if isinstance(first, Const):
        arrays = [term.array for term in terms if isinstance(term, Const)]
        return Const(np.concatenate([flatten(a, s) for a, s in zip(arrays, shapes, strict=True)]))
    base = first.base if isinstance(first, Gather) else first
    indices = [term.index if isinstance(term, Gather) else np.arange(term.size).reshape(term.shape) for term in terms]
    return Gather(base, np.concatenate([flatten(i, s) for i, s in zip(indices, shapes, strict=True)]))


class Choice(Term):
    """One of two terms, by a formula, which `condition` evaluates."""

    def __init__(
        self, formula: Formula, condition: Circuit, applies_network: bool, chosen: Term, otherwise: Term
    ) -> None:
        self.formula = formula
        self.condition = condition
        self.operands = (chosen, otherwise)
        self.applies_network = applies_network or chosen.applies_network or otherwise.applies_network
        try:
            self.shape = np.broadcast_shapes(chosen.shape, otherwise.shape)
        except ValueError as error:
            shapes = f"{chosen.shape} and {otherwise.shape}"
            raise PropertyError(f"property: the branches of IfThenElse have shapes {shapes}") from error

    def compute(self, frame: Frame) -> Tensor:
        """Return the value `(batch, *shape)` in float64."""
        chosen, otherwise = (align(frame.value(operand), len(self.shape)) for operand in self.operands)
        truth = self.condition.margins(frame)[:, 0] >= 0
        return torch.where(truth.reshape(-1, *(1,) * len(self.shape)), chosen, otherwise)
