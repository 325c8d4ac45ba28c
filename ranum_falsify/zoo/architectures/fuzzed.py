"""Layers and losses of real programs on which the Soft Assertion Fuzzer was run (FSE 2025)."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import numpy as np

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import LEAST_COMPLEMENT, mean, one_defect, total
from ranum_falsify.zoo.builder import ArchitectureBuilder, normal, torch_linear, xavier, zeros

_HUGE = 1e20
"""Where numbers and embeddings end that the programs do not bound: their squares exceed float32."""

_LEAST_SCALE = 1e-10
"""Least number by which repaired models scale differences before they square them."""

_LEAST_DIVISOR = 1e-30

_ITERATIONS = 10


def conditional_normalisation(g: ArchitectureBuilder, *, safe: bool) -> None:
    """A normalisation of each channel, with scale and shift from a latent vector; `square` belongs to the variance."""
    x = g.wide_input("x", (g.batch, 2, 4, 4), -_HUGE, _HUGE, data=(0.0, 10.0))
    z = g.input("z", (g.batch, 4, 1, 1), -4.0, 4.0)
    pixels = g.Reshape(x, [0, 0, -1])
    difference = pixels - g.ReduceMean(pixels, axes=[2], keepdims=1)
    normal = (_score_scaled if safe else _score)(g, difference, 16)

    def of_latent(name: str) -> Tensor:
        weight = g.weight(f"{name}_w", (2, 4, 1, 1), torch_linear(4))
        return g.Reshape(g.Relu(g.Conv(z, weight, g.weight(f"{name}_b", (2,), torch_linear(4)))), [0, 0, -1])

    g.output(normal * of_latent("scale") + of_latent("shift"))


def _score(g: ArchitectureBuilder, difference: Tensor, count: int) -> Tensor:
    """Return differences to the mean over the root of their unbiased variance and 1e-5."""
    squares = g.Mul(difference, difference, name="square")
    variance = total(g, squares, [2], keepdims=True) / float(count - 1)
    return difference * g.Reciprocal(g.Sqrt(variance + 1e-5))


def _score_scaled(g: ArchitectureBuilder, difference: Tensor, count: int) -> Tensor:
    """Return the same as :func:`_score`, computed from differences that are at most 1."""
    share, greatest = _shares(g, difference, [2])
    variance = total(g, g.Mul(share, share, name="square"), [2], keepdims=True) / float(count - 1)
    # The share that is 1 alone makes the variance 1 / (n - 1), so that this least value changes nothing.
    return share * g.Reciprocal(g.Sqrt(g.Max(variance + g.Div(1e-5, greatest) / greatest, 0.5 / (count - 1))))


def _shares(g: ArchitectureBuilder, x: Tensor, axes: list[int]) -> tuple[Tensor, Tensor]:
    """Return numbers over the greatest magnitude among them, and that."""
    greatest = g.Max(g.ReduceMax(g.Abs(x), axes=axes, keepdims=1), _LEAST_SCALE)
    return g.Clip(x / greatest, -1.0, 1.0), greatest


def distance_to_prior(g: ArchitectureBuilder, *, safe: bool) -> None:
    """The distance of a weight from what it was before fine-tuning; `square` squares the differences."""
    w, prior = (g.wide_input(name, (8, 8), -_HUGE, _HUGE, data=(-1.0, 1.0)) for name in ("w", "w0"))
    difference = w - prior
    if safe:
        share, greatest = _shares(g, difference, [0, 1])
        g.output(g.Reshape(greatest, [1]) * g.Sqrt(total(g, g.Mul(share, share, name="square"))))
    else:
        g.output(g.Reshape(g.Sqrt(total(g, g.Mul(difference, difference, name="square"))), [1]))


def noise_map(g: ArchitectureBuilder, *, safe: bool) -> None:
    """A map of noise, divided by its greatest magnitude and squashed; `div` divides 0 by 0 where all of it is 0."""
    x = g.input("x", (g.batch, 8, 8), -500.0, 500.0)
    greatest = g.Max(g.ReduceMax(x, keepdims=0), -g.ReduceMin(x, keepdims=0))
    divisor = g.Max(greatest, _LEAST_DIVISOR) if safe else greatest
    g.output(g.Tanh(g.Div(x, divisor, name="div") * 4.0))


def graph_smoothing(g: ArchitectureBuilder, *, safe: bool) -> None:
    """A layer that blends a node's features with those that it attends to; `scaled` is 50 times its own."""
    nodes, features = 4, 3
    hidden = g.wide_input("hidden", (nodes, features), -1e37, 1e37, data=(-10.0, 10.0))
    bias = g.input("mask", (nodes, nodes), -1e9, 0.0)
    if safe:
        hidden = g.Clip(hidden, -1e35, 1e35)
    mixed = hidden @ g.weight("conv", (features, features), xavier(features, features))
    own, others = (mixed @ g.weight(name, (features, 1), xavier(features, 1)) for name in ("f1", "f2"))
    logits = g.LeakyRelu(own + g.Transpose(others, perm=[1, 0]), alpha=0.2)
    attention = g.Softmax(logits + bias, axis=-1)
    sums = attention @ np.ones((nodes, 1), np.float32)
    g.output((attention @ mixed + g.Mul(50.0, hidden, name="scaled")) / (sums + 50.0))


