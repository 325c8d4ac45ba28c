"""Generative models: variational autoencoders (ICLR 2014), Boltzmann machines, an adversarial network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from onnx import TensorProto

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import LEAST_COMPLEMENT, dense, mean, one_defect, tf_dropout, total
from ranum_falsify.zoo.builder import ArchitectureBuilder, normal, truncated_normal, xavier, zeros
from ranum_falsify.zoo.model import ZooModel

_PIXELS, _WIDTH, _CLASSES = 784, 500, 10

_GREATEST_LOG_VARIANCE = 80.0
"""Limit of the magnitude of log variances in repaired models: their exponentials neither vanish nor overflow."""

_LEAST_PROBABILITY = 1e-6

_EPSILON = 1e-10


def variational_autoencoder(
    g: ArchitectureBuilder, *, safe: bool, clipped: bool, latent: int = 2, conditional: bool = False
) -> None:
    """The negative evidence lower bound of an autoencoder with two hidden layers on either side.

    `sqrt` computes a deviation from a variance; `log_r` and `log_not_r` belong to the cross entropy of the pixels.

    Args:
        g: The model.
        safe: Whether it is the repaired one.
        clipped: Whether probabilities are clipped before the logarithms, and log variances to [-100, 87]; else 1e-10
            is added to the probabilities, and log variances are clipped to [-87, 87].
        latent: Size of the latent space.
        conditional: Whether encoder and decoder read the label too.
    """
    x = g.input("x", (g.batch, _PIXELS), 0.0, 1.0)
    y = g.input("y", (g.batch, _CLASSES), 0.0, 1.0) if conditional else None
    eps = g.input("eps", (g.batch, latent), -4.0, 4.0)
    labels = _CLASSES if conditional else 0

    e = _hidden(g, x if y is None else g.Concat(x, y, axis=1), "R", _PIXELS + labels)
    zm = _dense(g, e, "R_mean", "R_bmean", _WIDTH, latent)
    zl = _dense(g, e, "R_logsig", "R_blogsig", _WIDTH, latent)
    bound = _GREATEST_LOG_VARIANCE
    zc = g.Clip(zl, *((-bound, bound) if safe else (-100.0, 87.0) if clipped else (-87.0, 87.0)))
    z = zm + g.Sqrt(g.Exp(zc), name="sqrt") * eps
    d = _hidden(g, z if y is None else g.Concat(z, y, axis=1), "G", latent + labels)
    r = g.Sigmoid(_dense(g, d, "G_mean", "G_bmean", _WIDTH, _PIXELS))

    log_r, log_not_r = _clipped_logs(g, r) if clipped else _shifted_logs(g, r, safe=safe)
    reconstruction = -total(g, x * log_r + (1.0 - x) * log_not_r, [1])
    divergence = -0.5 * total(g, 1.0 + (zl if clipped else zc) - zm * zm - g.Exp(zc), [1])
    g.output(mean(g, reconstruction + divergence))


def _clipped_logs(g: ArchitectureBuilder, r: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logarithms of r and 1 - r, both clipped."""
    log_r = g.Log(g.Clip(r, _LEAST_PROBABILITY, 1.0), name="log_r")
    return log_r, g.Log(g.Clip(1.0 - r, _LEAST_PROBABILITY, 1.0), name="log_not_r")


def _shifted_logs(g: ArchitectureBuilder, r: Tensor, *, safe: bool) -> tuple[Tensor, Tensor]:
    """Return the logarithms of r and 1 - r, shifted by a number too small to change 1 in float32."""
    epsilon = g.constant(_EPSILON)
    not_r = g.Max(1.0 - r, LEAST_COMPLEMENT) if safe else epsilon + 1.0 - r
    return g.Log(r + epsilon, name="log_r"), g.Log(not_r, name="log_not_r")


def _hidden(g: ArchitectureBuilder, x: Tensor, prefix: str, inputs: int) -> Tensor:
    """Apply two layers to x; `prefix` is `R` for the recognition network, `G` for the generator."""
    for layer, sizes in enumerate(pairwise((inputs, _WIDTH, _WIDTH)), start=1):
        x = g.Softplus(_dense(g, x, f"{prefix}_h{layer}", f"{prefix}_b{layer}", *sizes))
    return x


def _dense(g: ArchitectureBuilder, x: Tensor, weight: str, bias: str, inputs: int, outputs: int) -> Tensor:
    return dense(g, x, weight, bias, (inputs, outputs), xavier(inputs, outputs), zeros())


def _logarithm(number: str, program: str, *, latent: int = 2, conditional: bool = False) -> ZooModel:
    return one_defect(
        f"{number}a",
        program,
        partial(variational_autoencoder, clipped=False, latent=latent, conditional=conditional),
        framework="tf",
        node="log_not_r",
        mechanism="1e-10 + 1 is 1 in float32, and a sigmoid rounds to 1 from about 17",
        repair="1 - r is raised to 2^-24, and log variances to [-80, 80]",
    )


