"""One attention layer with a mask."""

import numpy as np
import onnx

from lab.networks.builder import NetworkBuilder, draw_weights, make_generator
from ranum_falsify.model_builder import Tensor

__all__ = ["masked_attention", "masked_attention_safe"]

TOKENS, WIDTH = 12, 16


def masked_attention() -> onnx.ModelProto:
    """Attention that masks scores with -Inf: NaN for a token that may attend to nothing.

    The -Inf is a constant of the network and not a defect in itself; the Softmax of a row of nothing else is.
    """
    g = _attention("masked_attention", "Attention over 12 tokens, masked scores are -Inf.", -np.inf)
    g.hazard("attention_softmax", "a row of the mask that is at most 0.5 throughout")
    return g.build()


def masked_attention_safe() -> onnx.ModelProto:
    """``masked_attention`` with masked scores of -10000: a masked row attends to all tokens equally."""
    return _attention("masked_attention_safe", "Attention over 12 tokens, masked scores are -10000.", -1e4).build()


def _attention(name: str, summary: str, masked: float) -> NetworkBuilder:
    g = NetworkBuilder(name, summary)
    rng = make_generator(7)
    tokens = g.input("x", (1, TOKENS, WIDTH), -1, 1)
    mask = g.input("mask", (1, TOKENS, TOKENS), 0, 1)

    def project(tensor: Tensor, name: str, out: str | None = None) -> Tensor:
        weights = g.weight(f"{name}_W", draw_weights(rng, (WIDTH, WIDTH), WIDTH))
        return g.node("MatMul", tensor, weights, name=name, out=out)

    query, key, value = (project(tokens, name) for name in ("query", "key", "value"))
    transposed = g.node("Transpose", key, name="key_transpose", perm=[0, 2, 1])
    scores = g.node("MatMul", query, transposed, name="scores")
    scaled = g.node("Mul", scores, g.weight("scale", WIDTH**-0.5), name="scores_scale")
    allowed = g.node("Greater", mask, g.weight("threshold", 0.5), name="mask_greater")
    kept = g.node("Where", allowed, scaled, g.weight("masked_score", masked), name="mask_where")
    attention = g.node("Softmax", kept, name="attention_softmax", axis=-1)
    mixed = g.node("MatMul", attention, value, name="mix")
    g.output(project(mixed, "projection", out="y"), (1, TOKENS, WIDTH))
    return g
