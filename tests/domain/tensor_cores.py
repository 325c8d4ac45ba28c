"""Products as NVIDIA's tensor cores may add them up: sums that cut, in blocks, in parts, of factors of fewer bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tests.network.building import Array

LEAST = -126
"""Exponent of the smallest normal float32 number."""


def _cut(x: Array, exponent: Array) -> Array:
    """Return float64 numbers without what lies below the 24 bits of a float32 number of some exponent."""
    quantum = np.exp2(np.maximum(exponent, LEAST) - 23.0)
    return np.asarray(np.trunc(x / quantum) * quantum)


def _exponent(x: Array) -> Array:
    return np.asarray(np.frexp(np.where(x == 0, 2.0**-200, x))[1] - 1.0)


@dataclass(frozen=True)
class TensorCores:
    """One way to compute a product.

    Attributes:
        rng: Chooses the order, and how each factor is rounded.
        block: How many products are added to a sum at once.
        parts: Into how many sums the products are divided.
        factor_bits: Significant bits of float32 factors; 0 for all.
        between: Whether parts of the sum are rounded to the operands' type.
        flushes: Whether denormal factors count as 0.
    """

    rng: np.random.Generator
    block: int
    parts: int
    factor_bits: int
    between: bool
    flushes: bool

    def __call__(self, a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the product of matrices, and a bias added to one of its parts."""
        dtype = a.dtype
        x, y = self._factor(a)[:, :, None], self._factor(b)[None]
        products = (x * y)[:, self.rng.permutation(a.shape[1])]
        start = np.zeros((a.shape[0], b.shape[1])) + (0.0 if bias is None else bias.double().numpy())
        sums = []
        for i, part in enumerate(np.array_split(products, min(self.parts, a.shape[1]), axis=1)):
            total = start if i == 0 else np.zeros_like(start)
            for j in range(0, part.shape[1], self.block):
                total = self._add(total, part[:, j : j + self.block])
            sums.append(total)
        work = dtype if self.between else torch.float32
        whole = torch.from_numpy(sums[0]).to(torch.float32).to(work)
        for total in sums[1:]:
            whole = whole + torch.from_numpy(total).to(torch.float32).to(work)
        return whole.to(dtype)

    def _add(self, total: Array, products: Array) -> Array:
        terms = np.concatenate([total[:, None], products], axis=1)
        whole = _cut(terms, _exponent(np.abs(terms).max(1, keepdims=True))).sum(1)
        return _cut(whole, _exponent(whole))

    def _factor(self, x: Tensor) -> Array:
        value = x.double().numpy()
        if self.flushes:
            value = np.where(np.abs(value) < torch.finfo(x.dtype).tiny, 0.0, value)
        if x.dtype is not torch.float32 or not self.factor_bits:
            return value
        quantum = np.exp2(np.maximum(_exponent(value), LEAST) - (self.factor_bits - 1.0))
        ways: list[Callable[[Array], Array]] = [
            np.trunc,
            np.rint,
            lambda v: np.sign(v) * np.floor(abs(v) + 0.5),
        ]
        return np.asarray(ways[self.rng.integers(3)](value / quantum) * quantum)


def draw(rng: np.random.Generator, *, factor_bits: int, between: bool) -> TensorCores:
    """Return a way to compute products of some settings."""
    block, parts = int(rng.choice([1, 4, 8, 16])), int(rng.choice([1, 1, 2, 5, 1000] if between else [1, 1, 2, 5]))
    return TensorCores(rng, block, parts, factor_bits, between, bool(rng.integers(2)))
