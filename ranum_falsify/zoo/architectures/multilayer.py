"""Classifiers of fully connected layers, and element-wise binary cross entropies of ten classes."""

from __future__ import annotations

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import (
    FUSED_LOG_SOFTMAX,
    LEAST_COMPLEMENT,
    SOFTMAX_UNDERFLOW,
    SOFTPLUS_LOSS,
    dense,
    log_sigmoid_pair,
    log_softmax,
    mean,
    softmax_cross_entropy,
    tf_dropout,
    total,
)
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import torch_linear, truncated_normal, zeros
from ranum_falsify.zoo.model import Defect, ZooModel


def softmax_of_each_class(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log_p` and `log_not_p` are the logarithms of the softmax and of its complement, class by class."""
    x = g.input("x", (g.batch, 784), 0.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    logits = dense(g, x, "W", "b", (784, 10), zeros(), zeros())
    p = g.Softmax(logits, axis=-1)
    log_p = g.LogSoftmax(logits, axis=-1, name="log_p") if safe else g.Log(p, name="log_p")
    not_p = g.Max(1.0 - p, LEAST_COMPLEMENT) if safe else 1.0 - p
    g.output(-mean(g, y * log_p + (1.0 - y) * g.Log(not_p, name="log_not_p")))


def saturated_sigmoids(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log_p` and `log_not_p` are the logarithms of a sigmoid and of its complement, of a net without biases."""
    x = g.input("x", (g.batch, 784), 0.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    hidden = g.Sigmoid(x @ g.weight("W_h1", (784, 512), zeros()))
    logits = hidden @ g.weight("W_out", (512, 10), zeros())
    log_p, log_not_p = log_sigmoid_pair(g, logits, safe=safe)
    g.output(mean(g, total(g, -y * log_p - (1.0 - y) * log_not_p, [1])))


def torch_hidden_layer(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm that the training loop takes of the probabilities that the network returns."""
    x = g.input("x", (g.batch, 784), 0.0, 1.0)
    y = g.input("y", (g.batch,), 0, 9, "int64")
    first, second = torch_linear(784), torch_linear(98)
    hidden = g.Relu(
        g.Gemm(x, g.weight("hidden.weight", (98, 784), first), g.weight("hidden.bias", (98,), first), transB=1)
    )
    hidden = g.Dropout(hidden, 0.5)
    logits = g.Gemm(
        hidden, g.weight("output.weight", (10, 98), second), g.weight("output.bias", (10,), second), transB=1
    )
    g.output(g.NegativeLogLikelihoodLoss(log_softmax(g, logits, safe=safe), y, reduction="mean"))


def noisy_hidden_layer(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm of the softmax of one hidden layer on images with Gaussian noise added."""
    x = g.input("x", (g.batch, 784), 0.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    keep_prob = g.input("keep_prob", (), 0.75, 1.0)
    noise = g.RandomNormal(shape=[784], seed=1.0)
    logits = _hidden_layer(g, x + 0.01 * noise, keep_prob)
    g.output(softmax_cross_entropy(g, y, logits, safe=safe, loss="mean"))


def hidden_layer_with_dropout(g: ArchitectureBuilder, *, safe: bool, loss: str = "sum") -> None:
    """`log` is the logarithm of the softmax of one hidden layer, whose dropout keeps all."""
    x = g.input("x", (g.batch, 784), 0.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    keep_prob = g.input("keep_prob", (), 1.0, 1.0)
    g.output(softmax_cross_entropy(g, y, _hidden_layer(g, x, keep_prob), safe=safe, loss=loss))


def _hidden_layer(g: ArchitectureBuilder, x: Tensor, keep_prob: Tensor) -> Tensor:
    hidden = g.Relu(dense(g, x, "W1", "b1", (784, 300), truncated_normal(0.1), zeros()))
    hidden = tf_dropout(g, hidden, keep_prob)
    return dense(g, hidden, "W2", "b2", (300, 10), zeros(), zeros())


def _log(number: str, mechanism: str = SOFTMAX_UNDERFLOW, *, node: str = "log") -> Defect:
    return Defect(id=number, node=node, operator="Log", mechanism=mechanism)


MODELS = (
    ZooModel(
        id="2",
        program="GitHub-IPS-6",
        framework="tf",
        build=softmax_of_each_class,
        defects=(
            _log("2a", node="log_p"),
            _log("2b", "a softmax entry rounds to 1 once its logit leads by about 19", node="log_not_p"),
        ),
        repair="the logarithm of the softmax is LogSoftmax, and its complement is raised to 2^-24",
    ),
    ZooModel(
        id="9",
        program="StackOverFlow-7",
        framework="tf",
        build=saturated_sigmoids,
        defects=(
            _log("9a", "the sigmoid rounds to 1 above a logit of about 16.6", node="log_not_p"),
            _log("9b", "the sigmoid is 0 below a logit of about -88.7", node="log_p"),
        ),
        repair=SOFTPLUS_LOSS,
    ),
    ZooModel(
        id="12",
        program="Skorch",
        framework="torch",
        build=torch_hidden_layer,
        defects=(_log("12"),),
        repair="the network ends in LogSoftmax",
    ),
    ZooModel(
        id="48a",
        program="Dive_python",
        framework="tf",
        build=noisy_hidden_layer,
        defects=(_log("48a"),),
        repair=FUSED_LOG_SOFTMAX,
    ),
    ZooModel(
        id="61",
        program="tensorflow_project",
        framework="tf",
        build=hidden_layer_with_dropout,
        defects=(_log("61"),),
        repair=FUSED_LOG_SOFTMAX,
    ),
)
