"""Softmax regression with the cross entropy written out."""

from __future__ import annotations

from functools import partial

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import (
    FUSED_LOG_SOFTMAX,
    SOFTMAX_UNDERFLOW,
    cross_entropy,
    dense,
    log_softmax,
    mean,
    softmax_cross_entropy,
)
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import Initial, constant, truncated_normal, uniform, zeros
from ranum_falsify.zoo.model import Build, Defect, ZooModel


def softmax_regression(
    g: ArchitectureBuilder,
    *,
    safe: bool,
    loss: str = "sum",
    weight: Initial | None = None,
    bias: Initial | None = None,
) -> None:
    """`log` is the logarithm of the softmax of `x @ W + b` on flattened MNIST images."""
    y, logits = _labels_and_logits(g, weight, bias)
    g.output(softmax_cross_entropy(g, y, logits, safe=safe, loss=loss))


def mean_of_sum(g: ArchitectureBuilder, *, safe: bool) -> None:
    """:func:`softmax_regression` with a mean of the loss, which is a scalar already."""
    y, logits = _labels_and_logits(g)
    g.output(mean(g, softmax_cross_entropy(g, y, logits, safe=safe)))


def rectified_softmax_regression(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm of a softmax that passes a rectifier too: a layer's helper applies one by default."""
    y, logits = _labels_and_logits(g)
    if safe:
        log_p = log_softmax(g, logits, safe=True)
    else:
        log_p = g.Log(g.Relu(g.Softmax(logits, axis=-1)), name="log")
    g.output(cross_entropy(g, y, log_p, loss="mean"))


def body_mass_regression(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm of the softmax over thin, normal and fat, of weight and height.

    The data lie in [0.35, 1], where weights within their range cannot spread the logits by more than 60; so the input
    ranges over [-50, 50].
    """
    x = g.wide_input("x", (g.batch, 2), -50.0, 50.0, data=(0.35, 1.0))
    y = g.input("y_", (g.batch, 3), 0.0, 1.0)
    logits = dense(g, x, "W", "b", (2, 3), zeros(), zeros())
    g.output(softmax_cross_entropy(g, y, logits, safe=safe))


def _labels_and_logits(
    g: ArchitectureBuilder, weight: Initial | None = None, bias: Initial | None = None
) -> tuple[Tensor, Tensor]:
    x = g.input("x", (g.batch, 784), 0.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    return y, dense(g, x, "W", "b", (784, 10), weight or zeros(), bias or zeros())


_MEAN = partial(softmax_regression, loss="mean")


def _row(number: str, program: str, build: Build, mechanism: str = SOFTMAX_UNDERFLOW) -> ZooModel:
    return ZooModel(
        id=number,
        program=program,
        framework="tf",
        build=build,
        defects=(Defect(id=number, node="log", operator="Log", mechanism=mechanism),),
        repair=FUSED_LOG_SOFTMAX,
    )


MODELS = (
    _row("3", "GitHub-IPS-9", softmax_regression),
    _row("10", "StackOverFlow-14", softmax_regression),
    _row(
        "18",
        "Hands-On TensorFlow",
        partial(softmax_regression, loss="mean", weight=truncated_normal(0.1), bias=constant(0.1)),
    ),
    _row(
        "19",
        "Python-Tensorflow",
        rectified_softmax_regression,
        f"{SOFTMAX_UNDERFLOW}, and the rectifier after the softmax leaves it 0",
    ),
    _row("20", "Tensorflow-Examples", _MEAN),
    _row("21", "Tensorflow-Examples-Tutorials-MNIST", softmax_regression),
    _row("25", "Tensorflow_MNIST", _MEAN),
    _row("30", "Tensorflow_In_MachineLearning", softmax_regression),
    _row("40", "ml_plactice.bmi", body_mass_regression),
    _row("41", "ml_plactice.tb_bmi", body_mass_regression),
    _row("42", "ml_plactice.tb_bmi2", body_mass_regression),
    _row("45a", "DataStructure", _MEAN),
    _row("48b", "Dive_python", _MEAN),
    _row("50", "ImportantProjects", _MEAN),
    _row("52", "karch", mean_of_sum),
    _row(
        "59",
        "tensorflow_book",
        partial(softmax_regression, loss="mean", weight=uniform(-1.0, 1.0)),
        f"{SOFTMAX_UNDERFLOW}; the program clips the softmax and then does not use what it clipped",
    ),
    _row("60", "tensorflow_test", softmax_regression),
)
