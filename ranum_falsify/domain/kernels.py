"""How far the kernels of each runtime stray from the functions that they approximate.

Measured by `scripts/measure_kernels.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import torch

__all__ = ["EXACT", "RUNTIMES", "Envelope", "Runtime", "envelope"]

Runtime = str
RUNTIMES: tuple[Runtime, ...] = ("onnxruntime", "torch", "exact")
"""ONNX Runtime on the CPU, PyTorch on the CPU, and a correctly rounded evaluation."""


@dataclass(frozen=True)
class Envelope:
    """Where a kernel's results lie around the value f of the function: |result - f| <= relative * |f| + absolute.

    Attributes:
        relative: Relative error.
        absolute: Absolute error.
        lowest: No result lies below it.
        highest: No result lies above it.
    """

    relative: float
    absolute: float = 0.0
    lowest: float = -math.inf
    highest: float = math.inf

    def union(self, other: Envelope) -> Envelope:
        """Return the envelope of both kernels."""
        return Envelope(
            max(self.relative, other.relative),
            max(self.absolute, other.absolute),
            min(self.lowest, other.lowest),
            max(self.highest, other.highest),
        )


EXACT = Envelope(0.0)
"""A function that every runtime computes exactly, or rounds correctly."""

_ENVELOPES: dict[tuple[str, Runtime], Envelope] = {}


@cache
def envelope(function: str, dtype: torch.dtype, runtimes: Iterable[Runtime]) -> Envelope:
    """Return the envelope of a function's kernels.

    Args:
        function: ONNX name of the operator.
        dtype: Element type of the operand.
        runtimes: Runtimes to cover.

    Raises:
        KeyError: The function was not measured.
    """
    raise KeyError(function)