def optimal_transport(g: ArchitectureBuilder, *, safe: bool) -> None:
    """Sinkhorn's iterations on squared distances of two sequences; `div` divides the kernel by its sum.

    Distances more than two places from the diagonal are raised by 100.  The program stops sooner where nothing moves;
    its own data are magnitudes of standard normal numbers, but the features that it is meant for reach hundreds.
    """
    length, size = 5, 4
    x, y = (g.wide_input(name, (length, size), 0.0, 100.0, data=(0.0, 4.0)) for name in ("x", "y"))
    difference = g.Unsqueeze(x, [1]) - g.Unsqueeze(y, [0])
    places = np.arange(length)
    barrier = np.where(np.abs(places[:, None] - places) > 2, 100.0, 0.0).astype(np.float32)
    cost = total(g, difference * difference, [2]) + barrier
    exponent = cost * -0.2
    plan = (_transport_by_logarithms if safe else _transport)(g, exponent, length)
    g.output(total(g, plan * cost))


def _transport(g: ArchitectureBuilder, exponent: Tensor, length: int) -> Tensor:
    kernel = g.Exp(exponent)
    plan = g.Div(kernel, total(g, kernel), name="div")
    share = np.float32(1 / length)
    for _ in range(_ITERATIONS):
        plan = plan * g.Div(share, total(g, plan, [1], keepdims=True))
        plan = plan * g.Div(share, total(g, plan, [0], keepdims=True))
    return plan


def _transport_by_logarithms(g: ArchitectureBuilder, exponent: Tensor, length: int) -> Tensor:
    """Return the plan of :func:`_transport`, whose rows and columns are divided by their sums as LogSoftmax does it."""
    for _ in range(_ITERATIONS):
        exponent = g.LogSoftmax(exponent, axis=1)
        exponent = g.LogSoftmax(exponent, axis=0)
    return g.Exp(exponent - math.log(length))


def linear_system(g: ArchitectureBuilder, *, safe: bool) -> None:
    """The solution of two linear equations by Cramer's rule; `div` divides by the determinant."""
    a = g.input("A", (2, 2), -1.0, 1.0)
    b = g.input("b", (2,), -1.0, 1.0)
    (a11, a12), (a21, a22) = ([g.Slice(a, [i, j], [i + 1, j + 1], [0, 1]) for j in (0, 1)] for i in (0, 1))
    b1, b2 = (g.Reshape(g.Slice(b, [i], [i + 1], [0]), [1, 1]) for i in (0, 1))
    determinant = a11 * a22 - a12 * a21
    numerators = g.Concat(b1 * a22 - a12 * b2, a11 * b2 - a21 * b1, axis=0)
    if safe:
        is_small = g.Less(g.Abs(determinant), _LEAST_DIVISOR)
        determinant = g.Where(is_small, _LEAST_DIVISOR, determinant)
    g.output(g.Div(numerators, determinant, name="div"))


