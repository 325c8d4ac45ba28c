"""Two models compute the same: known without a run, whatever their names and copies."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from ranum_falsify.rewrite.checks.joining import Numbering
from tests.rewrite.transform_kit import model_of, proto_of

IF = """g (bool c, float[3] x) => (float[3] y) {
    p = %s(x)
    y = If(c) <then_branch = t () => (float[3] a) { a = %s(p) }, else_branch = e () => (float[3] b) { b = Neg(x) }>
}"""
LOOP = """g (float[3] x, int64 n, bool c) => (float[3] y) {
    y = Loop(n, c, x) <body = b (int64 i, bool d, float[3] s) => (bool e, float[3] r) {
        e = Identity(d) r = %s(s, x)
    }>
}"""


def is_same(old: str, new: str, opsets: tuple[int, int] = (17, 17)) -> bool:
    return Numbering().is_same(model_of(old, opsets[0]), model_of(new, opsets[1]))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "g (float[3] x) => (float[3] y) { a = Neg(x) y = Abs(a) }",
            "g (float[3] x) => (float[3] y) { b = Neg(x) y = Abs(b) }",
        ),
        (
            "g (float[3] x) => (float[3] y) { a = Identity(x) y = Abs(a) }",
            "g (float[3] x) => (float[3] y) { y = Abs(x) }",
        ),
        (
            "g (float[3] x) => (float[3] y) { a = Abs(x) b = Abs(x) y = Add(a, b) }",
            "g (float[3] x) => (float[3] y) { a = Abs(x) y = Add(a, a) }",
        ),
        (
            "g (float[3] x) => (float[3] y) { c = Constant<value_float = 2.0>() y = Mul(x, c) }",
            "g (float[3] x) => (float[3] y) <float c = {2}> { y = Mul(x, c) }",
        ),
        ("g (float[3] x) => (float[3] y) { y = Elu(x) }", "g (float[3] x) => (float[3] y) { y = Elu<alpha = 1.0>(x) }"),
        (IF % ("Abs", "Exp"), (IF % ("Abs", "Exp")).replace("a)", "q)").replace("a =", "q =")),
        (LOOP % "Add", (LOOP % "Add").replace("s)", "t)").replace("(s", "(t")),
    ],
)
def test_the_same_computation_in_other_words_is_known(old: str, new: str) -> None:
    assert is_same(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("g (float[3] x) => (float[3] y) { y = Elu(x) }", "g (float[3] x) => (float[3] y) { y = Elu<alpha = 0.5>(x) }"),
        (
            "g (float[3] a, float[3] b) => (float[3] y) { y = Sub(a, b) }",
            "g (float[3] a, float[3] b) => (float[3] y) { y = Sub(b, a) }",
        ),
        (
            "g (float[3] x) => (float[3] y) <float c = {0}> { y = Mul(x, c) }",
            "g (float[3] x) => (float[3] y) <float c = {-0.0}> { y = Mul(x, c) }",
        ),
        (
            "g (float[3] x, float c = {1}) => (float[3] y) { y = Mul(x, c) }",
            "g (float[3] x, float c = {2}) => (float[3] y) { y = Mul(x, c) }",
        ),
        ("g (float[3] x) => (float[3] y) { y = Abs(x) }", "g (float[3] x) => (float[3] y) { d = Log(x) y = Abs(x) }"),
        (
            "g (float[3] x) => (float[3] y) { r = RandomNormalLike(x) s = RandomNormalLike(x) y = Sub(r, s) }",
            "g (float[3] x) => (float[3] y) { r = RandomNormalLike(x) y = Sub(r, r) }",
        ),
        ("g (float[3] x) => (float[3] y) { y = f.Abs(x) }", "g (float[3] x) => (float[3] y) { y = f.Abs(x) }"),
        # Kernels store constants in an order of their own, and sum up in another one then.
        (
            "g (float[1, 3] x) => (float[1, 1] y) <float[3, 1] c = {1, 2, 3}> { w = Identity(c) y = MatMul(x, w) }",
            "g (float[1, 3] x) => (float[1, 1] y) <float[3, 1] c = {1, 2, 3}> { y = MatMul(x, c) }",
        ),
        (IF % ("Abs", "Exp"), IF % ("Abs", "Neg")),
        (IF % ("Abs", "Exp"), IF % ("Neg", "Exp")),
        (LOOP % "Add", LOOP % "Sub"),
        (LOOP % "Sub", (LOOP % "Sub").replace("(s, x)", "(x, s)")),
    ],
)
def test_another_computation_is_not(old: str, new: str) -> None:
    assert not is_same(old, new)


def test_what_an_operator_meant_in_another_opset_is_another_computation() -> None:
    softmax = "g (float[2, 2, 3] x) => (float[2, 2, 3] y) { y = Softmax(x) }"
    exp = "g (float[3] x) => (float[3] y) { y = Exp(x) }"
    assert not is_same(softmax, softmax, (12, 13))
    assert is_same(exp, exp, (17, 18))


def product(weights: np.ndarray) -> ir.Model:
    """A product with constants, which are a tensor of their own."""
    proto = proto_of("g (float[4096] x) => (float[4096] y) { y = Mul(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return ir.from_proto(proto)


def test_large_constants_are_told_apart_by_any_element() -> None:
    weights = np.zeros(4096, np.float32)
    numbering, others = Numbering(), [weights.copy() for _ in range(3)]
    others[1][2000], others[2][2000] = 1.0, -0.0
    found = [numbering.is_same(product(weights), product(other)) for other in others]
    assert found == [True, False, False]
    assert numbering.is_same(product(others[1]), product(others[1]))
