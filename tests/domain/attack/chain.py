"""Models that ONNX Runtime's optimiser rewrites: chains of fragments whose constants lie at the ends of their type.

Products that a fusion computes may overflow or vanish although no number of the graph as written does.  So a chain
tracks the decimal exponents of its tensors, and draws constants that take them far away and back again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.domain.boxes import Array
from tests.domain.maker import OPSET, Maker, Unfit

__all__ = ["ATTACKS", "OPSETS", "Chain", "attack"]

OPSETS = (11, 12, 13, 13, 17, 17, 18, 20, OPSET, OPSET, 22, 23)
"""Opsets: other versions spell operators differently, and the optimiser looks for other patterns."""

ATTACKS: dict[str, list[Callable[[Chain], None]]] = {}
"""The fragments of chains, by family."""

_OPERAND_SINCE = {"Squeeze": (13, "axes"), "Unsqueeze": (13, "axes"), "ReduceSum": (13, "axes"), "Split": (13, "split")}
"""Since which opset the second operand is no attribute; see `_operand_since`."""

_SPANS = {np.dtype(np.float16): 3, np.dtype(np.float32): 35, np.dtype(np.float64): 290}
"""Decimal exponents within which tensors stay, with room for sums."""


def attack(function: Callable[[Chain], None]) -> Callable[[Chain], None]:
    """Register a fragment, under the name of its module as the family."""
    ATTACKS.setdefault(function.__module__.rpartition(".")[2], []).append(function)
    return function


def _operand_since(op_type: str) -> tuple[int, str]:
    return _OPERAND_SINCE.get(op_type, (18, "axes") if op_type.startswith("Reduce") else (0, ""))


class Chain(Maker):
    """A model whose fragments follow one another.

    Attributes:
        exponents: Approximate decimal exponents of tensors; 0 if there is none.
        whole: Type of most quantised values.
        far: Whether tensors are far from 1, so that constants bring them to the other side of it.
    """

    def __init__(self, rng: np.random.Generator, dtype: Any = np.float32, opset: int = OPSET) -> None:
        super().__init__(rng, dtype, opset=opset)
        self.exponents: dict[str, int] = {}
        self.far = self.chance(0.4)
        self.whole: type = self.one_of(np.uint8, np.int8)

    def ops(self, op_type: str, *inputs: str, outputs: int, **attributes: Any) -> tuple[str, ...]:
        """See :meth:`Maker.ops`; what is an attribute at this opset may be given as a constant operand."""
        since, name = _operand_since(op_type)
        if self.opset < since and len(inputs) == 2 and inputs[1] in self._constants:
            attributes[name] = numpy_helper.to_array(self._constants[inputs[1]]).tolist()
            inputs = inputs[:1]
        return super().ops(op_type, *inputs, outputs=outputs, **attributes)

    @property
    def span(self) -> int:
        """The largest decimal exponent that tensors may have."""
        return _SPANS[self.dtype]

    def source(self, name: str, shape: Sequence[int]) -> str:
        """Add an input, with values to lay boxes around: ordinary ones, or far from 1."""
        exponent = int(self.rng.integers(-self.span, self.span + 1)) if self.far or self.chance(0.1) else 0
        values = self.rng.uniform(-2, 2, shape)
        sign = self.one_of(None, None, 1, 1, -1)
        if sign is not None:
            values = sign * np.abs(values)
        with np.errstate(all="ignore"):
            self.freed[name] = (values * 10.0**exponent).astype(self.dtype)
        self.exponents[name] = exponent
        return self.input(name, shape)

    def chance(self, share: float) -> bool:
        """Decide by chance whether to do something."""
        return bool(self.rng.random() < share)

    def element_of(self, x: str) -> int:
        """Return the ONNX number of a tensor's type."""
        return int(self._types[x].tensor_type.elem_type)

    def exponent(self, x: str) -> int:
        """Return the approximate decimal exponent of a tensor."""
        return self.exponents.get(x, 0)

    def shift(self, x: str) -> int:
        """Return by how much to change a tensor's exponent: rarely, or from one side of 1 towards the other."""
        exponent = self.exponent(x)
        if not self.far:
            return 0 if self.chance(0.8) else int(self.rng.integers(-3, 4)) if self.span > 3 else 0
        if self.chance(0.2):
            return 0
        sign = -np.sign(exponent) or self.one_of(-1, 1)
        by = sign * int(self.rng.integers(self.span // 3, self.span + 1))
        return int(np.clip(exponent + by, -self.span, self.span)) - exponent

    def sized(self, exponent: int, *shape: int) -> str:
        """Return the name of a constant with a decimal exponent; some of its elements are 0 or of one sign."""
        values = self.rng.uniform(0.3, 3, shape)
        kind = self.rng.random()
        if kind < 0.5:
            values = values * self.rng.choice((-1.0, 1.0), shape)
        elif kind < 0.6:
            values = np.where(self.rng.random(shape) < 0.3, 0.0, values)
        elif kind < 0.7:
            values = np.sign(values)
        scaled = self.scaled(values, exponent)
        if self.chance(0.06):
            limits = np.finfo(self.dtype)
            odd = self.one_of(0.0, -0.0, limits.smallest_subnormal, limits.tiny, -limits.tiny / 2, limits.max / 4)
            scaled = np.where(self.rng.random(shape) < 0.3, odd, scaled)
        return self.constant(scaled)

    def scaled(self, values: Array | float, exponent: int) -> Array:
        """Return values times a power of ten, within the floating type."""
        limits = np.finfo(self.dtype)
        with np.errstate(all="ignore"):
            sized = np.asarray(values, np.float64) * np.float64(10.0) ** exponent
            return np.asarray(np.clip(np.nan_to_num(sized, posinf=np.inf, neginf=-np.inf), limits.min, limits.max))

    def grown(self, y: str, x: str, by: int = 0) -> str:
        """Note the exponent of a tensor: that of another one, and so much more."""
        self.exponents[y] = self.exponent(x) + by
        return y

    def end(self, y: str, x: str, by: int = 0) -> None:
        """Let later fragments read a tensor, whose exponent is that of another one plus a number."""
        self.grown(y, x, by)
        self.keep(y)
        self.exponents[self.live[-1]] = self.exponents[y]

    def last(self, *ranks: int) -> str:
        """Return the newest tensor of one of the ranks, rarely an older one."""
        if self.chance(0.25):
            return self.pick(*ranks)
        for name in reversed(self.live):
            if not ranks or len(self.shape(name)) in ranks:
                return name
        raise Unfit(f"no tensor of rank {ranks}")

    def moderate(self, *ranks: int) -> str:
        """Return a tensor whose elements are about 1, for functions that vary only there."""
        x = self.last(*ranks)
        by = -self.exponent(x)
        if abs(by) < 2:
            return x
        return self.grown(self.op("Mul", x, self.constant(self.scaled(1.0, by))), x, by)

    def reduced(self, op_type: str, x: str, *axes: int) -> str:
        """Add a reduction that keeps dimensions."""
        return self.op(op_type, x, self.ints(*axes), keepdims=1)

    def cast(self, x: str, element: int) -> str:
        """Add a conversion."""
        return self.op("Cast", x, to=element)

    @contextmanager
    def typed(self, dtype: Any) -> Iterator[int]:
        """Make constants of another floating type in the block; yields its ONNX number."""
        before, self.dtype = self.dtype, np.dtype(dtype)
        try:
            yield self.element
        finally:
            self.dtype = before

    def between(self, x: str) -> str:
        """Put nothing, or an operator that changes nothing, between two others."""
        kind = self.rng.random()
        if kind < 0.85:
            return x
        if kind < 0.93:
            return self.grown(self.op("Identity", x), x)
        return self.grown(self.ops("Dropout", x, outputs=1)[0], x)

    def swapped(self, op_type: str, x: str, y: str) -> str:
        """Add a commutative operator, its operands in either order."""
        return self.op(op_type, *((x, y) if self.chance(0.5) else (y, x)))
