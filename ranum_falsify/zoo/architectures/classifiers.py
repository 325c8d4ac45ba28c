"""Classifiers of MNIST with hidden layers: fully connected, convolutional, and with a softmax written by hand."""

from __future__ import annotations

from functools import partial

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import (
    LEAST_COMPLEMENT,
    SOFTMAX_UNDERFLOW,
    SOFTPLUS_LOSS,
    dense,
    log_sigmoid_pair,
    log_softmax,
    max_pool,
    mean,
    one_defect,
    softmax_cross_entropy,
    tf_dropout,
    total,
)
from ranum_falsify.zoo.builder import ArchitectureBuilder, constant, torch_linear, truncated_normal, uniform, zeros
from ranum_falsify.zoo.model import Build, Defect, ZooModel


def softmax_of_each_class(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log_p` and `log_not_p` are the logarithms of the softmax and of its complement, class by class."""
    x = g.input("x", (g.batch, 784), 0.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    logits = dense(g, x, "W", "b", (784, 10), zeros(), zeros())
    p = g.Softmax(logits, axis=-1)
    log_p = g.LogSoftmax(logits, axis=-1, name="log_p") if safe else g.Log(p, name="log_p")
    not_p = g.Max(1.0 - p, LEAST_COMPLEMENT) if safe else 1.0 - p
    g.output(-mean(g, y * log_p + (1.0 - y) * g.Log(not_p, name="log_not_p")))


def saturated_sigmoids(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log_p` and `log_not_p` are the logarithms of a sigmoid and of its complement, of a net without biases."""
    x = g.input("x", (g.batch, 784), 0.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    hidden = g.Sigmoid(x @ g.weight("W_h1", (784, 512), zeros()))
    logits = hidden @ g.weight("W_out", (512, 10), zeros())
    log_p, log_not_p = log_sigmoid_pair(g, logits, safe=safe)
    g.output(mean(g, total(g, -y * log_p - (1.0 - y) * log_not_p, [1])))


def torch_hidden_layer(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm that the training loop takes of the probabilities that the network returns."""
    x = g.input("x", (g.batch, 784), 0.0, 1.0)
    y = g.input("y", (g.batch,), 0, 9, "int64")
    first, second = torch_linear(784), torch_linear(98)
    hidden = g.Relu(
        g.Gemm(x, g.weight("hidden.weight", (98, 784), first), g.weight("hidden.bias", (98,), first), transB=1)
    )
    hidden = g.Dropout(hidden, 0.5)
    logits = g.Gemm(
        hidden, g.weight("output.weight", (10, 98), second), g.weight("output.bias", (10,), second), transB=1
    )
    g.output(g.NegativeLogLikelihoodLoss(log_softmax(g, logits, safe=safe), y, reduction="mean"))


def noisy_hidden_layer(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm of the softmax of one hidden layer on images with Gaussian noise added."""
    x = g.input("x", (g.batch, 784), 0.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    keep_prob = g.input("keep_prob", (), 0.75, 1.0)
    noise = g.RandomNormal(shape=[784], seed=1.0)
    logits = _hidden_layer(g, x + 0.01 * noise, keep_prob)
    g.output(softmax_cross_entropy(g, y, logits, safe=safe, loss="mean"))


def hidden_layer_with_dropout(g: ArchitectureBuilder, *, safe: bool, loss: str = "sum") -> None:
    """`log` is the logarithm of the softmax of one hidden layer, whose dropout keeps all."""
    x = g.input("x", (g.batch, 784), 0.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    keep_prob = g.input("keep_prob", (), 1.0, 1.0)
    g.output(softmax_cross_entropy(g, y, _hidden_layer(g, x, keep_prob), safe=safe, loss=loss))


def _hidden_layer(g: ArchitectureBuilder, x: Tensor, keep_prob: Tensor) -> Tensor:
    hidden = g.Relu(dense(g, x, "W1", "b1", (784, 300), truncated_normal(0.1), zeros()))
    hidden = tf_dropout(g, hidden, keep_prob)
    return dense(g, hidden, "W2", "b2", (300, 10), zeros(), zeros())


def _log(number: str, mechanism: str = SOFTMAX_UNDERFLOW, *, node: str = "log") -> Defect:
    return Defect(id=number, node=node, operator="Log", mechanism=mechanism)


def two_convolutions(
    g: ArchitectureBuilder, *, safe: bool, loss: str = "sum", dropout: bool = True, flattened: bool = True
) -> None:
    """The network of TensorFlow's tutorial; `log` is the logarithm of its softmax."""
    x = g.input("x", (g.batch, 784) if flattened else (g.batch, 28, 28, 1), 0.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    image = g.Reshape(x, [-1, 28, 28, 1]) if flattened else x
    h = _convolution(g, _channels_first(g, image), "conv1", (1, 32))
    h = _convolution(g, max_pool(g, h), "conv2", (32, 64))
    h = g.Relu(_full(g, _channels_last(g, max_pool(g, h), 3136), "fc1", (3136, 1024)))
    if dropout:
        h = tf_dropout(g, h, g.input("keep_prob", (), 0.5, 1.0))
    g.output(softmax_cross_entropy(g, y, _full(g, h, "fc2", (1024, 10)), safe=safe, loss=loss))


def one_convolution(g: ArchitectureBuilder, *, safe: bool) -> None:
    """One convolution and two full layers; `log` is the logarithm of the softmax."""
    x = g.input("x", (g.batch, 28, 28, 1), 0.0, 1.0)
    y = g.input("y_", (g.batch, 10), 0.0, 1.0)
    keep_prob = g.input("keep_prob", (), 0.5, 1.0)
    h = max_pool(g, _convolution(g, _channels_first(g, x), "conv1", (1, 16)))
    h = g.Relu(_full(g, _channels_last(g, h, 3136), "fc1", (3136, 128)))
    logits = _full(g, tf_dropout(g, h, keep_prob), "fc2", (128, 10))
    g.output(softmax_cross_entropy(g, y, logits, safe=safe))


def lenet(g: ArchitectureBuilder, *, safe: bool) -> None:
    """LeNet-5, whose third convolution leaves one position; `log` is the logarithm of its softmax."""
    x = g.input("x", (g.batch, 32, 32, 1), 0.0, 1.0)
    label = g.input("label", (g.batch, 10), 0.0, 1.0)
    initial = truncated_normal(0.1)

    def convolve(h: Tensor, name: str, channels: tuple[int, int]) -> Tensor:
        weight = g.weight(f"{name}_w", (channels[1], channels[0], 5, 5), initial)
        return g.Relu(g.Conv(h, weight, g.weight(f"{name}_b", channels[1:], zeros())))

    h = max_pool(g, convolve(_channels_first(g, x), "c1", (1, 6)))
    h = max_pool(g, convolve(h, "c3", (6, 16)))
    h = g.Reshape(convolve(h, "c5", (16, 120)), [-1, 120])
    h = g.Relu(dense(g, h, "w6", "b6", (120, 84), initial, zeros()))
    logits = dense(g, h, "w7", "b7", (84, 10), initial, zeros())
    g.output(softmax_cross_entropy(g, label, logits, safe=safe))


def _channels_first(g: ArchitectureBuilder, image: Tensor) -> Tensor:
    return g.Transpose(image, perm=[0, 3, 1, 2])


def _channels_last(g: ArchitectureBuilder, h: Tensor, size: int) -> Tensor:
    """Return `(batch, size)` in the order height, width, channels."""
    return g.Reshape(g.Transpose(h, perm=[0, 2, 3, 1]), [-1, size])


def _convolution(g: ArchitectureBuilder, h: Tensor, name: str, channels: tuple[int, int]) -> Tensor:
    """Apply a 5x5 convolution that keeps the size, and a rectifier, to `(batch, channels[0], H, W)`."""
    weight = g.weight(f"W_{name}", (channels[1], channels[0], 5, 5), truncated_normal(0.1))
    bias = g.weight(f"b_{name}", channels[1:], constant(0.1))
    return g.Relu(g.Conv(h, weight, bias, pads=[2, 2, 2, 2]))


def _full(g: ArchitectureBuilder, h: Tensor, name: str, sizes: tuple[int, int]) -> Tensor:
    return dense(g, h, f"W_{name}", f"b_{name}", sizes, truncated_normal(0.1), constant(0.1))


_convolutional = partial(one_defect, framework="tf")


_GREATEST_EXPONENT = 87.0


def clipped_numerator_then_epsilon(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`div` divides by the sum of `exp_denominator`, which is not clipped."""
    y, logits = _classifier(g)
    p = _softmax(g, logits, "exp_denominator") if safe else _clipped_numerator(g, logits)
    _output(g, y, p + 1e-7)


def clipped_numerator_then_clip(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`exp_denominator` is the exponential of logits that are not clipped."""
    y, logits = _classifier(g)
    p = _softmax(g, logits, "exp_denominator") if safe else _clipped_numerator(g, logits)
    _output(g, y, g.Clip(p, 1e-6, 1.0))


def unclipped(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm of a quotient that neither clip nor epsilon keeps from 0."""
    y, logits = _classifier(g)
    if safe:
        _loss(g, y, _log_softmax(g, logits))
        return
    exponentials = g.Exp(logits, name="exp")
    _output(g, y, _quotient(g, exponentials, exponentials))


def clipped_numerator_then_absolute(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`exp_denominator` is the exponential of logits that are not clipped; the quotient's magnitude is."""
    y, logits = _classifier(g)
    p = _softmax(g, logits, "exp_denominator") if safe else _clipped_numerator(g, logits)
    _output(g, y, g.Clip(g.Abs(p), 1e-6, 1.0))


def clip_above_then_absolute(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`log` is the logarithm of the magnitude of a softmax of logits that are clipped above only."""
    y, logits = _classifier(g)
    if safe:
        _loss(g, y, _log_softmax(g, _clip_above(g, logits)))
    else:
        _output(g, y, g.Abs(_clipped_above(g, logits)))


def clip_above_then_epsilon(g: ArchitectureBuilder, *, safe: bool) -> None:
    """`div` divides by the sum of exponentials of logits that are clipped above only."""
    y, logits = _classifier(g)
    p = _softmax(g, logits) if safe else _clipped_above(g, logits)
    _output(g, y, g.Abs(p) + 1e-6)


def _classifier(g: ArchitectureBuilder) -> tuple[Tensor, Tensor]:
    """Return labels and logits, both `(batch, 10)`."""
    x = g.input("x", (g.batch, 28, 28, 1), -1.0, 1.0)
    y = g.input("y", (g.batch, 10), 0.0, 1.0)
    initial = uniform(-0.25, 0.25)
    hidden = g.Relu(dense(g, g.Reshape(x, [-1, 784]), "W1", "b1", (784, 200), initial, zeros()))
    hidden = g.Relu(dense(g, hidden, "W2", "b2", (200, 100), initial, zeros()))
    return y, dense(g, hidden, "W3", "b3", (100, 10), initial, zeros())


def _clipped_numerator(g: ArchitectureBuilder, logits: Tensor) -> Tensor:
    numerator = g.Exp(g.Clip(logits, -_GREATEST_EXPONENT, _GREATEST_EXPONENT), name="exp_numerator")
    return _quotient(g, numerator, g.Exp(logits, name="exp_denominator"))


def _clip_above(g: ArchitectureBuilder, logits: Tensor) -> Tensor:
    return g.Max(g.Min(logits, _GREATEST_EXPONENT), g.ReduceMin(logits, keepdims=0))


def _clipped_above(g: ArchitectureBuilder, logits: Tensor) -> Tensor:
    exponentials = g.Exp(_clip_above(g, logits), name="exp")
    return _quotient(g, exponentials, exponentials)


def _softmax(g: ArchitectureBuilder, logits: Tensor, name: str = "exp") -> Tensor:
    exponentials = g.Exp(_shifted(g, logits), name=name)
    return _quotient(g, exponentials, exponentials)


def _log_softmax(g: ArchitectureBuilder, logits: Tensor) -> Tensor:
    shifted = _shifted(g, logits)
    return shifted - g.Log(total(g, g.Exp(shifted), [1], keepdims=True), name="log")


def _shifted(g: ArchitectureBuilder, logits: Tensor) -> Tensor:
    return logits - g.ReduceMax(logits, axes=[1], keepdims=1)


def _quotient(g: ArchitectureBuilder, numerator: Tensor, exponentials: Tensor) -> Tensor:
    return g.Div(numerator, total(g, exponentials, [1], keepdims=True), name="div")


def _output(g: ArchitectureBuilder, y: Tensor, p: Tensor) -> None:
    _loss(g, y, g.Log(p, name="log"))


def _loss(g: ArchitectureBuilder, y: Tensor, log_p: Tensor) -> None:
    g.output(mean(g, -total(g, y * log_p, [1])))


_SHIFT = "both exponentials are of logits less the greatest"


def _handwritten(
    number: str,
    build: Build,
    node: str,
    operator: str,
    mechanism: str,
    repair: str = _SHIFT,
    of_ranum: tuple[str, ...] = (),
) -> ZooModel:
    return one_defect(
        number,
        "TensorFuzz" if number.startswith("11") else "FuzzForTensorflow",
        build,
        framework="tf",
        node=node,
        operator=operator,
        mechanism=mechanism,
        repair=repair,
        of_ranum=of_ranum,
    )


_ZERO_SUM = "all exponentials of a row are 0 where all logits lie below about -104"
_OVERFLOW = "the exponential overflows above a logit of 88.7"
_ZERO = "the quotient is 0 once its logit lies about 104 below another"
_SHIFTED_LOGARITHM = "the logarithm of the sum of exponentials, of logits less the greatest, is subtracted from these"

MODELS = (
    ZooModel(
        id="2",
        program="GitHub-IPS-6",
        framework="tf",
        build=softmax_of_each_class,
        defects=(
            _log("2a", node="log_p"),
            _log("2b", "a softmax entry rounds to 1 once its logit leads by about 19", node="log_not_p"),
        ),
        repair="the logarithm of the softmax is LogSoftmax, and its complement is raised to 2^-24",
    ),
    ZooModel(
        id="9",
        program="StackOverFlow-7",
        framework="tf",
        build=saturated_sigmoids,
        defects=(
            _log("9a", "the sigmoid rounds to 1 above a logit of about 16.6", node="log_not_p"),
            _log("9b", "the sigmoid is 0 below a logit of about -88.7", node="log_p"),
        ),
        repair=SOFTPLUS_LOSS,
    ),
    one_defect("12", "Skorch", torch_hidden_layer, framework="torch", repair="the network ends in LogSoftmax"),
    one_defect("48a", "Dive_python", noisy_hidden_layer, framework="tf"),
    one_defect("61", "tensorflow_project", hidden_layer_with_dropout, framework="tf"),
    _convolutional("6", "StackOverFlow-1", two_convolutions),
    _convolutional("7", "StackOverFlow-2", two_convolutions),
    _convolutional("8", "StackOverFlow-6", two_convolutions),
    _convolutional("14", "MNIST", lenet),
    _convolutional("24", "Tensorflow_Gesture_Demo", partial(two_convolutions, dropout=False)),
    _convolutional("29", "MachineLearning", partial(two_convolutions, flattened=False)),
    _convolutional("44", "CNNRelationExtraction", one_convolution),
    _convolutional("45b", "DataStructure", partial(two_convolutions, loss="mean")),
    _convolutional("55", "practice", partial(two_convolutions, loss="mean")),
    _convolutional("58", "pytest", two_convolutions),
    _handwritten("11a", clipped_numerator_then_epsilon, "div", "Div", _ZERO_SUM, of_ranum=("exp_denominator",)),
    _handwritten("11b", clipped_numerator_then_clip, "exp_denominator", "Exp", _OVERFLOW),
    _handwritten("11c", unclipped, "log", "Log", _ZERO, _SHIFTED_LOGARITHM),
    _handwritten("16a", clipped_numerator_then_absolute, "exp_denominator", "Exp", _OVERFLOW),
    _handwritten("16b", clip_above_then_absolute, "log", "Log", _ZERO, _SHIFTED_LOGARITHM),
    _handwritten("16c", clip_above_then_epsilon, "div", "Div", _ZERO_SUM, of_ranum=("exp",)),
)
