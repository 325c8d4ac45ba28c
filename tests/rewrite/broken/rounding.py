"""Passes that are right in real arithmetic, or nearly, and wrong in floating point."""

from __future__ import annotations

import numpy as np

from tests.rewrite.broken.kinds import Broken, broken, constant, ranges

__all__ = ["ROUNDING"]

ONE_ULP = float(np.nextafter(np.float32(1), np.float32(2)))
RELU = "g (float[4] x) => (float[4] y) { y = Relu(x) }"
HALF = """g (float16[4] x, float16[4] scale) => (float16[4] y) { s = Mul(x, scale) y = Mul(s, s) }"""

ROUNDING: tuple[Broken, ...] = (
    broken(
        "off by one ulp",
        RELU,
        lambda self, op, x: op.Relu(x),
        lambda self, op, x: op.Mul(op.Relu(x), constant(op, ONE_ULP)),
    ),
    broken(
        "lost sign of zero",
        "g (float[4] x) => (float[4] y) { y = Identity(x) }",
        lambda self, op, x: op.Identity(x),
        lambda self, op, x: op.Add(x, constant(op, 0)),
    ),
    broken(
        "lost denormals",
        "g (float[4] x) => (float[4] y) { y = Identity(x) }",
        lambda self, op, x: op.Identity(x),
        lambda self, op, x: op.Mul(op.Mul(x, constant(op, 2.0**-20)), constant(op, 2.0**20)),
    ),
    broken(
        "lost NaN",
        "g (float[4] x) => (float[4] y) { l = Log(x) y = Relu(l) }",
        lambda self, op, x: op.Relu(x),
        lambda self, op, x: op.Where(op.Greater(x, constant(op, 0)), x, constant(op, 0)),
    ),
    broken(
        "lost infinity",
        "g (float[4] x) => (float[4] y) { y = Identity(x) }",
        lambda self, op, x: op.Identity(x),
        lambda self, op, x: op.Sub(op.Add(x, x), x),
        stage="invalid input on samples",
        guarantee="equality but for signs of zero",
    ),
    broken(
        "float16 overflow",
        HALF,
        lambda self, op, x, scale: op.Mul(op.Mul(x, scale), op.Mul(x, scale)),
        lambda self, op, x, scale: op.Mul(op.Mul(x, x), op.Mul(scale, scale)),
        stage="invalid input on samples",
        guarantee="tolerance",
        box=ranges(x=(200, 400), scale=(0.001, 0.01)),
    ),
    broken(
        "half precision inside",
        "g (float[4, 4] a, float[4, 4] b) => (float[4, 4] y) { y = MatMul(a, b) }",
        lambda self, op, a, b: op.MatMul(a, b),
        lambda self, op, a, b: op.Cast(op.MatMul(op.Cast(a, to=10), op.Cast(b, to=10)), to=1),
        guarantee="tolerance",
        box=ranges(a=(-1, 1), b=(-1, 1)),
    ),
    broken(
        "halves rounded up",
        "g (float[4] x) => (float[4] y) { y = Round(x) }",
        lambda self, op, x: op.Round(x),
        lambda self, op, x: op.Floor(op.Add(x, constant(op, 0.5))),
        guarantee="equality but for signs of zero",
        box=ranges(x=(-8, 8)),
    ),
    broken(
        "off by one among large integers",
        "g (int64[4] x) => (int64[4] y) { y = Neg(x) }",
        lambda self, op, x: op.Neg(x),
        lambda self, op, x: op.Sub(op.Neg(x), constant(op, 1, np.int64)),
        guarantee="tolerance",
        box=ranges(x=(2**60, 2**60)),
    ),
    broken(
        "strict comparison",
        "g (float[4] x) => (bool[4] y) <float limit = {0.3}> { y = Greater(x, limit) }",
        lambda self, op, x, limit: op.Greater(x, limit),
        lambda self, op, x, limit: op.GreaterOrEqual(x, limit),
        box=ranges(x=(-1, 1)),
    ),
)
