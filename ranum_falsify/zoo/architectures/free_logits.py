"""Cross entropy of logits that are the input itself, as tutorials introduce it."""

from __future__ import annotations

from ranum_falsify.zoo.blocks import FUSED_LOG_SOFTMAX, SOFTMAX_UNDERFLOW, log_softmax, mean, one_hot, total
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.model import Defect, ZooModel


def free_logits(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm of the softmax of the input.

    Nothing bounds the logits in the programs, which draw them from [0, 1).  Here they range over [-60, 60]: two of them
    can differ by more than 104.2, beyond which the softmax is 0 on every processor (on some beyond 88).
    """
    z = g.wide_input("z", (3, 5), -60.0, 60.0, data=(0.0, 1.0))
    y = g.input("y", (3,), 0, 4, "int64")
    oh = one_hot(g, y, (3, 5))
    g.output(mean(g, total(g, oh * -log_softmax(g, z, safe=safe, axis=1), [1])))


def _row(number: str, program: str) -> ZooModel:
    return ZooModel(
        id=number,
        program=program,
        framework="torch",
        build=free_logits,
        defects=(
            Defect(
                id=number,
                node="log",
                operator="Log",
                mechanism=f"{SOFTMAX_UNDERFLOW}, with some kernels about 88",
            ),
        ),
        repair=FUSED_LOG_SOFTMAX,
    )


MODELS = (
    _row("23", "pytorch_tu"),
    _row("27", "PyTorchDeepLearningStart.0503_softmax_regression_cost"),
    _row("46", "Study.torch20_softmax"),
    _row("57", "start_beginner_kaggle.03"),
)
