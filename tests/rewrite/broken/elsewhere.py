"""Passes that are right on most inputs, and wrong on few."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.rewrite.broken.kinds import Broken, broken, constant, ranges

__all__ = ["ELSEWHERE"]

UNIT = ranges(x=(-1, 1))
RELU = "g (float[6] x) => (float[6] y) { y = Relu(x) }"
DEEP = """g (float[1, 6] x) => (float[1, 6] y)
    <float[6, 6] w = {1, -1, 0, 0, 0, 0,  0, 1, -1, 0, 0, 0,  0, 0, 1, 1, 0, 0,
                      0, 0, 0, 1, -1, 0,  0, 0, 0, 0, 1, 1,  1, 0, 0, 0, 0, -1}> {
    h = MatMul(x, w) r = Relu(h) y = MatMul(r, w)
}"""


def tent(op: Any, value: Any, middle: float, radius: float) -> Any:
    """More than 0 within a radius of the middle alone."""
    return op.Relu(op.Sub(constant(op, radius), op.Abs(op.Sub(value, constant(op, middle)))))


def element(op: Any, x: Any, index: int) -> Any:
    return op.Gather(x, constant(op, [index], np.int64))


def on_relu(wrong: Any) -> Any:
    return lambda self, op, x: op.Add(op.Relu(x), wrong(op, x))


def matched(self: Any, op: Any, x: Any) -> Any:
    return op.Relu(x)


ELSEWHERE: tuple[Broken, ...] = (
    broken(
        "wrong beyond 0.9 of one element",
        RELU,
        matched,
        on_relu(lambda op, x: op.Relu(op.Sub(element(op, x, 2), constant(op, 0.9)))),
        guarantee="tolerance",
        box=UNIT,
    ),
    broken(
        "wrong in a slab",
        RELU,
        matched,
        on_relu(lambda op, x: tent(op, element(op, x, 3), 0.613, 0.004)),
        stage="search",
        guarantee="tolerance",
        box=UNIT,
    ),
    broken(
        "wrong in a slab of a product",
        RELU,
        matched,
        on_relu(lambda op, x: tent(op, op.Mul(element(op, x, 0), element(op, x, 5)), 0.4321, 0.003)),
        stage="search",
        guarantee="tolerance",
        box=UNIT,
    ),
    broken(
        "wrong near one point",
        RELU,
        matched,
        on_relu(
            lambda op, x: op.Relu(
                op.Sub(constant(op, 0.2), op.ReduceSum(op.Abs(op.Sub(x, constant(op, [0.3] * 6))), keepdims=0))
            )
        ),
        stage="search",
        guarantee="tolerance",
        box=UNIT,
    ),
    broken(
        "wrong where all are above 0.97",
        RELU,
        matched,
        on_relu(lambda op, x: op.Relu(op.Sub(op.ReduceMin(x), constant(op, 0.97)))),
        guarantee="tolerance",
        box=ranges(x=(-1, 2)),
    ),
    broken(
        "wrong in a slab of a hidden layer",
        DEEP,
        matched,
        on_relu(lambda op, x: tent(op, op.ReduceSum(x, keepdims=1), 3.2, 0.01)),
        stage="search",
        guarantee="tolerance",
        box=UNIT,
    ),
    broken(
        "clipped at a height that is hardly reached",
        DEEP,
        matched,
        lambda self, op, x: op.Clip(x, constant(op, 0), constant(op, 1.99)),
        box=UNIT,
    ),
    broken(
        "wrong on a needle",
        "g (float[1] x) => (float[1] y) { y = Relu(x) }",
        matched,
        on_relu(lambda op, x: op.Mul(tent(op, x, 0.7071, 1e-5), constant(op, 1000))),
        stage="search",
        guarantee="tolerance",
        box=UNIT,
    ),
)
