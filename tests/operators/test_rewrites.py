"""What ONNX Runtime's optimiser does that needs no bounds of its own."""

import onnx
import pytest

from ranum_falsify.network import read
from ranum_falsify.network.optimised import optimise
from ranum_falsify.operators.relations.rewrites import is_rewritten
from tests.network.building import parse

W = "<float[2,2] w = {1, 2, 3, 4}, float[2] b = {5, 6}, float two = {2}>"

SAME = {
    "a bias beside its product": f"g (float[1,2] x) => (float[1,2] y) {W} {{ m = MatMul(x, w) y = Add(m, b) }}",
    "the bias first": f"g (float[1,2] x) => (float[1,2] y) {W} {{ m = MatMul(x, w) y = Add(b, m) }}",
    "an activation": f"g (float[1,2] x) => (float[1,2] y) {W} {{ m = MatMul(x, w) a = Add(m, b) y = Relu(a) }}",
    "an activation behind a convolution": (
        "g (float[1,1,2,2] x) => (float[1,1,2,2] y) <float[1,1,1,1] w = {2}> { c = Conv(x, w) y = Relu(c) }"
    ),
    "nothing between": f"g (float[1,2] x) => (float[1,2] y) {W} {{ i = Identity(x) d = Dropout(i) y = MatMul(d, w) }}",
    "two outputs of one": "g (float[4] x) => (float[2] y, float[2] z) { a, b = Split(x) y = Neg(a) z = Abs(b) }",
}

OTHER = {
    "a folded factor": (
        "g (float[1,1,2,2] x) => (float[1,1,2,2] y) <float[1,1,1,1] w = {2}, float[1,1,1] k = {3}>"
        "{ c = Conv(x, w) y = Mul(c, k) }"
    ),
    "merged factors": f"g (float[1,2] x) => (float[1,2] y) {W} {{ a = Mul(x, two) m = MatMul(a, w) y = Mul(m, two) }}",
    "an activation with an error of its own": (
        f"g (float[1,2] x) => (float[1,2] y) {W} {{ m = MatMul(x, w) a = Add(m, b) y = Sigmoid(a) }}"
    ),
    "half precision that is not rounded to": (
        "g (float[1] x) => (float[1] y) { a = Cast<to = 10>(x) b = Relu(a) y = Cast<to = 1>(b) }"
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_sums_in_another_order_are_the_same_graph(name: str) -> None:
    graph = read(parse(SAME[name]))
    found = optimise(graph).graph
    assert found is not None
    assert not is_rewritten(graph, found)


@pytest.mark.parametrize("name", OTHER)
def test_other_constants_functions_and_types_are_another_graph(name: str) -> None:
    graph = read(parse(OTHER[name]))
    found = optimise(graph).graph
    assert found is not None
    assert is_rewritten(graph, found)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = Gemm(x, w, b)", "y = Gemm<alpha = 2.0>(x, w, b)"),
        ("m = MatMul(x, w) y = Add(m, b)", "y = Gemm<transB = 1>(x, w, b)"),
        ("m = MatMul(x, w) y = Add(m, b)", "y = Gemm(x, w)"),
        ("y = LeakyRelu<alpha = 0.1>(x)", "y = LeakyRelu<alpha = 0.2>(x)"),
        ("n = Neg(x) y = Add(n, b)", "n = Abs(x) y = Add(n, b)"),
        ("y = Sub(x, b)", "y = Sub(b, x)"),
        ("y = Add(x, b)", "y = Add(x, two)"),
    ],
)
def test_every_attribute_and_operand_counts(before: str, after: str) -> None:
    written, graph = (read(parse(f"g (float[1,2] x) => (float[1,2] y) {W} {{ {body} }}")) for body in (before, after))
    assert is_rewritten(written, graph)
    assert not is_rewritten(written, written.copy())


def test_operators_of_another_domain_are_others() -> None:
    text = "g (float[4] x) => (float[4] y) { y = Gelu(x) }"
    model = parse(text, 20)
    model.graph.node[0].domain = "com.microsoft"
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    assert not is_rewritten(read(parse(text, 20)), read(parse(text, 20)))
    assert is_rewritten(read(model), read(parse(text, 20)))
