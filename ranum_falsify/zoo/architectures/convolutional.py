"""Convolutional classifiers of MNIST with the cross entropy written out."""

from __future__ import annotations

from functools import partial

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import (
    FUSED_LOG_SOFTMAX,
    SOFTMAX_UNDERFLOW,
    dense,
    max_pool,
    softmax_cross_entropy,
    tf_dropout,
)
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import constant, truncated_normal, zeros
from ranum_falsify.zoo.model import Build, Defect, ZooModel


def two_convolutions(
    g: ArchitectureBuilder, *, safe: bool, loss: str = "sum", dropout: bool = True, flattened: bool = True
) -> None:
    """The network of TensorFlow's tutorial; `log` is the logarithm of its softmax."""
    x = g.input("x", (g.batch, 784) if flattened else (g.batch, 28, 28, 1), 0.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    image = g.Reshape(x, [-1, 28, 28, 1]) if flattened else x
    h = _convolution(g, _channels_first(g, image), "conv1", (1, 32))
    h = _convolution(g, max_pool(g, h), "conv2", (32, 64))
    h = g.Relu(_full(g, _channels_last(g, max_pool(g, h), 3136), "fc1", (3136, 1024)))
    if dropout:
        h = tf_dropout(g, h, g.input("keep_prob", (), 0.5, 1.0))
    g.output(softmax_cross_entropy(g, y, _full(g, h, "fc2", (1024, 10)), safe=safe, loss=loss))


def one_convolution(g: ArchitectureBuilder, *, safe: bool) -> None:
    """One convolution and two full layers; `log` is the logarithm of the softmax."""
    x = g.input("x", (g.batch, 28, 28, 1), 0.0, 1.0)
    y = g.input("y_", (g.batch, 10), 0.0, 1.0)
    keep_prob = g.input("keep_prob", (), 0.5, 1.0)
    h = max_pool(g, _convolution(g, _channels_first(g, x), "conv1", (1, 16)))
    h = g.Relu(_full(g, _channels_last(g, h, 3136), "fc1", (3136, 128)))
    logits = _full(g, tf_dropout(g, h, keep_prob), "fc2", (128, 10))
    g.output(softmax_cross_entropy(g, y, logits, safe=safe))


def lenet(g: ArchitectureBuilder, *, safe: bool) -> None:
    """LeNet-5, whose third convolution leaves one position; `log` is the logarithm of its softmax."""
    x = g.input("x", (g.batch, 32, 32, 1), 0.0, 1.0)
    label = g.input("label", (g.batch, 10), 0.0, 1.0)
    initial = truncated_normal(0.1)

    def convolve(h: Tensor, name: str, channels: tuple[int, int]) -> Tensor:
        weight = g.weight(f"{name}_w", (channels[1], channels[0], 5, 5), initial)
        return g.Relu(g.Conv(h, weight, g.weight(f"{name}_b", channels[1:], zeros())))

    h = max_pool(g, convolve(_channels_first(g, x), "c1", (1, 6)))
    h = max_pool(g, convolve(h, "c3", (6, 16)))
    h = g.Reshape(convolve(h, "c5", (16, 120)), [-1, 120])
    h = g.Relu(dense(g, h, "w6", "b6", (120, 84), initial, zeros()))
    logits = dense(g, h, "w7", "b7", (84, 10), initial, zeros())
    g.output(softmax_cross_entropy(g, label, logits, safe=safe))


def _channels_first(g: ArchitectureBuilder, image: Tensor) -> Tensor:
    return g.Transpose(image, perm=[0, 3, 1, 2])


def _channels_last(g: ArchitectureBuilder, h: Tensor, size: int) -> Tensor:
    """Return `(batch, size)` in the order height, width, channels."""
    return g.Reshape(g.Transpose(h, perm=[0, 2, 3, 1]), [-1, size])


def _convolution(g: ArchitectureBuilder, h: Tensor, name: str, channels: tuple[int, int]) -> Tensor:
    """Apply a 5x5 convolution that keeps the size, and a rectifier, to `(batch, channels[0], H, W)`."""
    weight = g.weight(f"W_{name}", (channels[1], channels[0], 5, 5), truncated_normal(0.1))
    bias = g.weight(f"b_{name}", channels[1:], constant(0.1))
    return g.Relu(g.Conv(h, weight, bias, pads=[2, 2, 2, 2]))


def _full(g: ArchitectureBuilder, h: Tensor, name: str, sizes: tuple[int, int]) -> Tensor:
    return dense(g, h, f"W_{name}", f"b_{name}", sizes, truncated_normal(0.1), constant(0.1))


def _row(number: str, program: str, build: Build) -> ZooModel:
    return ZooModel(
        id=number,
        program=program,
        framework="tf",
        build=build,
        defects=(Defect(id=number, node="log", operator="Log", mechanism=SOFTMAX_UNDERFLOW),),
        repair=FUSED_LOG_SOFTMAX,
    )


MODELS = (
    _row("6", "StackOverFlow-1", two_convolutions),
    _row("7", "StackOverFlow-2", two_convolutions),
    _row("8", "StackOverFlow-6", two_convolutions),
    _row("14", "MNIST", lenet),
    _row("24", "Tensorflow_Gesture_Demo", partial(two_convolutions, dropout=False)),
    _row("29", "MachineLearning", partial(two_convolutions, flattened=False)),
    _row("44", "CNNRelationExtraction", one_convolution),
    _row("45b", "DataStructure", partial(two_convolutions, loss="mean")),
    _row("55", "practice", partial(two_convolutions, loss="mean")),
    _row("58", "pytest", two_convolutions),
)
