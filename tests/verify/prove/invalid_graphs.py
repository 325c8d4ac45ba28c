"""Random models of operators that may be invalid, and of others that take out, swallow or forget what these make."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from ranum_falsify.model_builder import ModelBuilder, Tensor
from tests.domain.boxes import Array, Feeds

SHAPE = (2, 4)
_NUMBERS = (0, 1, -1, 2, 0.5, 5, -3e38, 3e38, 1e-38, 1e30, np.inf, -np.inf)
_UNARY = "Log Sqrt Reciprocal Exp Relu Sigmoid Tanh Abs Neg Sign Floor Erf Softplus Elu HardSigmoid".split()
_BINARY = "Add Add Sub Sub Mul Div Max Min".split()
_REDUCTIONS = "ReduceMax ReduceMin ReduceSum ReduceMean ReduceL2 ReduceLogSumExp".split()
_COMPARISONS = "Greater Less GreaterOrEqual LessOrEqual Equal".split()


class InvalidGraph:
    """A model of some random nodes, each of the last few tensors, and a box.

    Attributes:
        model: The model, of inputs x and y of :data:`SHAPE` and of a mask m.
        exposed: The same with all tensors as outputs.
        low: Lower bounds of the inputs.
        high: Upper bounds.
    """

    def __init__(self, seed: int) -> None:
        """Draw them."""
        self._rng, self._g = np.random.default_rng(seed), ModelBuilder(opset=18)
        self._numbers = [self._g.input(name, SHAPE) for name in "xy"]
        self._tests = [self._g.input("m", SHAPE, dtype="bool")]
        for _ in range(self._rng.integers(3, 12)):
            self._pick((self._add_number, self._add_number, self._add_number, self._add_test))()
        for tensor in dict.fromkeys([self._numbers[-1].name, self._numbers[-2].name]):
            self._g.output(self._g.Identity(Tensor(self._g, tensor)))
        self.model = onnx.shape_inference.infer_shapes(self._g.build())
        self.exposed = copy.deepcopy(self.model)
        self.exposed.graph.output.extend(self.model.graph.value_info)
        self.low: dict[str, Array] = {"m": np.zeros(SHAPE, bool)}
        self.high: dict[str, Array] = {"m": np.ones(SHAPE, bool)}
        for name in "xy":
            size = self._pick((1.0, 100.0, 3e38))
            self.low[name] = np.full(SHAPE, self._pick((-size, -size, 0.0)), np.float32)
            self.high[name] = np.full(SHAPE, size, np.float32)

    def _pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self._rng.integers(len(choices)))]

    def _number(self) -> Any:
        return self._pick(self._numbers[-5:])

    def _other(self) -> Any:
        """Return a tensor, a number or a row of numbers."""
        drawn = self._rng.choice(_NUMBERS, size=self._pick(((), (4,)))).astype(np.float32)
        return self._pick((self._number(), drawn))

    def _add_test(self) -> None:
        g, a, b = self._g, self._pick(self._tests), self._pick(self._tests)
        makers: tuple[Callable[[], Tensor], ...] = (
            lambda: getattr(g, self._pick(_COMPARISONS))(self._number(), self._other()),
            lambda: getattr(g, self._pick(("IsNaN", "IsNaN", "IsInf")))(self._number()),
            lambda: g.Not(a),
            lambda: getattr(g, self._pick(("And", "Or", "Xor")))(a, b),
        )
        self._tests.append(self._pick(makers)())

    def _add_number(self) -> None:
        g, x, y = self._g, self._number(), self._other()
        makers: tuple[Callable[[], Tensor], ...] = (
            lambda: getattr(g, self._pick(_UNARY))(x),
            lambda: getattr(g, self._pick(_UNARY))(x),
            lambda: getattr(g, self._pick(_BINARY))(x, y),
            lambda: getattr(g, self._pick(_BINARY))(x, y),
            lambda: g.Where(self._pick(self._tests), *self._pick(([x, y], [y, x]))),
            lambda: g.Where(self._pick(self._tests), *self._pick(([x, y], [y, x]))),
            lambda: getattr(g, self._pick(("Max", "Min")))(x, y, self._number()),
            lambda: getattr(g, self._pick(("Softmax", "LogSoftmax")))(x, axis=-1),
            lambda: self._reduced(x),
            lambda: self._reduced(x),
            lambda: self._reduced(x),
            lambda: g.Clip(x, np.float32(self._pick((-1, 0))), np.float32(self._pick((1, 3)))),
            lambda: g.MatMul(x, self._rng.choice([-1, 0, 0, 0.5, 1, 1, 3e38], size=(4, 4)).astype(np.float32)),
            lambda: self._scattered(x),
            lambda: g.Gather(x, self._rng.integers(0, 4, 4), axis=1),
            lambda: g.LayerNormalization(x, np.ones(4, np.float32), np.zeros(4, np.float32), axis=-1),
            lambda: g.Cast(g.Cast(x, to=self._pick((6, 7, 9))), to=1),
            lambda: g.Pow(x, np.float32(self._pick((2, 0.5, -1, 3, 0)))),
            lambda: g.CumSum(x, np.array(1)),
        )
        self._numbers.append(self._pick(makers)())

    def _reduced(self, x: Tensor) -> Any:
        reduced = getattr(self._g, self._pick(_REDUCTIONS))(x, np.array([1]), keepdims=1)
        return getattr(self._g, self._pick(("Sub", "Div", "Add")))(x, reduced)

    def _scattered(self, x: Tensor) -> Any:
        how = self._pick(("min", "max", "add", "mul"))
        return self._g.ScatterElements(x, self._rng.integers(0, 4, SHAPE), self._number(), axis=1, reduction=how)

    def draw(self) -> Feeds:
        """Draw a point: ends, middles, zeros and numbers between."""
        point: dict[str, Array] = {}
        for name, low in self.low.items():
            share = self._rng.choice((0.0, 1.0, 0.5, self._rng.random()), size=SHAPE)
            if low.dtype == np.bool_:
                point[name] = share > self._pick((0.2, 0.5, 0.9))
                continue
            x = low * (1 - share) + self.high[name] * share
            point[name] = np.where(self._rng.random(SHAPE) < 0.2, 0, x).astype(np.float32).clip(low, self.high[name])
        return point
