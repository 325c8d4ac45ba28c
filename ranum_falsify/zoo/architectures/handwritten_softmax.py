"""A classifier of MNIST whose softmax is written by hand, in the variants of two programs that fuzzers study."""

from __future__ import annotations

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import dense, mean, total
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import uniform, zeros
from ranum_falsify.zoo.model import Build, Defect, ZooModel

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


def _row(
    number: str,
    build: Build,
    node: str,
    operator: str,
    mechanism: str,
    repair: str = _SHIFT,
    of_ranum: tuple[str, ...] = (),
) -> ZooModel:
    return ZooModel(
        id=number,
        program="TensorFuzz" if number.startswith("11") else "FuzzForTensorflow",
        framework="tf",
        build=build,
        defects=(Defect(id=number, node=node, operator=operator, mechanism=mechanism, of_ranum=of_ranum),),
        repair=repair,
    )


_ZERO_SUM = "all exponentials of a row are 0 where all logits lie below about -104"
_OVERFLOW = "the exponential overflows above a logit of 88.7"
_ZERO = "the quotient is 0 once its logit lies about 104 below another"
_SHIFTED_LOGARITHM = "the logarithm of the sum of exponentials, of logits less the greatest, is subtracted from these"

MODELS = (
    _row("11a", clipped_numerator_then_epsilon, "div", "Div", _ZERO_SUM, of_ranum=("exp_denominator",)),
    _row("11b", clipped_numerator_then_clip, "exp_denominator", "Exp", _OVERFLOW),
    _row("11c", unclipped, "log", "Log", _ZERO, _SHIFTED_LOGARITHM),
    _row("16a", clipped_numerator_then_absolute, "exp_denominator", "Exp", _OVERFLOW),
    _row("16b", clip_above_then_absolute, "log", "Log", _ZERO, _SHIFTED_LOGARITHM),
    _row("16c", clip_above_then_epsilon, "div", "Div", _ZERO_SUM, of_ranum=("exp",)),
)
