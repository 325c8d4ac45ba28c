"""Passes whose new operators receive invalid input where those of the old model do not; outputs need not show it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.rewrite.broken.kinds import Broken, broken, constant, ranges

__all__ = ["VALIDITY"]

SIGMOID = "g (float[4] x) => (float[4] y) { y = Sigmoid(x) }"
WEIGHTS = ", ".join(str(7.5 * (-1) ** (number * number // 3)) for number in range(24))
HIDDEN = f"""g (float[1, 12] x) => (float[1, 2] y) <float[12, 2] w = {{{WEIGHTS}}}> {{
    h = MatMul(x, w) y = Sigmoid(h)
}}"""


def logistic(self: Any, op: Any, x: Any) -> Any:
    one = constant(op, 1)
    return op.Div(one, op.Add(one, op.Exp(op.Neg(x))))


VALIDITY: tuple[Broken, ...] = (
    broken(
        "lowered Sigmoid",
        SIGMOID,
        lambda self, op, x: op.Sigmoid(x),
        logistic,
        stage="invalid input on samples",
        guarantee="tolerance",
    ),
    broken(
        "lowered Sigmoid of a hidden layer",
        HIDDEN,
        lambda self, op, x: op.Sigmoid(x),
        logistic,
        stage="search for invalid input",
        guarantee="tolerance",
        box=ranges(x=(-1, 1)),
    ),
    broken(
        "Softmax without a shift",
        "g (float[2, 4] x) => (float[2, 4] y) { y = Softmax<axis = 1>(x) }",
        lambda self, op, x: op.Softmax(x),
        lambda self, op, x: op.Div(op.Exp(x), op.ReduceSum(op.Exp(x), constant(op, [1], np.int64), keepdims=1)),
        stage="invalid input on samples",
        guarantee="tolerance",
        box=ranges(x=(-100, 100)),
    ),
    broken(
        "Sqrt as a power",
        "g (float[4] x) => (float[4] y) { y = Sqrt(x) }",
        lambda self, op, x: op.Sqrt(x),
        lambda self, op, x: op.Exp(op.Mul(constant(op, 0.5), op.Log(x))),
        stage="invalid input on samples",
        guarantee="tolerance",
        box=ranges(x=(0, 4)),
    ),
    broken(
        "Mul as Div",
        """g (float[4] a, float[4] b) => (float[4] y) <float s = {0.3701}, float t = {2}> {
    c = Mul(b, t) d = Sub(c, s) y = Mul(a, d)
}""",
        lambda self, op, a, b: op.Mul(a, b),
        lambda self, op, a, b: op.Div(a, op.Reciprocal(b)),
        stage="search for invalid input",
        guarantee="tolerance",
        box=ranges(a=(1, 2), b=(0, 1)),
    ),
    broken(
        "squares of large numbers",
        "g (float[4] x) => (float[1] y) { y = ReduceL1<axes = [0], keepdims = 1>(x) }",
        lambda self, op, x: op.ReduceL1(x),
        lambda self, op, x: op.ReduceSum(op.Sqrt(op.Mul(x, x)), constant(op, [0], np.int64), keepdims=1),
        stage="invalid input on samples",
        guarantee="tolerance",
        box=ranges(x=(-3e19, 3e19)),
    ),
)
