"""Softmax and logistic regressions with the cross entropy written out, and that of logits that are the input itself."""

from __future__ import annotations

from functools import partial

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import (
    SOFTMAX_UNDERFLOW,
    SOFTPLUS_LOSS,
    cross_entropy,
    dense,
    log_sigmoid_pair,
    log_softmax,
    mean,
    one_defect,
    one_hot,
    softmax_cross_entropy,
    total,
)
from ranum_falsify.zoo.builder import (
    ArchitectureBuilder,
    Initial,
    constant,
    torch_linear,
    truncated_normal,
    uniform,
    zeros,
)


def free_logits(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm of the softmax of the input.

    Nothing bounds the logits in the programs, which draw them from [0, 1).  Here they range over [-60, 60]: two of them
    can differ by more than 104.2, beyond which the softmax is 0 on every processor (on some beyond 88).
    """
    z = g.wide_input("z", (3, 5), -60.0, 60.0, data=(0.0, 1.0))
    y = g.input("y", (3,), 0, 4, "int64")
    oh = one_hot(g, y, (3, 5))
    g.output(mean(g, total(g, oh * -log_softmax(g, z, safe=safe, axis=1), [1])))


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


_regression = partial(one_defect, framework="tf")


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


_of_samples = partial(one_defect, framework="torch")


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


_logistic = partial(
    one_defect,
    framework="torch",
    node="log_p",
    same=("log_not_p",),
    mechanism="the sigmoid is 0 below a logit of about -88.7, -15.8 on ONNX Runtime",
    repair=SOFTPLUS_LOSS,
)

MODELS = (
    *(
        one_defect(
            number,
            program,
            free_logits,
            framework="torch",
            mechanism=f"{SOFTMAX_UNDERFLOW}, with some kernels about 88",
        )
        for number, program in (
            ("23", "pytorch_tu"),
            ("27", "PyTorchDeepLearningStart.0503_softmax_regression_cost"),
            ("46", "Study.torch20_softmax"),
            ("57", "start_beginner_kaggle.03"),
        )
    ),
    _regression("3", "GitHub-IPS-9", softmax_regression),
    _regression("10", "StackOverFlow-14", softmax_regression),
    _regression(
        "18",
        "Hands-On TensorFlow",
        partial(softmax_regression, loss="mean", weight=truncated_normal(0.1), bias=constant(0.1)),
    ),
    _regression(
        "19",
        "Python-Tensorflow",
        rectified_softmax_regression,
        mechanism=f"{SOFTMAX_UNDERFLOW}, and the rectifier after the softmax leaves it 0",
    ),
    _regression("20", "Tensorflow-Examples", _MEAN),
    _regression("21", "Tensorflow-Examples-Tutorials-MNIST", softmax_regression),
    _regression("25", "Tensorflow_MNIST", _MEAN),
    _regression("30", "Tensorflow_In_MachineLearning", softmax_regression),
    _regression("40", "ml_plactice.bmi", body_mass_regression),
    _regression("41", "ml_plactice.tb_bmi", body_mass_regression),
    _regression("42", "ml_plactice.tb_bmi2", body_mass_regression),
    _regression("45a", "DataStructure", _MEAN),
    _regression("48b", "Dive_python", _MEAN),
    _regression("50", "ImportantProjects", _MEAN),
    _regression("52", "karch", mean_of_sum),
    _regression(
        "59",
        "tensorflow_book",
        partial(softmax_regression, loss="mean", weight=uniform(-1.0, 1.0)),
        mechanism=f"{SOFTMAX_UNDERFLOW}; the program clips the softmax and then does not use what it clipped",
    ),
    _regression("60", "tensorflow_test", softmax_regression),
    _of_samples("32", "PyTorchDeepLearningStart.0504_softmax_regression", sum_regression),
    _of_samples("34", "TodayILearned.softmax_classification", class_index_regression),
    _of_samples("47", "Study.torch21_Softmax_Reg1", mean_regression),
    _of_samples("54", "DataScience.h03", negative_mean_regression),
    _logistic("26", "PyTorchDeepLearningStart.0401_logistic_regression", logistic_regression),
    _logistic("33", "TodayILearned.logistic_classification", logistic_regression),
    _logistic("37", "MachineLearning.lab05", linear_unit),
    _logistic("38", "MachineLearning.lab09", linear_unit_for_xor),
    _logistic("53", "DataScience.h02", one_feature),
    _logistic("56", "start_beginner_kaggle.01", logistic_regression),
)