def _square_root(number: str, program: str, *, latent: int = 2, conditional: bool = False) -> ZooModel:
    return one_defect(
        f"{number}b",
        program,
        partial(variational_autoencoder, clipped=True, latent=latent, conditional=conditional),
        framework="tf",
        node="sqrt",
        operator="Sqrt",
        mechanism="exp(-100) is below the normal numbers; flushed to 0, it makes the derivative infinite",
        gradient=True,
        repair="log variances are clipped to [-80, 80]",
    )


_PROGRAM = "deep_learning_Nikolenko_and_Co"


_VISIBLE, _HIDDEN = 784, 500


def boltzmann_machine(g: ArchitectureBuilder, *, safe: bool, binary: bool = False) -> None:
    """Free energy of images minus that of their reconstructions after one step of Gibbs sampling.

    `exp` and `exp_reconstruction` belong to a softplus that is written out; in the repaired model they are operators
    Softplus.

    Args:
        g: The model.
        safe: Whether it is the repaired one.
        binary: Whether pixels are probabilities, from which 0 and 1 are drawn.
    """
    image = g.input("image", (g.batch, _VISIBLE), 0.0, 1.0)
    weight = g.weight("W", (_HIDDEN, _VISIBLE), normal(0.01))
    of_visible = g.weight("v_bias", (_VISIBLE,), zeros())
    of_hidden = g.weight("h_bias", (_HIDDEN,), zeros())

    def free_energy(u: Tensor, name: str) -> Tensor:
        a = g.Gemm(u, weight, of_hidden, transB=1)
        softplus = g.Softplus(a, name=name) if safe else g.Log(g.Exp(a, name=name) + 1.0)
        return mean(g, -total(g, softplus, [1]) - u @ of_visible)

    v = g.Reshape(image, [-1, _VISIBLE])
    if binary:
        # Not ONNX's Bernoulli, which is defined by Greater: runtimes that follow this draw 1 with probability 1 - p.
        v = g.Cast(g.Less(g.RandomUniformLike(v, seed=1.0), v), to=TensorProto.FLOAT)
    hidden = _sample(g, g.Sigmoid(g.Gemm(v, weight, of_hidden, transB=1)))
    reconstruction = _sample(g, g.Sigmoid(g.Gemm(hidden, weight, of_visible)))
    g.output(free_energy(v, "exp") - free_energy(reconstruction, "exp_reconstruction"))


def _sample(g: ArchitectureBuilder, p: Tensor) -> Tensor:
    """Return 1 with probability p, else 0."""
    return g.Relu(g.Sign(p - g.RandomUniformLike(p, seed=1.0)))


_machine = partial(
    one_defect,
    framework="torch",
    node="exp",
    same=("exp_reconstruction",),
    operator="Exp",
    mechanism="softplus is written as log(exp(a) + 1), and exp overflows at 88.7",
    repair="log(exp(a) + 1) is Softplus",
)
# RANUM's graph begins after the sampling of pixels.
_sampling_machine = partial(_machine, build=partial(boltzmann_machine, binary=True), graph_of_ranum=boltzmann_machine)


_GENERATOR = (100, 256, 512, 1024, 784)
_DISCRIMINATOR = (784, 1024, 512, 256, 1)
_GAN_EPSILON = 1e-8

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
    log_real = g.Log(real + _GAN_EPSILON if safe else real, name="log_real")
    not_fake = 1.0 - fake
    log_not_fake = g.Log(g.Clip(not_fake, _GAN_EPSILON) if safe else not_fake + _GAN_EPSILON, name="log_not_fake")
    g.output(-mean(g, log_real + log_not_fake))
    g.output(-mean(g, g.Log(fake + _GAN_EPSILON, name="log_fake")))


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
    _logarithm("35", f"{_PROGRAM}.ch10_04_01", latent=20),
    _square_root("35", f"{_PROGRAM}.ch10_04_01", latent=20),
    _logarithm("36", f"{_PROGRAM}.ch10_04_03_Pic_10_05"),
    _square_root("36", f"{_PROGRAM}.ch10_04_03_Pic_10_05"),
    _logarithm("39", f"{_PROGRAM}.ch10_04_04_Pic_10_06"),
    _square_root("39", f"{_PROGRAM}.ch10_04_04_Pic_10_06"),
    _logarithm("43", f"{_PROGRAM}.ch10_04_05_Pic_10_07", conditional=True),
    _square_root("43", f"{_PROGRAM}.ch10_04_05_Pic_10_07", conditional=True),
    _logarithm("49", f"{_PROGRAM}.ch10_04_06_Pic_10_08", conditional=True),
    _square_root("49", f"{_PROGRAM}.ch10_04_06_Pic_10_08", conditional=True),
    _sampling_machine("22", "git1_rbm"),
    _sampling_machine("51", "RBM"),
    _machine("62", "gongdols.denoising_RBM", partial(boltzmann_machine, binary=False)),
    _machine("63", "gongdols.main", partial(boltzmann_machine, binary=False)),
    one_defect(
        "31",
        "GAN_MNIST",
        generative_adversarial,
        framework="tf",
        node="log_real",
        mechanism="the discriminator's sigmoid is 0 for a logit far below 0, and this logarithm has no epsilon",
        repair="1e-8 is added before this logarithm too, and what the second reads is raised to it",
    ),
)
