"""Programs condensed for many boxes: all that is affine between the bent elements of curves becomes one matrix.

A curve is a line where the bounds of its operand leave no bend between them, as most rectifiers are, and stays one on
every part of the box.  Only its other elements are left as curves, so that a pass costs what these are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import TOTALS_SHARE, double_share, vanishing
from ranum_falsify.domain.linear.backsubstitution import BoundedTensor, BoxBatch, Program
from ranum_falsify.domain.linear.relaxations import Lines
from ranum_falsify.domain.linear.steps import AffineStep, Box, CurveStep, MatrixStep

_FEW, _MOST = 1 << 21, 1 << 23
"""Elements of all matrices together: so many are always made, and more are never."""

_GAIN = 2
"""How many multiplications of a pass step by step take as long as one of matrices, roughly."""

_CHUNK = 1 << 22
"""Coefficients of one variable while a matrix is made."""


def condense(program: Program, targets: Sequence[int]) -> Program:
    """Return a program that bounds the same variables, whose affine steps are matrices.

    It is the same where these would be large, or where results of steps are infinite.

    Args:
        program: The program.
        targets: Variables at which passes will begin, besides those that curves read.
    """
    order = program.select_before(targets)
    if any(isinstance(step := program.steps[i], AffineStep) and step.gone for i in order):
        return program
    return _Condenser(program, order, targets).condense() or program


@dataclass(frozen=True)
class _Bends:
    """What is left of a curve.

    Attributes:
        elements: Its bent elements, by their place in the flat operand.
        step: The curve of these alone, None if there are none.
        lines: Lines about all elements; where they are not bent, of one slope.
    """

    elements: Tensor
    step: CurveStep | None
    lines: Lines


class _Condenser:
    """Makes the matrices, each by a pass from what it computes to the inputs and the bent elements before."""

    def __init__(self, program: Program, order: Sequence[int], targets: Sequence[int]) -> None:
        self._program, self._order = program, order
        self._made = Program(variables=list(program.variables), inputs=program.inputs, numbers=program.numbers)
        self._whole, self._whole_made = BoxBatch(program, {}), BoxBatch(self._made, {})
        steps = [program.steps[i] for i in order]
        self._curves = {i: self._bend(step) for i in order if isinstance(step := program.steps[i], CurveStep)}
        others = {v for step in steps if not isinstance(step, AffineStep | CurveStep) for v in step.reads}
        self._ends = others | set(targets)
        work = sum(step.work for step in steps)
        self._room = min(_MOST, max(_FEW, _GAIN * work))

    def condense(self) -> Program | None:
        """Return the program; None if there is no room for it."""
        for number in sorted(self._order):
            step = self._program.steps[number]
            bends = self._curves.get(number)
            if bends is not None and bends.step is not None:
                if not self._append(step.reads[0], bends.elements, number, bends.step.reads[0]):
                    return None
                self._made.append(bends.step)
            if not isinstance(step, AffineStep | CurveStep):
                self._made.append(step)
                continue
            for v in self._ends.intersection(step.writes):
                if not self._append(v, torch.arange(self._size(v)), number + 1, v):
                    return None
        return self._made

    def _bend(self, step: CurveStep) -> _Bends:
        box = self._program.variables[step.reads[0]].box
        y = step.prepare([box])
        bent = step.find_bent(box) | (y.lower_slope != y.upper_slope)
        elements = bent.flatten().nonzero().flatten()
        if not len(elements):
            return _Bends(elements, None, y)
        read, write = (self._add(self._program.variables[v].box, elements) for v in (*step.reads, *step.writes))
        return _Bends(elements, step.select(elements, read, write), y)

    def _add(self, box: Box, elements: Tensor) -> int:
        low, high = (end.reshape(1, -1)[:, elements] for end in box)
        return self._made.add(BoundedTensor((len(elements),), (low, high)))

    def _append(self, start: int, elements: Tensor, before: int, write: int) -> bool:
        """Append the matrix from which some elements of a variable are computed; tell whether there was room.

        Args:
            start: The variable.
            elements: Its elements, by their place.
            before: The first step that is not followed.
            write: The variable of the elements.
        """
        passed = list(self._find_steps(start, before))
        between = {v for i in passed for v in (*self._program.steps[i].reads, *self._program.steps[i].writes)} | {start}
        read = between - {v for i in passed for v in self._program.steps[i].writes}
        kept = {step.writes[0] for i in passed if i in self._curves and (step := self._curves[i].step) is not None}
        self._room -= len(elements) * sum(self._size(v) for v in read | kept)
        if self._room < 0:
            return False
        largest = max(self._size(v) for v in between)
        parts = [self._pass(start, part, passed) for part in elements.split(max(1, _CHUNK // largest))]
        atoms = sorted(set().union(*(weights for weights, _, _ in parts)))
        matrices = [torch.cat([self._rows(weights, v, len(of)) for weights, of, _ in parts]) for v in atoms]
        offset, error = torch.cat([of for _, of, _ in parts]), torch.cat([of for _, _, of in parts])
        terms = max(largest, *(self._size(v) for v in atoms)) if atoms else largest
        for v, matrix in zip(atoms, matrices, strict=True):
            sizes = self._whole_made.size(v).flatten()
            error = error + double_share(terms) * (matrix.abs() @ sizes) + vanishing(terms) * sizes.sum()
        error = error * (1 + double_share(terms))
        shapes = [self._made.variables[v].shape for v in atoms]
        self._made.append(MatrixStep(tuple(atoms), write, matrices, shapes, offset, error))
        return True

    def _find_steps(self, start: int, before: int) -> Iterator[int]:
        """Yield the affine steps and curves that lead to a variable with nothing else between them, last first."""
        needed = {start}
        for number in self._order:
            step = self._program.steps[number]
            follows = isinstance(step, AffineStep | CurveStep) and number < before
            if follows and not needed.isdisjoint(step.writes):
                needed.update(step.reads)
                yield number

    def _pass(self, start: int, elements: Tensor, passed: Sequence[int]) -> tuple[dict[int, Tensor], Tensor, Tensor]:
        """Follow elements of a variable back; return coefficients `(1, rows, *shape)`, the constant and its error."""
        count = len(elements)
        rows = torch.nn.functional.one_hot(elements, self._size(start)).double()
        weights = {start: rows.reshape(1, count, *self._program.variables[start].shape)}
        offset, error = torch.zeros(2, 1, count, dtype=torch.float64)
        for number in passed:
            step = self._program.steps[number]
            given = [
                weights.pop(v) if v in weights else torch.zeros(1, count, *self._program.variables[v].shape).double()
                for v in step.writes
            ]
            if isinstance(step, AffineStep):
                found, (constant, stray) = step.parts(given)
            else:
                found, (constant, stray) = self._pass_curve(number, given[0], weights)
            offset, error = offset + constant, error + stray + TOTALS_SHARE * constant.abs()
            for v, weight in zip(step.reads, found, strict=True):
                weights[v] = weights[v] + weight if v in weights else weight
                error = error + TOTALS_SHARE * self._whole.loss(v)
        return weights, offset[0], error[0]

    def _pass_curve(
        self, number: int, given: Tensor, weights: dict[int, Tensor]
    ) -> tuple[tuple[Tensor], tuple[Tensor, Tensor]]:
        """Pass coefficients of a curve's results to its operand where it is a line, else to its bent elements."""
        bends, y = self._curves[number], self._curves[number].lines
        flat = given.reshape(*given.shape[:2], -1)
        if bends.step is not None:
            weights[bends.step.writes[0]] = flat[..., bends.elements]
            flat = flat.index_fill(2, bends.elements, 0.0)
        slope, low, high = (part.flatten() for part in (y.lower_slope, y.lower_offset, y.upper_offset))
        parts = flat @ ((low + high) / 2), flat.abs() @ ((high - low) / 2)
        return ((flat * slope).reshape(given.shape),), parts

    def _rows(self, weights: dict[int, Tensor], variable: int, count: int) -> Tensor:
        if variable in weights:
            return weights[variable].reshape(count, -1)
        return torch.zeros(count, self._size(variable), dtype=torch.float64)

    def _size(self, variable: int) -> int:
        return math.prod(self._made.variables[variable].shape)
