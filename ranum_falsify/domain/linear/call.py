"""A node's function with its constants in place, and the magnitudes of what it adds up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from dnnv.nn import Operation
from torch import Tensor


@dataclass(frozen=True)
class Call:
    """A node's function with its constants in place.

    Attributes:
        function: `fn(op, *operands)`.
        op: The node.
        operands: Variables by number, and constants.
        terms: Length of its sums.
        signs: For each operand, how a constant enters magnitudes: 1 added, -1 subtracted, 0 as divisor.
        outputs: Which outputs are read; all if empty.
        is_product: Whether it is a product of matrices or a convolution.
    """

    function: Callable[..., Tensor | tuple[Tensor, ...]]
    op: Operation
    operands: tuple[object, ...]
    terms: int
    signs: tuple[int, ...]
    outputs: tuple[int, ...] = ()
    is_product: bool = False

    def __call__(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Return the results for values of the variables."""
        return self._evaluate(list(values), self.operands)

    def first(self, *values: Tensor) -> Tensor:
        """Return the first result for values of the variables."""
        return self(*values)[0]

    def without_infinities(self) -> Call:
        """Return the call with 0 in place of infinite constants, except in divisors."""
        operands = tuple(
            x.masked_fill(x.isinf(), 0.0) if sign and isinstance(x, Tensor) and x.is_floating_point() else x
            for x, sign in zip(self.operands, self.signs, strict=True)
        )
        return replace(self, operands=operands)

    def _evaluate(self, values: list[Tensor], operands: Sequence[object]) -> tuple[Tensor, ...]:
        rest = iter(values)
        result = self.function(self.op, *(next(rest) if isinstance(x, int) else x for x in operands))
        whole = result if isinstance(result, tuple) else (result,)
        return tuple(whole[i] for i in self.outputs) if self.outputs else whole

    def magnitudes(self, sizes: Sequence[Tensor], spare: float, *, together: bool) -> list[Tensor]:
        """Return the sums of the magnitudes of all terms, for operands of at most these sizes.

        Each operand alone has terms of one sign once the constants do; the last entry is the term without any operand.
        """
        constants = self._sizes(spare)
        zeros = [torch.zeros_like(size) for size in sizes]
        none = self._evaluate(zeros, constants)
        parts = [[y.abs() for y in none]]
        if together:
            return [y.abs() + z.abs() for y, z in zip(self._evaluate(list(sizes), constants), none, strict=True)]
        for i, size in enumerate(sizes):
            alone = self._evaluate([size if j == i else zero for j, zero in enumerate(zeros)], constants)
            parts.append([(y - z).abs() for y, z in zip(alone, none, strict=True)])
        return [torch.stack(column).sum(0) for column in zip(*parts, strict=True)]

    def product_of_sizes(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the greatest magnitude of the part that depends on both of two operands of at most these sizes."""
        constants = self._sizes(0.0)
        zeros = [torch.zeros_like(a), torch.zeros_like(b)]
        return (self._evaluate([a, b], constants)[0] - self._evaluate(zeros, constants)[0]).abs()

    def _sizes(self, spare: float) -> list[object]:
        return [
            (sign or 1) * (x.abs() + (spare if sign else 0.0)) if isinstance(x, Tensor) and x.is_floating_point() else x
            for x, sign in zip(self.operands, self.signs, strict=True)
        ]
