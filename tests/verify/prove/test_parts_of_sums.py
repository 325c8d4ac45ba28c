"""Sums of products may overflow in the parts that kernels add up, scale and add to something else, though no sum does.

ONNX Runtime's kernels take long sums block by block; where blocks end depends on the processor, so that no test says
which of these models fail there.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ranum_falsify.config import ProveConfig
from ranum_falsify.network import read
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.verify.prove.prover import Prover
from tests.network.building import unchecked
from tests.verify.search.search_kit import valid_in_box

TERMS = 1024

CASES = {
    "a bias beside a product": "g (float[2,1024] x) => (float[2,4] y) { a = MatMul(x, w) y = Add(a, b) }",
    "a bias before a product": "g (float[2,1024] x) => (float[2,4] y) { a = MatMul(x, w) y = Add(b, a) }",
    "a sum of two": "g (float[2,1024] x) => (float[2,4] y) { a = MatMul(x, w) y = Sum(a, b) }",
    "a scaled bias": "g (float[2,1024] x) => (float[2,4] y) { y = Gemm<beta = 0.9>(x, w, b) }",
    "a scaled product": "g (float[2,1024] x) => (float[2,4] y) { y = Gemm<alpha = 4.0>(x, w) }",
    "a factor of a product": "g (float[2,1024] x) => (float[2,4] y) <float k = {4}> { a = MatMul(x, w) y = Mul(a, k) }",
    "a bias of its own and another": "g (float[2,1024] x) => (float[2,4] y) "
    "{ a = Gemm<beta = 0.5>(x, w, b) y = Add(a, h) }",
    "what a convolution is added to": "g (float[1,1024,3,3] x, float[1,4,3,3] z) => (float[1,4,3,3] y)"
    "{ a = Conv(x, v) y = Add(a, z) }",
    "a convolution, a sum and an activation": "g (float[1,1024,3,3] x, float[1,4,3,3] z) => (float[1,4,3,3] y)"
    "{ a = Conv(x, v) s = Add(a, z) y = Relu(s) }",
}


def model_of(text: str, size: float) -> onnx.ModelProto:
    """Return a model whose weights add up to 0, each half of them to a size."""
    weights = np.full((TERMS, 4), size / TERMS * 2, np.float32)
    weights[TERMS // 2 :] *= -1
    bias = np.full(4, 2.2 * size, np.float32)
    model = unchecked(text)
    filters = weights.T.reshape(4, TERMS, 1, 1)
    for name, array in (("w", weights), ("v", filters), ("b", bias), ("h", bias / np.float32(2))):
        if any(name in node.input for node in model.graph.node):
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.checker.check_model(model)
    return model


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_parts_that_may_overflow_are_not_proved(text: str) -> None:
    for size, holds in ((1.5e38, False), (1e30, True)):
        graph = read(model_of(text, size))
        bounds = [(1.0, 1.0), (2.2 * size, 2.2 * size)][: len(graph.inputs)]
        prover = Prover(valid_in_box(graph, bounds), ProveConfig(runtime=("onnxruntime",)))
        proof = prover.analyse()
        if not holds:
            proof = prover.refine(Deadline.after(2))
        assert proof.holds is holds
