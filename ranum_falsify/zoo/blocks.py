"""Parts that several architectures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.builder import ArchitectureBuilder, Initial
from ranum_falsify.zoo.model import Build, Defect, ZooModel

LEAST_NORMAL = float(np.finfo(np.float32).smallest_normal)
"""Least argument of logarithms and square roots in repaired models: clipped there, no valid argument changes."""

LEAST_COMPLEMENT = 2.0**-24
"""Least difference of 1 and a float32 below it, for the same reason the least argument where that is one."""

SOFTMAX_UNDERFLOW = "a softmax entry is 0 once its logit lies about 104 below the greatest"
"""The most frequent mechanism."""

FUSED_LOG_SOFTMAX = "the logarithm of the softmax is LogSoftmax"
"""The most frequent repair."""

SOFTPLUS_LOSS = "the cross entropy is computed from the logits, with Softplus"
"""The repair of a sigmoid's cross entropy."""


def one_defect(
    id: str,
    program: str,
    build: Build,
    *,
    framework: Literal["tf", "torch", "numpy"],
    mechanism: str = SOFTMAX_UNDERFLOW,
    repair: str = FUSED_LOG_SOFTMAX,
    node: str = "log",
    operator: str = "Log",
    graph_of_ranum: Build | None = None,
    same: tuple[str, ...] = (),
    of_ranum: tuple[str, ...] = (),
    gradient: bool = False,
) -> ZooModel:
    """Return the model of a program with one defect, of the same id; arguments are fields of both."""
    defect = Defect(
        id=id,
        node=node,
        operator=operator,
        mechanism=mechanism,
        gradient=gradient,
        same=same,
        of_ranum=of_ranum,
    )
    return ZooModel(
        id=id,
        program=program,
        framework=framework,
        build=build,
        defects=(defect,),
        repair=repair,
        of_ranum=graph_of_ranum,
    )


def dense(
    g: ArchitectureBuilder, x: Tensor, weight: str, bias: str, sizes: tuple[int, int], *initial: Initial
) -> Tensor:
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


def tf_dropout(g: ArchitectureBuilder, h: Tensor, keep_prob: Tensor) -> Tensor:
    """Return TensorFlow 1's dropout, whose keep probability is an input: kept elements are divided by it."""
    rate = 1.0 - keep_prob
    draws = g.RandomUniformLike(h, seed=1.0)
    mask = g.Cast(g.GreaterOrEqual(draws, rate), to=1)
    scale = g.Div(1.0, 1.0 - rate)
    return h * scale * mask


def max_pool(g: ArchitectureBuilder, x: Tensor) -> Tensor:
    """Return the maxima of 2x2 windows, stride 2."""
    return g.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2])


def total(g: ArchitectureBuilder, x: Tensor, axes: Sequence[int] | None = None, *, keepdims: bool = False) -> Tensor:
    """Return the sum over axes; without axes, over all elements, as a scalar."""
    return g.ReduceSum(x, axes, keepdims=int(keepdims))


def mean(g: ArchitectureBuilder, x: Tensor) -> Tensor:
    """Return the mean of all elements, a scalar."""
    return g.ReduceMean(x, keepdims=0)


def log_sigmoid_pair(g: ArchitectureBuilder, logits: Tensor, *, safe: bool) -> tuple[Tensor, Tensor]:
    """Return the logarithms of a sigmoid and of its complement, called `log_p` and `log_not_p`.

    Written out; or, in a repaired model, with Softplus nodes of these names.
    """
    if safe:
        return -g.Softplus(-logits, name="log_p"), -g.Softplus(logits, name="log_not_p")
    p = g.Sigmoid(logits)
    return g.Log(p, name="log_p"), g.Log(1.0 - p, name="log_not_p")


def one_hot(g: ArchitectureBuilder, labels: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return int64 labels `(batch,)` as rows of zeros with a one, as `zeros(shape).scatter_(1, labels, 1)` does."""
    zeros, ones = np.zeros(shape, np.float32), np.ones((shape[0], 1), np.float32)
    return g.ScatterElements(zeros, g.Unsqueeze(labels, [1]), ones, axis=1)


def log_softmax(g: ArchitectureBuilder, logits: Tensor, *, safe: bool, axis: int = -1) -> Tensor:
    """Return the logarithm of a softmax, called `log`: written out, or, in a repaired model, as one operator."""
    if safe:
        return g.LogSoftmax(logits, axis=axis, name="log")
    return g.Log(g.Softmax(logits, axis=axis), name="log")


def cross_entropy(g: ArchitectureBuilder, labels: Tensor, log_p: Tensor, *, loss: str = "sum") -> Tensor:
    """Return the cross entropy of labels and logarithms of probabilities, both `(batch, classes)`, a scalar.

    Args:
        g: The model.
        labels: One-hot.
        log_p: Logarithms of probabilities.
        loss: `sum` over all elements, or `mean` over the batch of sums over the classes.
    """
    terms = labels * log_p
    if loss == "sum":
        return -total(g, terms)
    return mean(g, -total(g, terms, [1]))


def softmax_cross_entropy(
    g: ArchitectureBuilder, labels: Tensor, logits: Tensor, *, safe: bool, loss: str = "sum"
) -> Tensor:
    """Return the cross entropy of a softmax, whose logarithm is that of :func:`log_softmax`.

    Args:
        g: The model.
        labels: One-hot, `(batch, classes)`.
        logits: `(batch, classes)`.
        safe: As in :func:`log_softmax`.
        loss: As in :func:`cross_entropy`.
    """
    return cross_entropy(g, labels, log_softmax(g, logits, safe=safe), loss=loss)
