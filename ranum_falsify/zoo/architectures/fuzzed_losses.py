"""Losses of real programs on which the Soft Assertion Fuzzer was run (FSE 2025)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import FUSED_LOG_SOFTMAX, LEAST_COMPLEMENT, mean, total
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import normal, zeros
from ranum_falsify.zoo.model import Defect, ZooModel

_HUGE = 1e20
"""Where embeddings end that the programs do not bound: their squares exceed float32."""

_LARGE = 1e18
"""Greatest magnitude of embeddings in repaired models."""

_LARGEST_LOG_RATIO = 84.0
"""In the repaired model, so that the sum over all actions is finite too."""


def focal_loss(g: ArchitectureBuilder, *, safe: bool) -> None:
    """The focal loss with gamma 0.5; `pow` raises 1 less the probability of the target to that."""
    logits = g.input("logits", (4, 3), -20.0, 20.0)
    target = g.input("target", (4, 1), 0, 2, "int64")
    log_p = g.GatherElements(g.LogSoftmax(logits, axis=1), target, axis=1)
    not_p = 1.0 - g.Exp(log_p)
    weight = g.Pow(g.Max(not_p, LEAST_COMPLEMENT) if safe else not_p, 0.5, name="pow")
    g.output(-mean(g, weight * log_p))


def policy_loss(g: ArchitectureBuilder, *, safe: bool) -> None:
    """The clipped surrogate loss of proximal policy optimisation; `exp` makes a ratio of two log probabilities."""
    new, old = (g.input(name, (2, 4), -100.0, 0.0) for name in ("new_logp", "old_logp"))
    advantage = g.input("advantage", (2, 4), -10.0, 10.0)
    difference = new - old
    ratio = g.Exp(g.Min(difference, _LARGEST_LOG_RATIO) if safe else difference, name="exp")
    g.output(-mean(g, g.Min(ratio * advantage, g.Clip(ratio, 0.8, 1.2) * advantage)))


def triplet_loss(g: ArchitectureBuilder, *, safe: bool) -> None:
    """A triplet loss of squared distances; `square` belongs to that of anchor and positive, `square_negative` too."""
    anchor, positive, negative = (_embedding(g, name, (4, 2), safe=safe) for name in ("a", "p", "n"))

    def distance(x: Tensor, y: Tensor, name: str) -> Tensor:
        difference = x - y
        return total(g, g.Mul(difference, difference, name=name), [1])

    near, far = distance(anchor, positive, "square"), distance(anchor, negative, "square_negative")
    g.output(mean(g, g.Relu(near - far + 1.0)))


def pairwise_loss(g: ArchitectureBuilder, *, safe: bool) -> None:
    """The loss of a reward model; `log` is the logarithm of the sigmoid of a difference of two rewards."""
    chosen, rejected = (g.wide_input(name, (4,), -60.0, 60.0, data=(-10.0, 10.0)) for name in ("chosen", "rejected"))
    if safe:
        g.output(mean(g, g.Softplus(rejected - chosen, name="log")))
    else:
        g.output(-mean(g, g.Log(g.Sigmoid(chosen - rejected), name="log")))


def contrastive_loss(g: ArchitectureBuilder, *, safe: bool) -> None:
    """A contrastive loss within a batch; `matmul` computes the similarities of all pairs."""
    x, y = (_embedding(g, name, (3, 3), safe=safe) for name in ("x", "y"))
    logits = g.MatMul(x, g.Transpose(y, perm=[1, 0]), name="matmul")
    diagonal = np.arange(3, dtype=np.int64)[:, None]
    g.output(-mean(g, g.GatherElements(g.LogSoftmax(logits, axis=1), diagonal, axis=1)))


def cosine_triplet_loss(g: ArchitectureBuilder, *, safe: bool) -> None:
    """A triplet loss of cosine distances; `product` is that of two squared norms, `product_negative` too."""
    data = (-10.0, 10.0)
    anchor, positive, negative = (g.wide_input(name, (4, 3), -1e11, 1e11, data=data) for name in ("a", "p", "n"))

    def squared_norm(x: Tensor) -> Tensor:
        return total(g, x * x, [1], keepdims=True)

    def unit(x: Tensor) -> Tensor:
        return g.Div(x, g.Max(g.Sqrt(squared_norm(x)), 1e-8))

    def distance(x: Tensor, y: Tensor, name: str) -> Tensor:
        if safe:
            return 1.0 - total(g, unit(x) * unit(y), [1], keepdims=True)
        norms = g.Sqrt(g.Max(g.Mul(squared_norm(x), squared_norm(y), name=name), 1e-16))
        return 1.0 - total(g, x * y, [1], keepdims=True) / norms

    near, far = distance(anchor, positive, "product"), distance(anchor, negative, "product_negative")
    g.output(mean(g, g.Relu(near - far + 1.0)))


def log_error(g: ArchitectureBuilder, *, safe: bool) -> None:
    """The root of the mean squared logarithmic error; `log` reads 1 and the prediction, `log_true` 1 and the truth."""
    true, predicted = (
        g.wide_input(name, (3,), -1.0, 10.0, data=(0.0, 1.0), dtype="float64") for name in ("y_true", "y_pred")
    )

    def logarithm(y: Tensor, name: str) -> Tensor:
        shifted = g.Add(y, np.float64(1.0))
        return g.Log(g.Max(shifted, np.float64(2.0**-53)) if safe else shifted, name=name)

    error = logarithm(true, "log_true") - logarithm(predicted, "log")
    g.output(g.Sqrt(mean(g, error * error)))


def small_perceptron(g: ArchitectureBuilder, *, safe: bool) -> None:
    """A perceptron with two hidden layers and a softmax without shift; `log` is the logarithm of that.

    The program computes in float64, where it takes larger logits; this model in float32.
    """
    h = g.input("x", (g.batch, 2), -1.5, 2.5)
    t = g.input("t", (g.batch, 2), 0.0, 1.0)
    for layer, (inputs, outputs) in enumerate(pairwise((2, 32, 32, 2))):
        h = g.Relu(h) if layer else h
        weight, bias = g.weight(f"w{layer}", (outputs, inputs), normal(1.0)), g.weight(f"b{layer}", (outputs,), zeros())
        h = g.Gemm(h, weight, bias, transB=1)
    if safe:
        log_p = g.LogSoftmax(h, axis=-1, name="log")
    else:
        e = g.Exp(h, name="exp")
        log_p = g.Log(g.Div(e, total(g, e, [1], keepdims=True), name="div"), name="log")
    g.output(-total(g, t * log_p))


def _embedding(g: ArchitectureBuilder, name: str, shape: tuple[int, int], *, safe: bool) -> Tensor:
    x = g.wide_input(name, shape, -_HUGE, _HUGE, data=(-10.0, 10.0))
    return g.Clip(x, -_LARGE, _LARGE) if safe else x


_CLIPPED = "embeddings are clipped to magnitudes of 1e18"

MODELS = (
    ZooModel(
        id="saf3",
        program="character-based-cnn",
        framework="torch",
        build=focal_loss,
        defects=(
            Defect(
                id="saf3",
                node="pow",
                operator="Pow",
                mechanism="a probability rounds to 1, and the derivative of a power below 1 is infinite at 0",
                gradient=True,
            ),
        ),
        repair="1 - p is raised to 2^-24 before the power",
    ),
    ZooModel(
        id="saf4",
        program="minChatGPT",
        framework="torch",
        build=policy_loss,
        defects=(
            Defect(
                id="saf4",
                node="exp",
                operator="Exp",
                mechanism="the ratio of two probabilities overflows where one is e^-89 of the other",
            ),
        ),
        repair="the logarithm of the ratio is clipped to 84",
    ),
    ZooModel(
        id="saf6",
        program="siamese-triplet",
        framework="torch",
        build=triplet_loss,
        defects=(
            Defect(
                id="saf6",
                node="square",
                operator="Mul",
                mechanism="squares of differences above 1.8e19 overflow, and the difference of two distances is NaN",
            ),
        ),
        repair=_CLIPPED,
    ),
    ZooModel(
        id="saf7",
        program="RLHF",
        framework="torch",
        build=pairwise_loss,
        defects=(
            Defect(
                id="saf7",
                node="log",
                operator="Log",
                mechanism="the sigmoid is 0 below a difference of about -88.7, -15.8 on ONNX Runtime",
            ),
        ),
        repair="the logarithm of the sigmoid is Softplus",
    ),
    ZooModel(
        id="saf8",
        program="GradCache",
        framework="torch",
        build=contrastive_loss,
        defects=(
            Defect(
                id="saf8",
                node="matmul",
                operator="MatMul",
                mechanism="similarities overflow, or are NaN where summands overflow with different signs",
            ),
        ),
        repair=_CLIPPED,
    ),
    ZooModel(
        id="saf9",
        program="TorchBlocks",
        framework="torch",
        build=cosine_triplet_loss,
        defects=(
            Defect(
                id="saf9",
                node="product",
                operator="Mul",
                mechanism="the product of two squared norms above 1.8e19 overflows, and the similarity is 0",
            ),
        ),
        repair="each vector is divided by its own norm before the dot product",
    ),
    ZooModel(
        id="saf12",
        program="scikit-learn",
        framework="numpy",
        build=log_error,
        defects=(
            Defect(
                id="saf12",
                node="log",
                operator="Log",
                mechanism="without the check, which refused valid values too, log(1 + y) reads 0 at -1",
            ),
        ),
        repair="1 + y is raised to 2^-53",
    ),
    ZooModel(
        id="saf13",
        program="MicroMLP",
        framework="numpy",
        build=small_perceptron,
        defects=(
            Defect(
                id="saf13",
                node="log",
                operator="Log",
                mechanism="a softmax without shift is 0 for a logit of -104 and NaN for one of 89",
            ),
        ),
        repair=FUSED_LOG_SOFTMAX,
    ),
)
