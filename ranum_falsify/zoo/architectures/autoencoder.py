"""Variational autoencoders (Kingma and Welling, ICLR 2014), plain and conditioned on the label."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import LEAST_COMPLEMENT, dense, mean, total
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import xavier, zeros
from ranum_falsify.zoo.model import Defect, ZooModel

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
    return ZooModel(
        id=f"{number}a",
        program=program,
        framework="tf",
        build=partial(variational_autoencoder, clipped=False, latent=latent, conditional=conditional),
        defects=(
            Defect(
                id=f"{number}a",
                node="log_not_r",
                operator="Log",
                mechanism="1e-10 + 1 is 1 in float32, and a sigmoid rounds to 1 from about 17",
            ),
        ),
        repair="1 - r is raised to 2^-24, and log variances to [-80, 80]",
    )


def _square_root(number: str, program: str, *, latent: int = 2, conditional: bool = False) -> ZooModel:
    return ZooModel(
        id=f"{number}b",
        program=program,
        framework="tf",
        build=partial(variational_autoencoder, clipped=True, latent=latent, conditional=conditional),
        defects=(
            Defect(
                id=f"{number}b",
                node="sqrt",
                operator="Sqrt",
                mechanism="exp(-100) is below the normal numbers; flushed to 0, it makes the derivative infinite",
                gradient=True,
            ),
        ),
        repair="log variances are clipped to [-80, 80]",
    )


_PROGRAM = "deep_learning_Nikolenko_and_Co"

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
)
