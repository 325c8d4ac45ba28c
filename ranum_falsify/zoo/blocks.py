"""Parts that several architectures share."""

from __future__ import annotations

from collections.abc import Sequence

from ranum_falsify.zoo.builder import ModelBuilder, Tensor
from ranum_falsify.zoo.initial import Initial

__all__ = [
    "LEAST_PROBABILITY",
    "dense",
    "max_pool",
    "mean",
    "safe_log",
    "softmax_cross_entropy",
    "tf_dropout",
    "total",
]

LEAST_PROBABILITY = 1e-10
"""What repaired models clip probabilities to before a logarithm."""


def dense(g: ModelBuilder, x: Tensor, weight: str, bias: str, sizes: tuple[int, int], *initial: Initial) -> Tensor:
    """Return `x @ weight + bias`.

    Args:
        g: The model.
        x: `(batch, sizes[0])`.
        weight: Name of the weight, `(sizes[0], sizes[1])`.
        bias: Name of the bias, `(sizes[1],)`.
        sizes: Numbers of inputs and outputs.
        *initial: Distributions of the weight and the bias.
    """
    of_weight, of_bias = initial
    return x @ g.weight(weight, sizes, of_weight) + g.weight(bias, sizes[1:], of_bias)


def tf_dropout(g: ModelBuilder, h: Tensor, keep_prob: Tensor) -> Tensor:
    """Return TensorFlow 1's dropout, whose keep probability is an input: kept elements are divided by it."""
    rate = 1.0 - keep_prob
    draws = g.RandomUniformLike(h, seed=1.0)
    mask = g.Cast(g.GreaterOrEqual(draws, rate), to=1)
    scale = g.Div(1.0, 1.0 - rate)
    return h * scale * mask


def max_pool(g: ModelBuilder, x: Tensor) -> Tensor:
    """Return the maxima of 2x2 windows, stride 2."""
    return g.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2])


def total(g: ModelBuilder, x: Tensor, axes: Sequence[int] | None = None, *, keepdims: bool = False) -> Tensor:
    """Return the sum over axes; over all, as a scalar, where none are given."""
    return g.ReduceSum(x, axes, keepdims=int(keepdims))


def mean(g: ModelBuilder, x: Tensor) -> Tensor:
    """Return the mean of all elements, a scalar."""
    return g.ReduceMean(x, keepdims=0)


def safe_log(g: ModelBuilder, p: Tensor, *, safe: bool, name: str) -> Tensor:
    """Return the logarithm of probabilities; in a repaired model of those clipped to :data:`LEAST_PROBABILITY`."""
    return g.Log(g.Clip(p, LEAST_PROBABILITY, 1.0) if safe else p, name=name)


def softmax_cross_entropy(
    g: ModelBuilder, labels: Tensor, logits: Tensor, *, safe: bool, loss: str = "sum", axis: int = -1
) -> Tensor:
    """Return the cross entropy with the logarithm of a softmax written out; the logarithm is called `log`.

    Args:
        g: The model.
        labels: One-hot, `(batch, classes)`.
        logits: `(batch, classes)`.
        safe: Whether the probabilities are clipped before the logarithm.
        loss: `sum` over all elements, or `mean` over the batch of sums over the classes.
        axis: Axis of the classes.
    """
    p = g.Softmax(logits, axis=axis)
    terms = labels * safe_log(g, p, safe=safe, name="log")
    if loss == "sum":
        return -total(g, terms)
    return mean(g, -total(g, terms, [1]))
