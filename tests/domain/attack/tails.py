"""Operators after an output that its bounds just prove: if a bound is slightly too narrow, they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ranum_falsify.domain import Interval
from ranum_falsify.network.tensors import to_numpy
from tests.domain.boxes import Array

__all__ = ["tailed"]

_SLACKS = (1, 4, 32, 1024, 2**16)
"""Distances from the bound, in units in the last place."""

_FINAL = ("Log", "Log", "Sqrt", "Reciprocal", "Div", "Pow")


def tailed(
    model: onnx.ModelProto, output: str, bounds: Interval, rng: np.random.Generator
) -> Iterator[onnx.ModelProto]:
    """Yield models with operators after an output; in earlier ones, their operands lie nearer to what they reject.

    Args:
        model: The model.
        output: One of its outputs, a floating one.
        bounds: Bounds of that output.
        rng: Source of chance.
    """
    low, high = (to_numpy(end) for end in bounds.expand())
    # The same choices for every slack.
    seed = int(rng.integers(2**32))
    kept = bool(rng.random() < 0.2)
    for slack in _SLACKS:
        tail = _Tail(model, output, low.dtype, np.random.default_rng(seed), slack, kept=kept)
        if not tail.add(low, high):
            return
        yield tail.model


class _Tail:
    """The operators that are added."""

    def __init__(
        self, model: onnx.ModelProto, output: str, dtype: Any, rng: np.random.Generator, slack: int, *, kept: bool
    ) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self._graph = self.model.graph
        self._output, self._dtype, self._rng, self._slack = output, np.dtype(dtype), rng, slack
        self._limits = np.finfo(self._dtype)
        if not kept:
            rest = [info for info in self._graph.output if info.name != output]
            del self._graph.output[:]
            self._graph.output.extend(rest)

    def add(self, low: Array, high: Array) -> bool:
        """Add one of the tails; tell whether there is one for such bounds."""
        kinds: list[Callable[[Array, Array], bool]] = [
            self._below,
            self._below,
            self._above,
            self._above,
            self._vanishing,
            self._overflowing,
            self._exponential,
        ]
        with np.errstate(all="ignore"):
            return kinds[int(self._rng.integers(len(kinds)))](low, high)

    def _below(self, low: Array, high: Array) -> bool:
        """Subtract a little less than the lower bound."""
        border = self._merged(low, np.min)
        border = (border - self._slack * np.spacing(np.abs(border))).astype(self._dtype)
        if self._rng.random() < 0.5:
            difference = self._op("Sub", self._output, self._constant(border))
        else:
            difference = self._op("Add", self._output, self._constant(-border))
        return self._finished(difference, border)

    def _above(self, low: Array, high: Array) -> bool:
        """Subtract from a little more than the upper bound."""
        border = self._merged(high, np.max)
        border = (border + self._slack * np.spacing(np.abs(border))).astype(self._dtype)
        return self._finished(self._op("Sub", self._constant(border), self._output), border)

    def _finished(self, difference: str, border: Array) -> bool:
        if not bool(np.isfinite(border).all()):
            return False
        op_type = str(self._rng.choice(_FINAL))
        if op_type == "Div":
            y = self._op("Div", self._constant(1.0), difference)
        elif op_type == "Pow":
            y = self._op("Pow", difference, self._constant(float(self._rng.choice((-1.0, 0.5, -0.5)))))
        else:
            y = self._op(op_type, difference)
        self._end(y)
        return True

    def _vanishing(self, low: Array, high: Array) -> bool:
        """Take the logarithm of a product that just does not vanish."""
        least = float(low.min())
        factor = float(self._limits.tiny) / least * (1 + self._slack * 1e-6) if least > 0 else 0.0
        if not float(self._limits.tiny) < factor < float(self._limits.max):
            return False
        self._end(self._op("Log", self._op("Mul", self._output, self._constant(factor))))
        return True

    def _overflowing(self, low: Array, high: Array) -> bool:
        """Multiply by a number with which it just does not overflow."""
        largest = float(np.maximum(np.abs(low), np.abs(high)).max())
        factor = float(self._limits.max) / largest * (1 - min(self._slack * 1e-6, 0.5)) if largest else 0.0
        if not float(self._limits.tiny) < factor < float(self._limits.max):
            return False
        self._end(self._op("Mul", self._output, self._constant(factor)))
        return True

    def _exponential(self, low: Array, high: Array) -> bool:
        """Take the exponential close to its overflow."""
        highest = float(high.max())
        border = float(np.log(np.float64(self._limits.max))) - highest
        border -= self._slack * float(self._limits.eps) * max(abs(border), abs(highest), 1.0)
        if not abs(highest) < 1e6:
            return False
        self._end(self._op("Exp", self._op("Add", self._output, self._constant(border))))
        return True

    # nodes ----------------------------------------------------------------------------------------------------------

    def _merged(self, end: Array, merge: Callable[..., Any]) -> Array:
        """Return a bound for each element, for all, or for each slice along some axes."""
        kind = self._rng.random()
        if kind < 0.35:
            return end
        if kind < 0.6:
            return np.asarray(merge(end))
        axes = tuple(i for i in range(end.ndim) if self._rng.random() < 0.5)
        return np.asarray(merge(end, axis=axes, keepdims=True))

    def _constant(self, value: Any) -> str:
        name = f"tail_c{len(self._graph.initializer)}"
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(value, self._dtype), name))
        return name

    def _op(self, op_type: str, *inputs: str) -> str:
        name = f"tail_{len(self._graph.node)}"
        self._graph.node.append(helper.make_node(op_type, inputs, [name], name=f"{name}_node"))
        return name

    def _end(self, y: str) -> None:
        element = helper.np_dtype_to_tensor_dtype(self._dtype)
        self._graph.output.append(helper.make_tensor_value_info(y, element, None))
