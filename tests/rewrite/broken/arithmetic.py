"""Passes that compute something else almost everywhere: axes, operands, biases, attributes."""

from __future__ import annotations

import numpy as np

from tests.rewrite.broken.kinds import Broken, broken, constant, ranges

__all__ = ["ARITHMETIC"]

SUM = "g (float[3, 3] x) => (float[3, 1] y) { axes = Constant<value_ints = [1]>() y = ReduceSum(x, axes) }"
GEMM = """g (float[2, 3] x) => (float[2, 3] y) <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[3] b = {1, -2, 3}> {
    y = Gemm(x, w, b)
}"""
POOL = "g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y) { y = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x) }"
CONV = """g (float[1, 1, 5] x) => (float[1, 1, 5] y) <float[1, 1, 3] w = {1, 2, 3}> {
    y = Conv<pads = [2, 2], dilations = [2]>(x, w)
}"""
NORM = """g (float[1, 2] x) => (float[1, 2] y)
    <float[2] s = {1, 2}, float[2] b = {0, 1}, float[2] m = {0.5, -0.5}, float[2] v = {0.01, 0.02}> {
    y = BatchNormalization<epsilon = 0.001>(x, s, b, m, v)
}"""
PAIR = "g (float[3, 3] a, float[3, 3] b) => (float[3, 3] y) { y = %s(a, b) }"


ARITHMETIC: tuple[Broken, ...] = (
    broken(
        "wrong axis",
        SUM,
        lambda self, op, x: op.ReduceSum(x, _allow_other_inputs=True),
        lambda self, op, x: op.Transpose(op.ReduceSum(x, constant(op, [0], np.int64), keepdims=1), perm=[1, 0]),
    ),
    broken("dropped bias", GEMM, lambda self, op, x, w, b: op.Gemm(x, w, b), lambda self, op, x, w, b: op.MatMul(x, w)),
    broken(
        "bias along the wrong axis",
        "g (float[3, 3] x) => (float[3, 3] y) <float[3] b = {1, -2, 3}> { y = Add(x, b) }",
        lambda self, op, x, b: op.Add(x, b),
        lambda self, op, x, b: op.Add(x, op.Unsqueeze(b, constant(op, [1], np.int64))),
    ),
    broken("swapped operands", PAIR % "Sub", lambda self, op, a, b: op.Sub(a, b), lambda self, op, a, b: op.Sub(b, a)),
    broken(
        "padded with zeros",
        POOL,
        lambda self, op, x: op.MaxPool(x),
        lambda self, op, x: op.MaxPool(
            op.Pad(x, constant(op, [0, 0, 1, 1, 0, 0, 1, 1], np.int64)), kernel_shape=[3, 3]
        ),
    ),
    broken(
        "lost dilation",
        CONV,
        lambda self, op, x, w: op.Conv(x, w),
        lambda self, op, x, w: op.Conv(x, w, pads=[1, 1]),
        guarantee="tolerance",
    ),
    broken(
        "lost epsilon",
        NORM,
        lambda self, op, x, s, b, m, v: op.BatchNormalization(x, s, b, m, v),
        lambda self, op, x, s, b, m, v: op.Add(op.Mul(op.Div(op.Sub(x, m), op.Sqrt(v)), s), b),
        guarantee="tolerance",
    ),
    broken(
        "default axis of another opset",
        "g (float[2, 2, 3] x) => (float[2, 2, 3] y) { y = Softmax(x) }",
        lambda self, op, x: op.Softmax(x),
        lambda self, op, x: op.Softmax(x, axis=1),
        guarantee="tolerance",
    ),
    broken(
        "last of equal elements",
        "g (float[2, 4] x) => (int64[2] y) { y = ArgMax<axis = 1, keepdims = 0>(x) }",
        lambda self, op, x: op.ArgMax(x),
        lambda self, op, x: op.ArgMax(x, axis=1, keepdims=0, select_last_index=1),
    ),
    broken(
        "rounded towards zero",
        "g (int32[4] x) => (int32[4] y) <int32 two = {2}> { y = Div(x, two) }",
        lambda self, op, x, two: op.Div(x, two),
        lambda self, op, x, two: op.Cast(op.Floor(op.Mul(op.Cast(x, to=1), constant(op, 0.5))), to=6),
        box=ranges(x=(-5, 5)),
    ),
    broken(
        "integers through floats",
        "g (int64[4] a, int64[4] b) => (int64[4] y) { y = Add(a, b) }",
        lambda self, op, a, b: op.Add(a, b),
        lambda self, op, a, b: op.Cast(op.Add(op.Cast(a, to=1), op.Cast(b, to=1)), to=7),
        box=ranges(a=(-1e9, 1e9), b=(-1e9, 1e9)),
    ),
    broken(
        "integer overflow",
        "g (int32[4] a, int32[4] b) => (int32[4] y) { y = Max(a, b) }",
        lambda self, op, a, b: op.Max(a, b),
        lambda self, op, a, b: op.Add(op.Relu(op.Sub(a, b)), b),
        box=ranges(a=(-2e9, 2e9), b=(-2e9, 2e9)),
    ),
)