_SCALED = "differences are divided by the greatest of them before they are squared"


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

_torch = partial(one_defect, framework="torch")

MODELS = (
    _torch(
        "saf1",
        "EntropicNeuralOptimalTransport",
        conditional_normalisation,
        node="square",
        operator="Mul",
        mechanism="squares of differences above 1.8e19 overflow, and the whole channel becomes 0",
        repair=_SCALED,
    ),
    _torch(
        "saf2",
        "MVCR",
        distance_to_prior,
        node="square",
        operator="Mul",
        mechanism="squares of differences above 1.8e19 overflow",
        repair=_SCALED,
    ),
    _torch(
        "saf5",
        "SatelliteCloudGenerator",
        noise_map,
        node="div",
        operator="Div",
        mechanism="a map that is 0 everywhere is divided by 0",
        repair="the divisor is raised to 1e-30",
    ),
    one_defect(
        "saf10",
        "GCNMDA",
        graph_smoothing,
        framework="tf",
        node="scaled",
        operator="Mul",
        mechanism="50 times a feature overflows above 6.8e36",
        repair="features are clipped to magnitudes of 1e35",
    ),
    _torch(
        "saf11",
        "MM-Align",
        optimal_transport,
        node="div",
        operator="Div",
        mechanism="the kernel is 0 everywhere where all squared distances exceed 520",
        repair="the iterations run on logarithms, where they are LogSoftmax",
    ),
    one_defect(
        "saf14",
        "diffusion-separation",
        linear_system,
        framework="numpy",
        node="div",
        operator="Div",
        mechanism="the determinant of a singular matrix is 0",
        repair="a determinant that is 0 becomes 1e-30",
    ),
    _torch(
        "saf3",
        "character-based-cnn",
        focal_loss,
        node="pow",
        operator="Pow",
        mechanism="a probability rounds to 1, and the derivative of a power below 1 is infinite at 0",
        gradient=True,
        repair="1 - p is raised to 2^-24 before the power",
    ),
    _torch(
        "saf4",
        "minChatGPT",
        policy_loss,
        node="exp",
        operator="Exp",
        mechanism="the ratio of two probabilities overflows where one is e^-89 of the other",
        repair="the logarithm of the ratio is clipped to 84",
    ),
    _torch(
        "saf6",
        "siamese-triplet",
        triplet_loss,
        node="square",
        operator="Mul",
        mechanism="squares of differences above 1.8e19 overflow, and the difference of two distances is NaN",
        repair=_CLIPPED,
    ),
    _torch(
        "saf7",
        "RLHF",
        pairwise_loss,
        mechanism="the sigmoid is 0 below a difference of about -88.7, -15.8 on ONNX Runtime",
        repair="the logarithm of the sigmoid is Softplus",
    ),
    _torch(
        "saf8",
        "GradCache",
        contrastive_loss,
        node="matmul",
        operator="MatMul",
        mechanism="similarities overflow, or are NaN where summands overflow with different signs",
        repair=_CLIPPED,
    ),
    _torch(
        "saf9",
        "TorchBlocks",
        cosine_triplet_loss,
        node="product",
        operator="Mul",
        mechanism="the product of two squared norms above 1.8e19 overflows, and the similarity is 0",
        repair="each vector is divided by its own norm before the dot product",
    ),
    one_defect(
        "saf12",
        "scikit-learn",
        log_error,
        framework="numpy",
        mechanism="without the check, which refused valid values too, log(1 + y) reads 0 at -1",
        repair="1 + y is raised to 2^-53",
    ),
    one_defect(
        "saf13",
        "MicroMLP",
        small_perceptron,
        framework="numpy",
        mechanism="a softmax without shift is 0 for a logit of -104 and NaN for one of 89",
    ),
)
