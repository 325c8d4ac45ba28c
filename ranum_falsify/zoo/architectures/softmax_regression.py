"""Softmax regression with the cross entropy written out."""

from __future__ import annotations

from ranum_falsify.zoo.blocks import dense, softmax_cross_entropy
from ranum_falsify.zoo.builder import ModelBuilder
from ranum_falsify.zoo.initial import Initial, zeros
from ranum_falsify.zoo.model import Defect, ZooModel

__all__ = ["MODELS", "softmax_regression"]


def softmax_regression(
    g: ModelBuilder,
    *,
    safe: bool,
    loss: str = "sum",
    weight: Initial | None = None,
    bias: Initial | None = None,
) -> None:
    """`log` is the logarithm of the softmax of `x @ W + b` on flattened MNIST images."""
    x = g.input("x", (g.batch, 784), 0.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    logits = dense(g, x, "W", "b", (784, 10), weight or zeros(), bias or zeros())
    g.output(softmax_cross_entropy(g, y, logits, safe=safe, loss=loss))


_UNDERFLOW = "a softmax entry is 0 once its logit lies about 104 below the greatest"
_REPAIR = "the softmax is clipped before the logarithm"

MODELS = (
    ZooModel(
        id="3",
        program="GitHub-IPS-9",
        framework="tf",
        build=softmax_regression,
        defects=(Defect(id="3", node="log", operator="Log", mechanism=_UNDERFLOW),),
        repair=_REPAIR,
    ),
)
