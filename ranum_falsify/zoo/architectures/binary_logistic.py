"""Logistic regression with the binary cross entropy written out, in PyTorch's tutorials; all samples are one batch."""

from __future__ import annotations

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import SOFTPLUS_LOSS, log_sigmoid_pair, mean
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import torch_linear, zeros
from ranum_falsify.zoo.model import Build, Defect, ZooModel


def logistic_regression(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log_p` is the logarithm of the sigmoid of `x @ W + b`, for six samples of two features."""
    x = g.input("x", (6, 2), 1.0, 6.0)
    y = g.input("y", (6, 1), 0.0, 1.0)
    logits = x @ g.weight("W", (2, 1), zeros()) + g.weight("b", (1,), zeros())
    log_p, log_not_p = log_sigmoid_pair(g, logits, safe=safe)
    g.output(-mean(g, y * log_p + (1.0 - y) * log_not_p))


def linear_unit(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log_p` is the logarithm of the sigmoid of a `torch.nn.Linear`, for six samples of two features."""
    _linear_unit(g, g.input("x", (6, 2), 1.0, 6.0), safe=safe)


def linear_unit_for_xor(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log_p` is the logarithm of the sigmoid of a `torch.nn.Linear`, for the four samples of exclusive or.

    These cannot saturate the sigmoid, and the program does not bound its input; so it ranges over [-50, 50].
    """
    _linear_unit(g, g.wide_input("x", (4, 2), -50.0, 50.0, data=(0.0, 1.0)), safe=safe)


def _linear_unit(g: ArchitectureBuilder, x: Tensor, *, safe: bool) -> None:
    y = g.input("y", (g.inputs[0].shape[0], 1), 0.0, 1.0)
    initial = torch_linear(2)
    weight, bias = g.weight("linear.weight", (1, 2), initial), g.weight("linear.bias", (1,), initial)
    log_p, log_not_p = log_sigmoid_pair(g, g.Gemm(x, weight, bias, transB=1), safe=safe)
    g.output(-mean(g, y * log_p + (1.0 - y) * log_not_p))


def one_feature(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log_p` is the logarithm of the sigmoid of `x @ W + b`, for twelve samples of one feature."""
    x = g.input("x", (12, 1), 0.0, 5.0)
    y = g.input("y", (12, 1), 0.0, 1.0)
    logits = x @ g.weight("W", (1, 1), zeros()) + g.weight("b", (1, 1), zeros())
    log_p, log_not_p = log_sigmoid_pair(g, logits, safe=safe)
    g.output(mean(g, -y * log_p - (1.0 - y) * log_not_p))


def _row(number: str, program: str, build: Build) -> ZooModel:
    return ZooModel(
        id=number,
        program=program,
        framework="torch",
        build=build,
        defects=(
            Defect(
                id=number,
                node="log_p",
                same=("log_not_p",),
                operator="Log",
                mechanism="the sigmoid is 0 below a logit of about -88.7, -15.8 on ONNX Runtime",
            ),
        ),
        repair=SOFTPLUS_LOSS,
    )


MODELS = (
    _row("26", "PyTorchDeepLearningStart.0401_logistic_regression", logistic_regression),
    _row("33", "TodayILearned.logistic_classification", logistic_regression),
    _row("37", "MachineLearning.lab05", linear_unit),
    _row("38", "MachineLearning.lab09", linear_unit_for_xor),
    _row("53", "DataScience.h02", one_feature),
    _row("56", "start_beginner_kaggle.01", logistic_regression),
)
