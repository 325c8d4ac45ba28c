"""Softmax regression of eight samples with four features, in PyTorch's tutorials."""

from __future__ import annotations

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import FUSED_LOG_SOFTMAX, SOFTMAX_UNDERFLOW, log_softmax, mean, one_hot, total
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import zeros
from ranum_falsify.zoo.model import Build, Defect, ZooModel


def sum_regression(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm of the softmax; one bias for all classes, the loss summed over all samples."""
    x = _samples(g)
    oh = g.input("oh", (8, 3), 0.0, 1.0)
    g.output(total(g, oh * -_log_p(g, x, (1,), safe=safe)))


def class_index_regression(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm of the softmax; one bias for all classes, labels made one-hot in the model."""
    x = _samples(g)
    y = g.input("y", (8,), 0, 2, "int64")
    oh = one_hot(g, y, (8, 3))
    g.output(mean(g, total(g, oh * -_log_p(g, x, (1,), safe=safe), [1])))


def mean_regression(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm of the softmax; the mean of negated terms."""
    x = _samples(g)
    oh = g.input("oh", (8, 3), 0.0, 1.0)
    g.output(mean(g, total(g, oh * -_log_p(g, x, (3,), safe=safe), [1])))


def negative_mean_regression(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm of the softmax; the negated mean."""
    x = _samples(g)
    oh = g.input("oh", (8, 3), 0.0, 1.0)
    g.output(-mean(g, total(g, oh * _log_p(g, x, (1, 3), safe=safe), [1])))


def _samples(g: ArchitectureBuilder) -> Tensor:
    return g.input("x", (8, 4), 1.0, 7.0)


def _log_p(g: ArchitectureBuilder, x: Tensor, bias: tuple[int, ...], *, safe: bool) -> Tensor:
    logits = x @ g.weight("W", (4, 3), zeros()) + g.weight("b", bias, zeros())
    return log_softmax(g, logits, safe=safe, axis=1)


def _row(number: str, program: str, build: Build) -> ZooModel:
    return ZooModel(
        id=number,
        program=program,
        framework="torch",
        build=build,
        defects=(Defect(id=number, node="log", operator="Log", mechanism=SOFTMAX_UNDERFLOW),),
        repair=FUSED_LOG_SOFTMAX,
    )


MODELS = (
    _row("32", "PyTorchDeepLearningStart.0504_softmax_regression", sum_regression),
    _row("34", "TodayILearned.softmax_classification", class_index_regression),
    _row("47", "Study.torch21_Softmax_Reg1", mean_regression),
    _row("54", "DataScience.h03", negative_mean_regression),
)
