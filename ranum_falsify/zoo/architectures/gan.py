"""A generative adversarial network (Goodfellow and others, NeurIPS 2014) on flattened images."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import mean, tf_dropout
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import truncated_normal, zeros
from ranum_falsify.zoo.model import Defect, ZooModel

_GENERATOR = (100, 256, 512, 1024, 784)
_DISCRIMINATOR = (784, 1024, 512, 256, 1)
_EPSILON = 1e-8

_Layers = list[tuple[Tensor, Tensor]]


def generative_adversarial(g: ArchitectureBuilder, *, safe: bool) -> None:
    """Losses of discriminator and generator; `log_real` reads the discriminator's output for real images.

    `log_not_fake` has an epsilon, but one smaller than the amount by which a kernel's sigmoid may exceed 1.
    """
    x = g.input("x", (g.batch, _DISCRIMINATOR[0]), -1.0, 1.0)
    z = g.input("z", (g.batch, _GENERATOR[0]), -4.0, 4.0)
    keep_prob = g.input("keep_prob", (), 0.3, 0.3)
    generator = _layers(g, "G", _GENERATOR)
    discriminator = _layers(g, "D", _DISCRIMINATOR)

    real = _discriminate(g, x, discriminator, keep_prob)
    fake = _discriminate(g, _generate(g, z, generator), discriminator, keep_prob)
    log_real = g.Log(real + _EPSILON if safe else real, name="log_real")
    not_fake = 1.0 - fake
    log_not_fake = g.Log(g.Clip(not_fake, _EPSILON) if safe else not_fake + _EPSILON, name="log_not_fake")
    g.output(-mean(g, log_real + log_not_fake))
    g.output(-mean(g, g.Log(fake + _EPSILON, name="log_fake")))


def _layers(g: ArchitectureBuilder, prefix: str, sizes: Sequence[int]) -> _Layers:
    """Return the weights and biases of a stack of dense layers."""
    return [
        (g.weight(f"{prefix}_w{i}", shape, truncated_normal(0.02)), g.weight(f"{prefix}_b{i}", shape[1:], zeros()))
        for i, shape in enumerate(pairwise(sizes))
    ]


def _generate(g: ArchitectureBuilder, z: Tensor, layers: _Layers) -> Tensor:
    """Return images in [-1, 1], generated from noise."""
    *hidden, (weight, bias) = layers
    for w, b in hidden:
        z = g.Relu(z @ w + b)
    return g.Tanh(z @ weight + bias)


def _discriminate(g: ArchitectureBuilder, image: Tensor, layers: _Layers, keep_prob: Tensor) -> Tensor:
    """Return the probability that images are real."""
    *hidden, (weight, bias) = layers
    for w, b in hidden:
        image = tf_dropout(g, g.Relu(image @ w + b), keep_prob)
    return g.Sigmoid(image @ weight + bias)


MODELS = (
    ZooModel(
        id="31",
        program="GAN_MNIST",
        framework="tf",
        build=generative_adversarial,
        defects=(
            Defect(
                id="31",
                node="log_real",
                operator="Log",
                mechanism="the discriminator's sigmoid is 0 for a logit far below 0, and this logarithm has no epsilon",
            ),
        ),
        repair="1e-8 is added before this logarithm too, and what the second reads is raised to it",
    ),
)
