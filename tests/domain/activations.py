"""Functions of one number that nobody wrote a pattern for, before an operator that one of their extremes decides."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tests.network.building import session, unchecked

__all__ = ["ACTIVATIONS", "ENDS", "Activation", "extremes_of", "make", "make_bare"]

INPUTS = 32
"""Inputs of the product that is the source where the input itself is not."""

_POINTS = 200_001


@dataclass(frozen=True)
class Activation:
    """A function.

    Attributes:
        name: Its name.
        body: Nodes that make `f` of `h`; numbers in angle brackets are constants.
        radius: `h` is from its negative to this.
    """

    name: str
    body: str
    radius: float = 5.0


_GATE = "s = Sigmoid(h) "
_UNIT = "t = Clip(h, <0>, <1>) "
_SHARE = "s = Sigmoid(h) p = Clip(s, <0.01>, <0.99>) q = Sub(<1>, p) "
_SQUARE = "a = Mul(h, h) "
_BELL = _SQUARE + "b = Mul(a, <-0.5>) e = Exp(b) "

ACTIVATIONS = [
    Activation("mish by parts", "s = Softplus(h) t = Tanh(s) f = Mul(h, t)"),
    Activation("squareplus", _SQUARE + "b = Add(a, <4>) r = Sqrt(b) c = Add(h, r) f = Mul(c, <0.5>)"),
    Activation("snake", "s = Sin(h) b = Mul(s, s) f = Add(h, b)"),
    Activation("gauss", _SQUARE + "b = Neg(a) f = Exp(b)", 3.0),
    Activation("softsign by parts", "a = Abs(h) b = Add(<1>, a) f = Div(h, b)"),
    Activation("log cosh", "c = Cosh(h) f = Log(c)"),
    Activation(
        "sinc", "a = Abs(h) c = Less(a, <0.001>) d = Where(c, <1>, h) s = Sin(h) q = Div(s, d) f = Where(c, <1>, q)"
    ),
    Activation("smoothstep", _UNIT + "a = Mul(t, t) b = Mul(<2>, t) c = Sub(<3>, b) f = Mul(a, c)", 2.0),
    Activation(
        "smootherstep",
        _UNIT + "a = Mul(t, <6>) b = Sub(a, <15>) c = Mul(t, b) d = Add(c, <10>) e = Pow(t, <3>) f = Mul(e, d)",
        2.0,
    ),
    Activation("tanh shrink", "t = Tanh(h) f = Sub(h, t)"),
    Activation("x exp(-x^2)", _SQUARE + "b = Neg(a) e = Exp(b) f = Mul(h, e)", 3.0),
    Activation("logit of a clipped sigmoid", _SHARE + "r = Div(p, q) f = Log(r)", 8.0),
    Activation(
        "Huber",
        _SQUARE + "b = Mul(a, <0.5>) u = Abs(h) v = Sub(u, <0.5>) c = Less(u, <1>) f = Where(c, b, v)",
    ),
    Activation(
        "Tukey",
        "u = Mul(h, <0.5>) a = Mul(u, u) b = Sub(<1>, a) c = Mul(b, b) d = Mul(c, b) e = Sub(<1>, d) v = Abs(u) "
        "g = Less(v, <1>) f = Where(g, e, <1>)",
    ),
    Activation("focal weight", _GATE + "q = Sub(<1>, s) a = Mul(q, q) f = Mul(a, s)"),
    Activation("quartic", _SQUARE + "b = Mul(a, a) f = Sub(b, a)", 2.0),
    Activation("x tanh x + cos x", "t = Tanh(h) a = Mul(h, t) c = Cos(h) f = Add(a, c)"),
    Activation("exp x - x", "e = Exp(h) f = Sub(e, h)"),
    Activation("x (1 + tanh x)", "t = Tanh(h) u = Add(t, <1>) f = Mul(h, u)"),
    Activation("swish by parts", _GATE + "f = Mul(h, s)"),
    Activation("Gelu by parts", "a = Mul(h, <0.70710677>) e = Erf(a) b = Add(e, <1>) c = Mul(h, b) f = Mul(c, <0.5>)"),
    Activation(
        "Gelu by tanh, by parts",
        "a = Mul(h, h) b = Mul(a, h) c = Mul(b, <0.044715>) d = Add(h, c) e = Mul(d, <0.7978845>) t = Tanh(e) "
        "u = Add(t, <1>) v = Mul(h, <0.5>) f = Mul(u, v)",
    ),
    Activation("quick Gelu by parts", "a = Mul(h, <1.702>) s = Sigmoid(a) f = Mul(h, s)"),
    Activation("hard swish by parts", "a = Add(h, <3>) b = Clip(a, <0>, <6>) c = Mul(h, b) f = Div(c, <6>)"),
    Activation("phish", "g = Gelu(h) t = Tanh(g) f = Mul(h, t)"),
    Activation("logish", _GATE + "a = Add(s, <1>) b = Log(a) f = Mul(h, b)"),
    Activation("serf", "s = Softplus(h) e = Erf(s) f = Mul(h, e)"),
    Activation("bent identity", _SQUARE + "b = Add(a, <1>) r = Sqrt(b) c = Mul(r, <0.5>) f = Add(c, h)"),
    Activation("smooth step of Elliot", "a = Abs(h) b = Add(a, <1>) c = Mul(h, <0.5>) d = Div(c, b) f = Add(d, <0.5>)"),
    Activation("inverse square root", _SQUARE + "b = Add(a, <1>) r = Sqrt(b) f = Div(h, r)"),
    Activation("Geman and McClure", _SQUARE + "b = Add(a, <1>) f = Div(a, b)"),
    Activation("entropy", _SHARE + "l = Log(p) m = Log(q) a = Mul(p, l) b = Mul(q, m) c = Add(a, b) f = Neg(c)", 4.0),
    Activation("Morlet", _BELL + "w = Mul(h, <1.75>) c = Cos(w) f = Mul(c, e)", 4.0),
    Activation("Mexican hat", _BELL + "c = Sub(<1>, a) f = Mul(c, e)", 4.0),
    Activation("x sin x", "s = Sin(h) f = Mul(h, s)"),
    Activation(
        "softplus of -|x|", "a = Abs(h) n = Neg(a) e = Exp(n) b = Add(e, <1>) l = Log(b) r = Relu(h) f = Add(l, r)"
    ),
    Activation("PFLU", _SQUARE + "b = Add(a, <1>) r = Sqrt(b) c = Div(h, r) d = Add(c, <1>) f = Mul(h, d)"),
    Activation("x tanh(exp x)", "e = Exp(h) t = Tanh(e) f = Mul(h, t)"),
    Activation("p (1 - p)", _GATE + "q = Sub(<1>, s) f = Mul(s, q)"),
    Activation("a choice of two", _SQUARE + "c = Greater(h, <1>) r = Sub(h, <2>) q = Sub(a, h) f = Where(c, q, r)"),
]

ENDS: dict[str, str] = {
    "Log": "z = Sub(f, <least>) y = Log(z)",
    "Sqrt": "z = Sub(f, <least>) y = Sqrt(z)",
    "Div": "z = Sub(f, <least>) k = Relu(z) y = Div(<1>, k)",
    "Exp": "z = Sub(f, <greatest>) k = Add(z, <limit>) y = Exp(k)",
}
"""Operators that are valid where f is above its least value, or below its greatest one."""


def make_bare(activation: Activation, count: int, dtype: type[np.floating[Any]] = np.float32) -> onnx.ModelProto:
    """Return the model of a function of an input of some elements."""
    return _model(f"h = Identity(x) {activation.body}", "f", f"[{count}]", dtype)


def make(
    activation: Activation, end: str, *, margin: float, product: bool, dtype: type[np.floating[Any]] = np.float32
) -> onnx.ModelProto:
    """Return a function before an operator that is valid with some margin, a share of the function's range.

    Args:
        activation: The function.
        end: The operator, one of :data:`ENDS`.
        margin: Negative where some inputs are invalid.
        product: Whether the function is of a product of 32 inputs from -1 to 1, in place of one input.
        dtype: Element type.
    """
    low, high = extremes_of(activation)
    room = margin * (high - low)
    text = ENDS[end].replace("least", repr(low - room)).replace("greatest", repr(high + room))
    text = text.replace("limit", repr(float(math.log(np.finfo(dtype).max) * (1 - np.finfo(dtype).eps))))
    first = "h = MatMul(x, weights)" if product else "h = Identity(x)"
    weights = np.random.default_rng(0).normal(size=(INPUTS, 2))
    weights *= activation.radius / np.abs(weights).sum(0)
    shape = f"[1, {INPUTS}]" if product else "[1, 2]"
    return _model(f"{first} {activation.body} {text}", "y", shape, dtype, {"weights": weights} if product else {})


@cache
def extremes_of(activation: Activation) -> tuple[float, float]:
    """Return the least and the greatest value of a function, by many points."""
    x = np.linspace(-activation.radius, activation.radius, _POINTS, dtype=np.float32)
    run = session(make_bare(activation, _POINTS))
    y = run.run(None, {"x": x})[0]
    return float(y.min()), float(y.max())


def _model(
    body: str, output: str, shape: str, dtype: type[np.floating[Any]], arrays: dict[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    constants: dict[str, np.ndarray] = dict(arrays or {})

    def name(found: re.Match[str]) -> str:
        key = f"c{len(constants)}"
        constants[key] = np.array(float(found[1]))
        return key

    text = re.sub(r"<(-?[0-9.e-]+)>", name, body)
    kind = "float" if dtype is np.float32 else "float16"
    shapes = f"({kind}{shape} x) => ({kind}{'[1, 2]' if output == 'y' else shape} {output})"
    model = unchecked(f"g {shapes} {{ {text} }}", opset=20)
    model.graph.initializer.extend(numpy_helper.from_array(x.astype(dtype), key) for key, x in constants.items())
    onnx.checker.check_model(model)
    return model
