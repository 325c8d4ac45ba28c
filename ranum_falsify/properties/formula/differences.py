"""Differences between elements of one term, all in one product."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.properties.formula.frame import Frame
from ranum_falsify.properties.formula.terms import Const, Gather, Term

__all__ = ["Differences", "flatten"]

_LARGEST = 4096
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
        if base.size * count > _LARGEST:
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
