"""Softmax regression and small multilayer perceptrons."""

import numpy as np
import onnx
from numpy.typing import NDArray

from lab.networks.builder import NetworkBuilder, draw_weights, make_generator
from ranum_falsify.model_builder import Tensor

__all__ = [
    "classifier_a",
    "classifier_b",
    "digit",
    "mlp_classifier",
    "softmax_regression",
    "softmax_regression_safe",
]

PIXELS, CLASSES = 784, 10

# A 5 x 7 dot-matrix font for the digits 0 to 9: one number per row, the highest bit is leftmost.
FONT = (
    (0b01110, 0b10001, 0b10011, 0b10101, 0b11001, 0b10001, 0b01110),
    (0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110),
    (0b01110, 0b10001, 0b00001, 0b00010, 0b00100, 0b01000, 0b11111),
    (0b11111, 0b00010, 0b00100, 0b00010, 0b00001, 0b10001, 0b01110),
    (0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010),
    (0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110),
    (0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110),
    (0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b01000, 0b01000),
    (0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110),
    (0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100),
)


def softmax_regression() -> onnx.ModelProto:
    """Softmax regression whose cross entropy takes the logarithm of a softmax.

    The example of RANUM (Li et al., ICSE 2023, figure 1): a probability that underflows to 0 has
    the logarithm -Inf, which becomes NaN where the label is 0 and Inf where it is not.
    """
    g = NetworkBuilder("softmax_regression", "Softmax regression with cross entropy by Log.")
    logits, label = _linear_logits(g)
    probabilities = g.node("Softmax", logits, name="softmax", axis=1)
    log_probabilities = g.node("Log", probabilities, name="log")
    _cross_entropy(g, log_probabilities, label)
    g.hazard("log", "an image that puts one logit about 90 below another: Softmax underflows to 0")
    return g.build()


def softmax_regression_safe() -> onnx.ModelProto:
    """The same regression as ``softmax_regression``, with LogSoftmax, which cannot underflow."""
    g = NetworkBuilder("softmax_regression_safe", "Softmax regression, cross entropy by LogSoftmax.")
    logits, label = _linear_logits(g)
    log_probabilities = g.node("LogSoftmax", logits, name="log_softmax", axis=1)
    _cross_entropy(g, log_probabilities, label)
    return g.build()


def _linear_logits(g: NetworkBuilder) -> tuple[Tensor, Tensor]:
    rng = make_generator(1)
    image = g.input("x", (1, PIXELS), 0, 1)
    label = g.input("y", (1, CLASSES), 0, 1)
    # A deviation of 0.5 per weight lets logits differ by about 200 over the box, yet by about 30 at
    # random images, far from the 88 at which the softmax of float32 underflows.
    weights = g.weight("W", draw_weights(rng, (PIXELS, CLASSES), fan_in=1, gain=0.5))
    bias = g.weight("b", draw_weights(rng, (CLASSES,), fan_in=1, gain=0.5))
    product = g.node("MatMul", image, weights, name="matmul")
    return g.node("Add", product, bias, name="logits"), label


def _cross_entropy(g: NetworkBuilder, log_probabilities: Tensor, label: Tensor) -> None:
    negative_label = g.node("Neg", label, name="negative_label")
    terms = g.node("Mul", negative_label, log_probabilities, name="terms")
    g.output(g.reduce_sum(terms, 1, "loss", out="cross_entropy"), (1,))


def digit(label: int) -> NDArray[np.float32]:
    """Return the image of a digit, shape ``(1, 64)``: an 8 x 8 picture in rows, 0 dark, 1 lit."""
    picture = np.zeros((8, 8), dtype=np.float32)
    for row, bits in enumerate(FONT[label]):
        picture[row, 1:6] = [bits >> column & 1 for column in (4, 3, 2, 1, 0)]
    return picture.reshape(1, 64)


def mlp_classifier() -> onnx.ModelProto:
    """A perceptron that reads 8 x 8 pictures of digits by comparing them with templates.

    A picture scores 1 minus its mean distance to a template; ReLU pairs of opposite sign keep both
    sides of the score, and the second layer lets each class inhibit the others.
    """
    g = NetworkBuilder("mlp_classifier", "Digits of 8 x 8 pixels by templates: Gemm, Relu, Gemm.")
    templates = np.concatenate([digit(label) for label in range(10)]).astype(np.float64)
    score = (2.0 * templates.T - 1.0) / 16.0
    offset = -templates.sum(axis=1) / 16.0
    image = g.input("x", (1, 64), 0, 1)
    layer = g.dense(image, np.hstack([score, -score]), np.hstack([offset, -offset]), "scores")
    rectified = g.node("Relu", layer, name="scores_relu")
    inhibition = np.eye(10) * 4.0 - 0.25
    logits_w = g.weight("logits_W", np.vstack([inhibition, -inhibition]))
    logits_b = g.weight("logits_b", np.zeros(10))
    g.output(g.node("Gemm", rectified, logits_w, logits_b, name="logits", out="y"), (1, 10))
    return g.build()


def classifier_a() -> onnx.ModelProto:
    """A perceptron with two hidden layers of 24 ReLUs; the reference for ``classifier_b``."""
    return _classifier("classifier_a", "16-24-24-4 perceptron, reference of classifier_b.", bump=False)


def classifier_b() -> onnx.ModelProto:
    """``classifier_a`` with a 25th unit that is active only where ``x0 + x1 + x2 + x3 > 2.5``.

    The networks agree on about 99 % of the box; the first two outputs differ by up to 1.5 elsewhere.
    """
    return _classifier("classifier_b", "classifier_a, but for x0 + x1 + x2 + x3 > 2.5 (1 % of the box).", bump=True)


def _classifier(name: str, summary: str, bump: bool) -> onnx.ModelProto:
    rng = make_generator(9)
    w1, b1 = draw_weights(rng, (16, 24), 16, 1.4), draw_weights(rng, (24,), 1, 0.3)
    w2, b2 = draw_weights(rng, (24, 24), 24, 1.4), draw_weights(rng, (24,), 1, 0.3)
    w3, b3 = draw_weights(rng, (24, 4), 24, 1.4), draw_weights(rng, (4,), 1, 0.3)
    if bump:
        detector = np.repeat([1.0, 0.0], [4, 12])[:, None]
        w1, b1 = np.hstack([w1, detector]), np.append(b1, -2.5)
        w2, b2 = np.pad(w2, ((0, 1), (0, 1))), np.append(b2, 0.0)
        w2[24, 24] = 1.0
        w3 = np.vstack([w3, [1.0, -1.0, 0.0, 0.0]])
    g = NetworkBuilder(name, summary)
    x = g.input("x", (1, 16), -1, 1)
    hidden1 = g.node("Relu", g.dense(x, w1, b1, "hidden1"), name="hidden1_relu")
    hidden2 = g.node("Relu", g.dense(hidden1, w2, b2, "hidden2"), name="hidden2_relu")
    weights, bias = g.weight("logits_W", w3), g.weight("logits_b", b3)
    g.output(g.node("Gemm", hidden2, weights, bias, name="logits", out="y"), (1, 4))
    return g.build()
