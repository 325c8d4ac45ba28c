"""Small programs condensed for many boxes: everything affine between two curves becomes one matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ranum_falsify.domain.error_bounds import double_share, vanishing
from ranum_falsify.domain.linear.backsubstitution import Program
from ranum_falsify.domain.linear.steps import AffineStep, MatrixStep

_ELEMENTS = 1 << 21
"""Larger matrices, by their number of elements together, are not made."""


def condense(program: Program, targets: Sequence[int]) -> Program:
    """Return a program of the same variables whose affine steps are matrices.

    It is the same where these would be large, or where results of steps are infinite.

    Args:
        program: The program.
        targets: Variables at which passes will begin, besides those that are watched.
    """
    order = program.select_before(targets)
    if any(isinstance(step := program.steps[i], AffineStep) and step.gone for i in order):
        return program
    ends = {v for i in order for v in program.steps[i].watched} | set(targets)
    ends = {v for v in ends if v in program.writers and isinstance(program.steps[program.writers[v]], AffineStep)}
    steps: dict[int, MatrixStep] = {}
    room = _ELEMENTS
    for end in sorted(ends):
        atoms = _atoms(program, end)
        room -= _size(program, end) * sum(_size(program, v) for v in atoms)
        if room < 0 or _size(program, end) * max(_size(program, v) for v in _find_between(program, end)) > _ELEMENTS:
            return program
        steps[program.writers[end]] = _matrix_step(program, end, atoms)
    made = Program(variables=program.variables, inputs=program.inputs, numbers=program.numbers)
    for number in sorted(order):
        step = program.steps[number]
        if number in steps:
            made.append(steps[number])
        elif not isinstance(step, AffineStep):
            made.append(step)
    return made


def _size(program: Program, variable: int) -> int:
    return math.prod(program.variables[variable].shape)


def _affine_before(program: Program, end: int) -> list[int]:
    """Return the affine steps that lead to a variable with no curve between them, last first."""
    needed, found = {end}, []
    for number in range(program.writers[end], -1, -1):
        step = program.steps[number]
        if isinstance(step, AffineStep) and not needed.isdisjoint(step.writes):
            needed.update(step.reads)
            found.append(number)
    return found


def _atoms(program: Program, end: int) -> list[int]:
    steps = _affine_before(program, end)
    written = {v for i in steps for v in program.steps[i].writes}
    return sorted({v for i in steps for v in program.steps[i].reads} - written)


def _find_between(program: Program, end: int) -> set[int]:
    return {v for i in _affine_before(program, end) for v in (*program.steps[i].writes, *program.steps[i].reads)}


def _matrix_step(program: Program, end: int, atoms: Sequence[int]) -> MatrixStep:
    size = _size(program, end)
    weights: dict[int, Tensor] = {end: torch.eye(size, dtype=torch.float64).reshape(1, size, *_shape(program, end))}
    offset, error = torch.zeros(2, size, dtype=torch.float64)
    for number in _affine_before(program, end):
        step = program.steps[number]
        assert isinstance(step, AffineStep), "only affine steps were chosen"
        given = [
            weights.pop(v) if v in weights else torch.zeros(1, size, *_shape(program, v), dtype=torch.float64)
            for v in step.writes
        ]
        passed, parts = step.parts(given)
        offset, error = offset + parts[0][0], error + parts[1][0]
        for v, weight in zip(step.reads, passed, strict=True):
            weights[v] = weights[v] + weight if v in weights else weight
    matrices = [weights[v].reshape(size, -1) for v in atoms]
    terms = max(_size(program, v) for v in (end, *_find_between(program, end)))
    for v, matrix in zip(atoms, matrices, strict=True):
        low, high = program.variables[v].box
        sizes = torch.maximum(low.abs(), high.abs()).flatten()
        error = error + double_share(terms) * (matrix.abs() @ sizes) + vanishing(terms) * sizes.sum()
    error = error * (1 + double_share(terms))
    return MatrixStep(tuple(atoms), end, matrices, [_shape(program, v) for v in atoms], offset, error)


def _shape(program: Program, variable: int) -> tuple[int, ...]:
    return program.variables[variable].shape
