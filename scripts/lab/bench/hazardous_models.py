"""Sixty small hazardous models in twelve kinds, each with its formula in real numbers, written a second time.

The formulas are those of mathematics, evaluated by mpmath with many digits; nothing of the package takes part in them.
They take arrays of objects, one for each input, and return one: an element that has no value is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np
import onnx
import onnx.parser

__all__ = ["DIGITS", "HAZARDOUS", "HazardousModel"]

DIGITS = 120
"""Decimal digits of the formulas: 1 - p is not 0 for the least float p, and its logarithm is exact."""

Array = Any
"""A NumPy array of objects: numbers of mpmath."""


@dataclass(frozen=True)
class HazardousModel:
    """A model, the box of its inputs, and what it means.

    Attributes:
        kind: What it is an example of.
        name: What it is, within its kind.
        text: Its graph in ONNX's text syntax, from the inputs on.
        low: The least value of each input.
        high: The greatest.
        meaning: The real function of its inputs.
        others: Other limits of some inputs.
        opset: Of ONNX.
    """

    kind: str
    name: str
    text: str
    low: float
    high: float
    meaning: Callable[..., Array]
    others: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    opset: int = 18

    def limits(self, name: str) -> tuple[float, float]:
        """Return the least and the greatest value of an input."""
        return self.others.get(name, (self.low, self.high))

    @property
    def id(self) -> str:
        """What it is called in records."""
        return f"{self.kind}: {self.name}"

    @property
    def model(self) -> onnx.ModelProto:
        """The model."""
        return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {self.opset}]> g {self.text}')


def _real(function: Callable[..., Any]) -> Callable[..., Array]:
    """Return a function of elements, NaN where it has no real value."""

    def call(*numbers: Any) -> Any:
        try:
            made = function(*numbers)
        except (ValueError, ZeroDivisionError):
            return mpmath.nan
        return made if isinstance(made, mpmath.mpf) and mpmath.isfinite(made) else mpmath.nan

    return np.vectorize(call, otypes=[object])


exp, log, erf, erfc, acos, tanh = map(
    _real, (mpmath.exp, mpmath.log, mpmath.erf, mpmath.erfc, mpmath.acos, mpmath.tanh)
)
power = _real(lambda x, y: mpmath.power(x, y))
divide = _real(lambda x, y: x / y)
_HALF = mpmath.mpf("0.5")


def _f32(number: float, kind: type[np.floating[Any]] = np.float32) -> mpmath.mpf:
    return mpmath.mpf(float(kind(number)))


def sqrt(x: Array) -> Array:
    return power(x, _HALF)


def log1p(x: Array) -> Array:
    return log(1 + x)


def total(x: Array) -> Array:
    return x.sum(-1, keepdims=True)


def mean(x: Array) -> Array:
    return total(x) / x.shape[-1]


def norm(x: Array) -> Array:
    return sqrt(total(x * x))


def softmax(x: Array) -> Array:
    e = exp(x - x.max(-1, keepdims=True))
    return divide(e, total(e))


def log_softmax(x: Array) -> Array:
    low = x - x.max(-1, keepdims=True)
    return low - log(total(exp(low)))


def softplus(x: Array) -> Array:
    return log1p(exp(x))


def bce(x: Array, t: Array, weight: Any = 1) -> Array:
    return weight * t * softplus(-x) + (1 - t) * softplus(x)


def centred(x: Array) -> Array:
    return x - mean(x)


def standardised(x: Array, added: Any = 0) -> Array:
    off = centred(x)
    return divide(off, sqrt(mean(off * off) + added))


def normal(x: Array, times: Any) -> Array:
    """Half of the complementary error function, which keeps its digits in the tail."""
    return erfc(-x * times) / 2


def xlogx(p: Array) -> Array:
    return np.where(p == 0, mpmath.mpf(0), p * log(np.where(p == 0, mpmath.mpf(1), p)))


def distances(x: Array, y: Array) -> Array:
    off = x[:, None, :] - y[None, :, :]
    return (off * off).sum(-1)


_ROOT2 = _f32(0.70710678)
_A = "(float[2, 4] x) => (float[2, 4] y)"
_H = "(float16[2, 4] x) => (float16[2, 4] y)"
_D = "(double[2, 4] x) => (double[2, 4] y)"
_AB = "(float[2, 4] a, float[2, 4] b) => (float[2, 4] y)"
_XT = "(float[2, 4] x, float[2, 4] t) => (float[2, 4] y)"
_AXES = "int64[1] axes = {-1}"
_ONE = "float one = {1}"
_BCE = "p = Sigmoid(x) l = Log(p) q = Sub(one, p) m = Log(q) u = Sub(one, t) a = Mul(t, l) b = Mul(u, m)"


def _kind(kind: str, *models: tuple[Any, ...]) -> list[HazardousModel]:
    return [HazardousModel(kind, *model) for model in models]


HAZARDOUS: tuple[HazardousModel, ...] = (
    *_kind(
        "logarithm of a softmax",
        ("of rows", f"{_A} {{ p = Softmax(x) y = Log(p) }}", -500, 500, log_softmax),
        ("float16", f"{_H} {{ p = Softmax(x) y = Log(p) }}", -100, 100, log_softmax),
        (
            "along columns",
            f"{_A} {{ p = Softmax <axis = 0> (x) y = Log(p) }}",
            -2000,
            2000,
            lambda x: log_softmax(x.T).T,
        ),
        (
            "cross entropy",
            f"(float[2, 4] x, float[2, 4] t) => (float[2, 1] y) <{_AXES}> "
            "{ p = Softmax(x) l = Log(p) a = Mul(t, l) s = ReduceSum(a, axes) y = Neg(s) }",
            -500,
            500,
            lambda x, t: -total(t * log_softmax(x)),
            {"t": (0, 1)},
        ),
        (
            "of the others",
            f"{_A} <{_ONE}> {{ p = Softmax(x) q = Sub(one, p) y = Log(q) }}",
            -60,
            60,
            lambda x: log(np.stack([total(np.delete(softmax(x), n, -1))[..., 0] for n in range(x.shape[-1])], -1)),
        ),
    ),
    *_kind(
        "logarithm of a sigmoid",
        ("plain", f"{_A} {{ p = Sigmoid(x) y = Log(p) }}", -200, 200, lambda x: -softplus(-x)),
        (
            "of the opposite",
            f"{_A} <{_ONE}> {{ p = Sigmoid(x) q = Sub(one, p) y = Log(q) }}",
            -200,
            200,
            lambda x: -softplus(x),
        ),
        (
            "written out",
            f"{_A} <{_ONE}> {{ n = Neg(x) e = Exp(n) d = Add(one, e) p = Div(one, d) y = Log(p) }}",
            -200,
            200,
            lambda x: -softplus(-x),
        ),
        ("float64", f"{_D} {{ p = Sigmoid(x) y = Log(p) }}", -2000, 2000, lambda x: -softplus(-x)),
        (
            "1 - tanh^2",
            f"{_A} <{_ONE}> {{ h = Tanh(x) s = Mul(h, h) q = Sub(one, s) y = Log(q) }}",
            -50,
            50,
            lambda x: -2 * log((exp(x) + exp(-x)) / 2),
        ),
    ),
    *_kind(
        "cross entropy by hand",
        ("elementwise", f"{_XT} <{_ONE}> {{ {_BCE} s = Add(a, b) y = Neg(s) }}", -120, 120, bce, {"t": (0, 1)}),
        ("other order", f"{_XT} <{_ONE}> {{ {_BCE} c = Neg(a) y = Sub(c, b) }}", -30, 30, bce, {"t": (0, 1)}),
        (
            "mean",
            "(float[2, 4] x, float[2, 4] t) => (float[1, 1] y) "
            f"<{_ONE}> {{ {_BCE} s = Add(a, b) r = ReduceMean(s) y = Neg(r) }}",
            -120,
            120,
            lambda x, t: np.array([[bce(x, t).sum() / x.size]]),
            {"t": (0, 1)},
        ),
        (
            "pos_weight",
            f"{_XT} <{_ONE}, float w = {{3}}> {{ {_BCE} c = Mul(w, a) s = Add(c, b) y = Neg(s) }}",
            -120,
            120,
            lambda x, t: bce(x, t, 3),
            {"t": (0, 1)},
        ),
        (
            "focal",
            f"{_A} <{_ONE}> {{ p = Sigmoid(x) q = Sub(one, p) l = Log(p) s = Mul(q, q) m = Mul(s, l) y = Neg(m) }}",
            -120,
            120,
            lambda x: softplus(-x) / (1 + exp(x)) ** 2,
        ),
    ),
    *_kind(
        "vector over its norm",
        ("ReduceL2", f"{_A} <{_AXES}> {{ n = ReduceL2(x, axes) y = Div(x, n) }}", -1, 1, lambda x: divide(x, norm(x))),
        (
            "large",
            f"{_A} <{_AXES}> {{ s = Mul(x, x) t = ReduceSum(s, axes) n = Sqrt(t) y = Div(x, n) }}",
            -1e25,
            1e25,
            lambda x: divide(x, norm(x)),
        ),
        (
            "float16",
            f"{_H} <{_AXES}> {{ s = Mul(x, x) t = ReduceSum(s, axes) n = Sqrt(t) y = Div(x, n) }}",
            -500,
            500,
            lambda x: divide(x, norm(x)),
        ),
        (
            "reciprocal",
            f"{_A} <{_AXES}> {{ t = ReduceSumSquare(x, axes) n = Sqrt(t) r = Reciprocal(n) y = Mul(x, r) }}",
            -1,
            1,
            lambda x: divide(x, norm(x)),
        ),
        (
            "cosine",
            "(float[2, 4] a, float[2, 4] b) => (float[2, 1] y) "
            f"<{_AXES}> {{ p = Mul(a, b) d = ReduceSum(p, axes) n = ReduceL2(a, axes) m = ReduceL2(b, axes) "
            "q = Mul(n, m) y = Div(d, q) }",
            -1,
            1,
            lambda a, b: divide(total(a * b), norm(a) * norm(b)),
        ),
    ),
    *_kind(
        "normalisation without epsilon",
        (
            "LayerNormalization",
            f"{_A} <float[4] c = {{1, 1, 1, 1}}> {{ y = LayerNormalization <epsilon = 0.0> (x, c) }}",
            -1,
            1,
            standardised,
        ),
        (
            "InstanceNormalization",
            "(float[1, 2, 4] x) => (float[1, 2, 4] y) <float[2] c = {1, 1}, float[2] b = {0, 0}> "
            "{ y = InstanceNormalization <epsilon = 0.0> (x, c, b) }",
            -1,
            1,
            standardised,
        ),
        (
            "float16",
            f"{_H} <float16[4] c = {{15360, 15360, 15360, 15360}}> {{ y = LayerNormalization <epsilon = 0.0> (x, c) }}",
            -1,
            1,
            standardised,
        ),
        (
            "BatchNormalization",
            "(float[2, 4] x, float[4] v) => (float[2, 4] y) <float[4] c = {1, 1, 1, 1}, float[4] b = "
            "{0, 0, 0, 0}> { y = BatchNormalization <epsilon = 0.0> (x, c, b, b, v) }",
            -1,
            1,
            lambda x, v: divide(x, sqrt(v) + 0 * x),
            {"v": (0, 1)},
        ),
        (
            "in a network",
            "(float[2, 4] x) => (float[2, 2] y) <float[4] c = {1, 1, 1, 1}, float[4, 2] w = "
            "{1, 2, -1, 0.5, 1, -2, 0.25, 1}> { r = Relu(x) n = LayerNormalization <epsilon = 0.0> (r, c) "
            "y = MatMul(n, w) }",
            -1,
            1,
            lambda x: (
                standardised(np.where(x > 0, x, mpmath.mpf(0)))
                @ np.array([[1, 2], [-1, 0.5], [1, -2], [0.25, 1]], object)
            ),
        ),
    ),
    *_kind(
        "normalisation by hand",
        (
            "power of the variance",
            f"{_A} <{_AXES}, float h = {{-0.5}}> {{ m = ReduceMean(x, axes) d = Sub(x, m) "
            "s = Mul(d, d) v = ReduceMean(s, axes) r = Pow(v, h) y = Mul(d, r) }",
            -1,
            1,
            standardised,
        ),
        (
            "root of the variance",
            f"{_A} <{_AXES}> {{ m = ReduceMean(x, axes) d = Sub(x, m) s = Mul(d, d) "
            "v = ReduceMean(s, axes) r = Sqrt(v) y = Div(d, r) }",
            -1,
            1,
            standardised,
        ),
        (
            "difference of squares",
            f"{_A} <{_AXES}, float e = {{1e-5}}> {{ m = ReduceMean(x, axes) d = Sub(x, m) "
            "s = Mul(x, x) q = ReduceMean(s, axes) k = Mul(m, m) v = Sub(q, k) w = Add(v, e) r = Sqrt(w) "
            "y = Div(d, r) }",
            -30,
            30,
            lambda x: standardised(x, _f32(1e-5)),
        ),
        (
            "float16",
            f"{_H} <{_AXES}, float16 e = {{168}}> {{ m = ReduceMean(x, axes) d = Sub(x, m) s = Mul(d, d) "
            "v = ReduceMean(s, axes) w = Add(v, e) r = Sqrt(w) y = Div(d, r) }",
            -1000,
            1000,
            lambda x: standardised(x, _f32(1e-5, np.float16)),
        ),
        (
            "root mean square",
            f"{_A} <{_AXES}, float h = {{-0.5}}> {{ s = Mul(x, x) v = ReduceMean(s, axes) r = Pow(v, h)"
            " y = Mul(x, r) }",
            -1,
            1,
            lambda x: divide(x, sqrt(mean(x * x))),
        ),
    ),
    *_kind(
        "power",
        (
            "root of a difference",
            f"{_A} <float e = {{1e-3}}, float h = {{0.5}}> {{ s = Mul(x, x) d = Sub(s, e) y = Pow(d, h) }}",
            -1,
            1,
            lambda x: sqrt(x * x - _f32(1e-3)),
        ),
        ("x^-1.5", f"{_A} <float h = {{-1.5}}> {{ y = Pow(x, h) }}", 0, 4, lambda x: power(x, mpmath.mpf("-1.5"))),
        ("a^b", f"{_AB} {{ y = Pow(a, b) }}", -2, 2, power),
        ("x^0.4", f"{_A} <float h = {{0.4}}> {{ y = Pow(x, h) }}", -1, 3, lambda x: power(x, _f32(0.4))),
        ("x^-2", f"{_A} <float h = {{-2}}> {{ y = Pow(x, h) }}", -1, 1, lambda x: power(x, -2)),
    ),
    *_kind(
        "distance",
        (
            "by MatMul",
            f"(float[3, 4] a, float[2, 4] b) => (float[3, 2] y) <{_AXES}, float two = {{2}}> {{ p = Mul(a, a) "
            "q = Mul(b, b) n = ReduceSum(p, axes) k = ReduceSum(q, axes) m = Transpose <perm = [1, 0]> (k) "
            "t = Transpose <perm = [1, 0]> (b) d = MatMul(a, t) e = Mul(two, d) s = Add(n, m) r = Sub(s, e) "
            "y = Sqrt(r) }",
            -10,
            10,
            lambda a, b: sqrt(distances(a, b)),
        ),
        (
            "logarithm",
            f"(float[2, 4] a, float[2, 4] b) => (float[2, 1] y) <{_AXES}> {{ d = Sub(a, b) s = Mul(d, d) "
            "t = ReduceSum(s, axes) y = Log(t) }",
            -1,
            1,
            lambda a, b: log(total((a - b) * (a - b))),
        ),
        (
            "inverse",
            f"(float[2, 4] a, float[2, 4] b) => (float[2, 1] y) <{_AXES}> {{ d = Sub(a, b) s = Mul(d, d) "
            "t = ReduceSum(s, axes) r = Sqrt(t) y = Reciprocal(r) }",
            -1,
            1,
            lambda a, b: divide(1, norm(a - b)),
        ),
        (
            "expanded",
            f"(float[2, 4] a, float[2, 4] b) => (float[2, 1] y) <{_AXES}, float two = {{2}}> {{ p = Mul(a, a) "
            "q = Mul(b, b) c = Mul(a, b) n = ReduceSum(p, axes) m = ReduceSum(q, axes) d = ReduceSum(c, axes) "
            "e = Mul(two, d) s = Add(n, m) r = Sub(s, e) y = Sqrt(r) }",
            -10,
            10,
            lambda a, b: norm(a - b),
        ),
        (
            "hypotenuse",
            f"{_AB} {{ p = Mul(a, a) q = Mul(b, b) s = Add(p, q) y = Sqrt(s) }}",
            -1e25,
            1e25,
            lambda a, b: sqrt(a * a + b * b),
        ),
    ),
    *_kind(
        "normal distribution",
        (
            "logarithm of the distribution",
            f"{_A} <{_ONE}, float h = {{0.5}}, float k = {{0.70710678}}> {{ z = Mul(x, k) "
            "e = Erf(z) s = Add(one, e) p = Mul(h, s) y = Log(p) }",
            -20,
            20,
            lambda x: log(normal(x, _ROOT2)),
        ),
        (
            "of the survival",
            f"{_A} <{_ONE}, float h = {{0.5}}, float k = {{0.70710678}}> {{ z = Mul(x, k) "
            "e = Erf(z) s = Sub(one, e) p = Mul(h, s) y = Log(p) }",
            -20,
            20,
            lambda x: log(normal(-x, _ROOT2)),
        ),
        (
            "divided root",
            f"{_A} <{_ONE}, float h = {{0.5}}, float k = {{1.4142135}}> {{ z = Div(x, k) "
            "e = Erf(z) s = Add(e, one) p = Mul(s, h) y = Log(p) }",
            -20,
            20,
            lambda x: log(normal(x, 1 / _f32(1.4142135))),
        ),
        (
            "density over distribution",
            f"{_A} <{_ONE}, float h = {{0.5}}, float k = {{0.70710678}}> {{ z = Mul(x, k) "
            "s = Mul(z, z) n = Neg(s) f = Exp(n) e = Erf(z) t = Add(one, e) p = Mul(h, t) y = Div(f, p) }",
            -20,
            20,
            lambda x: divide(exp(-((x * _ROOT2) ** 2)), normal(x, _ROOT2)),
        ),
        (
            "probit loss",
            f"{_XT} <{_ONE}, float h = {{0.5}}, float k = {{0.70710678}}> {{ z = Mul(x, k) e = Erf(z) "
            "s = Add(one, e) p = Mul(h, s) l = Log(p) r = Sub(one, e) q = Mul(h, r) m = Log(q) u = Sub(one, t) "
            "a = Mul(t, l) b = Mul(u, m) c = Add(a, b) y = Neg(c) }",
            -20,
            20,
            lambda x, t: -t * log(normal(x, _ROOT2)) - (1 - t) * log(normal(-x, _ROOT2)),
            {"t": (0, 1)},
        ),
    ),
    *_kind(
        "exponentials",
        (
            "log of a sum",
            f"(float[2, 4] x) => (float[2, 1] y) <{_AXES}> {{ e = Exp(x) s = ReduceSum(e, axes) y = Log(s) }}",
            -500,
            500,
            lambda x: log(total(exp(x))),
        ),
        (
            "softmax by hand",
            f"{_A} <{_AXES}> {{ e = Exp(x) s = ReduceSum(e, axes) y = Div(e, s) }}",
            -500,
            500,
            softmax,
        ),
        ("log(1 + exp x)", f"{_A} <{_ONE}> {{ e = Exp(x) s = Add(one, e) y = Log(s) }}", -500, 500, softplus),
        (
            "log(exp x - 1)",
            f"{_A} <{_ONE}> {{ e = Exp(x) s = Sub(e, one) y = Log(s) }}",
            0,
            200,
            lambda x: log(exp(x) - 1),
        ),
        (
            "tanh by hand",
            f"{_A} {{ e = Exp(x) n = Neg(x) f = Exp(n) a = Sub(e, f) b = Add(e, f) y = Div(a, b) }}",
            -200,
            200,
            tanh,
        ),
    ),
    *_kind(
        "quotient",
        ("of two inputs", f"{_AB} {{ y = Div(a, b) }}", -1, 1, divide),
        (
            "L1 norm",
            f"{_A} <{_AXES}> {{ n = ReduceL1(x, axes) y = Div(x, n) }}",
            -1,
            1,
            lambda x: divide(x, total(abs(x))),
        ),
        (
            "masked mean",
            f"(float[2, 4] x, float[2, 4] m) => (float[2, 1] y) <{_AXES}> {{ p = Mul(x, m) "
            "s = ReduceSum(p, axes) n = ReduceSum(m, axes) y = Div(s, n) }",
            -1,
            1,
            lambda x, m: divide(total(x * m), total(m)),
            {"m": (0, 1)},
        ),
        (
            "range",
            f"{_A} <{_AXES}> {{ a = ReduceMin(x, axes) b = ReduceMax(x, axes) d = Sub(x, a) r = Sub(b, a) "
            "y = Div(d, r) }",
            0,
            255,
            lambda x: divide(x - x.min(-1, keepdims=True), x.max(-1, keepdims=True) - x.min(-1, keepdims=True)),
        ),
        (
            "Dice",
            f"(float[2, 4] p, float[2, 4] t) => (float[2, 1] y) <{_AXES}, float two = {{2}}> {{ c = Mul(p, t) "
            "i = ReduceSum(c, axes) n = Mul(two, i) a = ReduceSum(p, axes) b = ReduceSum(t, axes) d = Add(a, b) "
            "y = Div(n, d) }",
            0,
            1,
            lambda p, t: divide(2 * total(p * t), total(p) + total(t)),
        ),
    ),
    *_kind(
        "end of a domain",
        (
            "entropy",
            f"(float[2, 4] p) => (float[2, 1] y) <{_AXES}> {{ l = Log(p) m = Mul(p, l) s = ReduceSum(m, axes) "
            "y = Neg(s) }",
            0,
            1,
            lambda p: -total(xlogx(p)),
        ),
        (
            "divergence",
            f"(float[2, 4] p, float[2, 4] q) => (float[2, 1] y) <{_AXES}> {{ l = Log(p) k = Log(q) "
            "d = Sub(l, k) m = Mul(p, d) y = ReduceSum(m, axes) }",
            0,
            1,
            lambda p, q: total(xlogx(p) - p * log(q)),
        ),
        ("arc cosine", f"{_A} {{ y = Acos(x) }}", -1.5, 1.5, acos),
        (
            "geometric mean",
            f"(float[2, 4] x) => (float[2, 1] y) <{_AXES}> {{ l = Log(x) m = ReduceMean(l, axes) y = Exp(m) }}",
            0,
            1,
            lambda x: exp(mean(log(x))),
        ),
        ("log(1 + x)", f"{_A} <{_ONE}> {{ s = Add(one, x) y = Log(s) }}", -1, 1, log1p),
    ),
)
