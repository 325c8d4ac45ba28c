"""Layers and algorithms of real programs on which the Soft Assertion Fuzzer was run (FSE 2025)."""

from __future__ import annotations

import math

import numpy as np

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import total
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import torch_linear, xavier
from ranum_falsify.zoo.model import Defect, ZooModel

_HUGE = 1e20
"""Where numbers end that the programs do not bound: their squares exceed float32."""

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

MODELS = (
    ZooModel(
        id="saf1",
        program="EntropicNeuralOptimalTransport",
        framework="torch",
        build=conditional_normalisation,
        defects=(
            Defect(
                id="saf1",
                node="square",
                operator="Mul",
                mechanism="squares of differences above 1.8e19 overflow, and the whole channel becomes 0",
            ),
        ),
        repair=_SCALED,
    ),
    ZooModel(
        id="saf2",
        program="MVCR",
        framework="torch",
        build=distance_to_prior,
        defects=(
            Defect(
                id="saf2",
                node="square",
                operator="Mul",
                mechanism="squares of differences above 1.8e19 overflow",
            ),
        ),
        repair=_SCALED,
    ),
    ZooModel(
        id="saf5",
        program="SatelliteCloudGenerator",
        framework="torch",
        build=noise_map,
        defects=(
            Defect(id="saf5", node="div", operator="Div", mechanism="a map that is 0 everywhere is divided by 0"),
        ),
        repair="the divisor is raised to 1e-30",
    ),
    ZooModel(
        id="saf10",
        program="GCNMDA",
        framework="tf",
        build=graph_smoothing,
        defects=(
            Defect(
                id="saf10",
                node="scaled",
                operator="Mul",
                mechanism="50 times a feature overflows above 6.8e36",
            ),
        ),
        repair="features are clipped to magnitudes of 1e35",
    ),
    ZooModel(
        id="saf11",
        program="MM-Align",
        framework="torch",
        build=optimal_transport,
        defects=(
            Defect(
                id="saf11",
                node="div",
                operator="Div",
                mechanism="the kernel is 0 everywhere where all squared distances exceed 520",
            ),
        ),
        repair="the iterations run on logarithms, where they are LogSoftmax",
    ),
    ZooModel(
        id="saf14",
        program="diffusion-separation",
        framework="numpy",
        build=linear_system,
        defects=(
            Defect(id="saf14", node="div", operator="Div", mechanism="the determinant of a singular matrix is 0"),
        ),
        repair="a determinant that is 0 becomes 1e-30",
    ),
)
