"""Restricted Boltzmann machines trained by contrastive divergence (Hinton, Neural Computation 2002)."""

from __future__ import annotations

from functools import partial

from onnx import TensorProto

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import mean, total
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import normal, zeros
from ranum_falsify.zoo.model import Defect, ZooModel

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


def _model(number: str, program: str, *, binary: bool = False) -> ZooModel:
    return ZooModel(
        id=number,
        program=program,
        framework="torch",
        build=partial(boltzmann_machine, binary=binary),
        defects=(
            Defect(
                id=number,
                node="exp",
                same=("exp_reconstruction",),
                operator="Exp",
                mechanism="softplus is written as log(exp(a) + 1), and exp overflows at 88.7",
            ),
        ),
        repair="log(exp(a) + 1) is Softplus",
        # RANUM's graph begins after the sampling of pixels.
        of_ranum=boltzmann_machine if binary else None,
    )


MODELS = (
    _model("22", "git1_rbm", binary=True),
    _model("51", "RBM", binary=True),
    _model("62", "gongdols.denoising_RBM"),
    _model("63", "gongdols.main"),
)
