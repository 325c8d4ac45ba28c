"""Forms that overflow, cancel or divide by 0, and for each the pass that repairs it, and what it should give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_ndtr

CONSTANTS = """
    zero = Constant<value_float = 0.0>() one = Constant<value_float = 1.0>() two = Constant<value_float = 2.0>()
    half = Constant<value_float = 0.5>() tiny = Constant<value_float = 1e-8>() clamp = Constant<value_float = -100.0>()
    root = Constant<value_float = 2.5066283>() three = Constant<value_float = 3.0>()
    last = Constant<value_ints = [1]>()
"""

Inputs = Mapping[str, Sequence[Sequence[float]]]


@dataclass(frozen=True)
class Form:
    """A form that is not stable.

    Attributes:
        name: The pass that replaces it.
        body: What computes y of x, and of t if it takes another input.
        made: Operators of the new model, constants aside.
        bad: Inputs at which the old model gives no finite number.
        box: Where inputs lie, all `bad` ones among them; the new model is proved there.
        exact: What the new model should give, in double precision.
        columns: Columns of y, of as many rows as there are; -1 for no such dimension.
        width: Columns of x and t.
    """

    name: str
    body: str
    made: set[str]
    bad: Inputs
    box: tuple[float, float]
    exact: Callable[..., np.ndarray]
    columns: int = 3
    width: int = 3

    def text(self, dtype: str = "float") -> str:
        """The graph in ONNX's text form."""
        inputs = ", ".join(f"{dtype}[2, {self.width}] {name}" for name in self.bad)
        shape = "2" if self.columns < 0 else f"2, {self.columns}"
        return f"g ({inputs}) => ({dtype}[{shape}] y) {{ {CONSTANTS} {self.body} }}"

    def inputs(self, dtype: Any = np.float32) -> dict[str, np.ndarray]:
        """The bad inputs."""
        return {name: np.array(rows, dtype=dtype) for name, rows in self.bad.items()}


def log_softmax(x: np.ndarray) -> Any:
    return x - log_sum_exp(x)[:, None]


def log_sum_exp(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp.reduce(x, axis=1))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp(0, x))


def log_others(x: np.ndarray) -> np.ndarray:
    """The logarithm of 1 - softmax(x)."""
    logs = log_softmax(x)
    return np.stack([log_sum_exp(np.delete(logs, i, axis=1)) for i in range(x.shape[1])], axis=1)


def bce(x: np.ndarray, t: np.ndarray) -> Any:
    return t * x - softplus(x)


def unit(x: np.ndarray) -> Any:
    """x over its norm, 0 where that is 0."""
    norm = np.sqrt((x * x).sum(1, keepdims=True))
    return x / np.where(norm == 0, 1, norm)


def x_log_x(x: np.ndarray) -> Any:
    return x * np.log(np.where(x == 0, 1, x))


LOGITS = [[-700, 300, 500], [1, 2, -2]]
WIDE = (-800.0, 800.0)
POINT = [[0.0, 0.0, 0.0], [3.0, 4.0, 0.0]]
LARGE = [[3e19, 4e19, 0.0], [1.0, 2.0, 2.0]]
NORM = {"Abs", "ReduceMax", "Max", "Div", "Clip", "Mul", "ReduceSum", "Sqrt"}
ENTROPY = "p = Sigmoid(x) q = Sub(one, p) l = Log(p) m = Log(q) s = Sub(one, t) a = Mul(t, l) b = Mul(s, m)"
TORCH_LOSS = """p = Sigmoid(x) n = Neg(p) q = Add(n, one) l = Log(p) m = Log(q) lc = Max(l, clamp) mc = Max(m, clamp)
    s = Sub(t, one) a = Mul(s, mc) b = Mul(t, lc) y = Sub(a, b)"""
BCE = {"Neg", "Softplus", "Mul", "Sub", "Add"}
TARGETS = [[0.0, 1.0, 0.5], [1.0, 0.0, 0.25]]

FORMS = [
    Form("stable_log_softmax", "p = Softmax(x) y = Log(p)", {"LogSoftmax"}, {"x": LOGITS}, WIDE, log_softmax),
    Form(
        "stable_log_sigmoid",
        "p = Sigmoid(x) y = Log(p)",
        {"Softplus", "Neg"},
        {"x": LOGITS},
        WIDE,
        lambda x: -softplus(-x),
    ),
    Form(
        "stable_log_one_minus_sigmoid",
        "p = Sigmoid(x) q = Sub(one, p) y = Log(q)",
        {"Softplus", "Neg"},
        {"x": LOGITS},
        WIDE,
        lambda x: -softplus(x),
    ),
    Form(
        "stable_log_one_minus_softmax",
        "p = Softmax(x) q = Sub(one, p) y = Log(q)",
        {"LogSoftmax", "Gather", "ReduceLogSumExp"},
        {"x": LOGITS},
        WIDE,
        log_others,
    ),
    Form(
        "stable_log_one_minus_tanh_squared",
        "h = Tanh(x) q = Pow(h, two) d = Sub(one, q) y = Log(d)",
        {"Tanh", "Mul", "Sub", "Max", "Log", "Abs", "Less", "Softplus", "Where"},
        {"x": LOGITS},
        WIDE,
        lambda x: 2 * (np.log(2) - x - softplus(-2 * x)),
    ),
    Form("stable_softplus", "e = Exp(x) s = Add(one, e) y = Log(s)", {"Softplus"}, {"x": LOGITS}, WIDE, softplus),
    Form(
        "stable_log_expm1",
        "e = Exp(x) s = Sub(e, one) y = Log(s)",
        {"Mul", "Tanh", "Log", "Softplus", "Add"},
        {"x": [[1e-6, 300, 500], [1, 2, 3]]},
        (1e-6, 800.0),
        lambda x: x + np.log(-np.expm1(-x)),
    ),
    Form(
        "stable_log_sum_exp",
        "e = Exp(x) s = ReduceSum(e, last) y = Log(s)",
        {"ReduceLogSumExp"},
        {"x": LOGITS},
        WIDE,
        lambda x: log_sum_exp(x)[:, None],
        1,
    ),
    Form(
        "stable_log_add_exp",
        "e = Exp(x) f = Exp(t) s = Add(e, f) y = Log(s)",
        {"Max", "Sub", "Abs", "Neg", "Softplus", "Add"},
        {"x": LOGITS, "t": [[-700, 200, 500], [-1, 2, 0]]},
        WIDE,
        np.logaddexp,
    ),
    Form(
        "stable_log_quotient",
        "e = Exp(x) s = ReduceSum(e, last) p = Div(e, s) y = Log(p)",
        {"ReduceMax", "Sub", "Exp", "ReduceSum", "Log"},
        {"x": LOGITS},
        WIDE,
        log_softmax,
    ),
    Form(
        "stable_root_of_exp",
        "e = Exp(x) y = Sqrt(e)",
        {"Mul", "Exp"},
        {"x": [[-150, 100, 120], [1, 2, -2]]},
        (-150.0, 150.0),
        lambda x: np.exp(x / 2),
    ),
    Form(
        "stable_softmax",
        "e = Exp(x) s = ReduceSum(e, last) y = Div(e, s)",
        {"Softmax"},
        {"x": LOGITS},
        WIDE,
        lambda x: np.exp(log_softmax(x)),
    ),
    Form(
        "stable_sigmoid",
        "n = Neg(x) e = Exp(n) s = Add(e, one) y = Div(one, s)",
        {"Neg", "Softplus", "Exp"},
        {"x": LOGITS},
        WIDE,
        lambda x: np.exp(-softplus(-x)),
    ),
    Form(
        "stable_tanh",
        "n = Neg(x) e = Exp(x) f = Exp(n) a = Sub(e, f) b = Add(e, f) y = Div(a, b)",
        {"Tanh"},
        {"x": LOGITS},
        WIDE,
        np.tanh,
    ),
    Form(
        "stable_one_minus_sigmoid",
        "p = Sigmoid(x) q = Sub(one, p) y = Reciprocal(q)",
        {"Softplus", "Neg", "Exp", "Reciprocal"},
        {"x": [[-70, 30, 50], [1, 2, -2]]},
        (-70.0, 50.0),
        lambda x: np.exp(softplus(x)),
    ),
    Form(
        "stable_one_minus_softmax",
        "p = Softmax(x) q = Sub(one, p) y = Reciprocal(q)",
        {"Softmax", "Gather", "Reciprocal"},
        {"x": [[-20, 20], [1, 2]]},
        (-20.0, 20.0),
        lambda x: np.exp(-log_softmax(x)[:, ::-1]),
        2,
        2,
    ),
    Form(
        "stable_expm1",
        "e = Exp(x) d = Sub(e, one) y = Reciprocal(d)",
        {"Mul", "Tanh", "Exp", "Add", "Reciprocal"},
        {"x": [[1e-9, 1e-5, 5], [1, 2, 3]]},
        (1e-9, 50.0),
        lambda x: 1 / np.expm1(x),
    ),
    Form(
        "stable_one_minus_cos",
        "c = Cos(x) d = Sub(one, c) y = Reciprocal(d)",
        {"Mul", "Sin", "Reciprocal"},
        {"x": [[1e-6, 1e-3, 0.5], [1, 0.25, 1.5]]},
        (1e-6, 1.5),
        lambda x: 1 / (2 * np.sin(x / 2) ** 2),
    ),
    Form(
        "stable_inverse_hyperbolic",
        "q = Mul(x, x) s = Add(q, one) r = Sqrt(s) a = Add(x, r) y = Log(a)",
        {"Asinh"},
        {"x": [[-1e5, 1e20, 1], [2, 0.5, 0]]},
        (-1e20, 1e20),
        np.arcsinh,
    ),
    Form(
        "stable_normalize",
        "q = Mul(x, x) s = ReduceSum(q, last) r = Sqrt(s) y = Div(x, r)",
        NORM,
        {"x": POINT},
        (-1e30, 1e30),
        unit,
    ),
    Form(
        "stable_normalize",
        "q = Mul(x, x) v = ReduceSum(q, last) u = Constant<value_float = -0.5>() r = Pow(v, u) y = Mul(x, r)",
        NORM,
        {"x": [[0.0, 0.0, 0.0], [1e-25, 2e-25, 4e-25]]},
        (-1e30, 1e30),
        unit,
    ),
    Form(
        "stable_cosine",
        """p = Mul(t, x) d = ReduceSum(p, last) r = Mul(x, x) u = ReduceSum(r, last) n = Sqrt(u) q = Mul(t, t)
        s = ReduceSum(q, last) m = Sqrt(s) w = Mul(n, m) y = Div(d, w)""",
        NORM,
        {"x": POINT, "t": [[1.0, 2.0, 2.0], [1e-25, 0.0, 0.0]]},
        (-1e30, 1e30),
        lambda x, t: (unit(x) * unit(t)).sum(1, keepdims=True),
        1,
    ),
    Form(
        "stable_norm",
        "q = Mul(x, x) s = ReduceSum(q, last) y = Sqrt(s)",
        NORM,
        {"x": LARGE},
        (-1e30, 1e30),
        lambda x: np.sqrt((x * x).sum(1, keepdims=True)),
        1,
    ),
    Form(
        "stable_norm_product",
        "q = Mul(x, x) s = ReduceSum(q, last) r = Mul(t, t) u = ReduceSum(r, last) p = Mul(s, u) y = Sqrt(p)",
        NORM,
        {"x": [[1e10, 1e10, 0], [1, 2, 2]], "t": [[1e10, 0, 1e10], [3, 4, 0]]},
        (-1e15, 1e15),
        lambda x, t: np.sqrt((x * x).sum(1, keepdims=True)) * np.sqrt((t * t).sum(1, keepdims=True)),
        1,
    ),
    Form(
        "stable_hypot",
        "q = Mul(x, x) r = Pow(t, two) s = Add(q, r) y = Sqrt(s)",
        {"Abs", "Max", "Div", "Clip", "Mul", "Add", "Sqrt"},
        {"x": LARGE, "t": [[4e19, 1.0, 0.0], [1, 0, 3]]},
        (-1e30, 1e30),
        np.hypot,
    ),
    Form(
        "stable_variance",
        """q = Mul(x, x) s = ReduceSum(q, last) m = Div(s, three) u = ReduceSum(x, last) c = Mul(u, u) d = Div(c, three)
        v = Sub(s, d) y = Sqrt(v)""",
        {"ReduceMean", "Sub", "Mul", "ReduceSum", "Sqrt"},
        {"x": [[2281.5, 2281.25, 2281.4], [4099.1, 4099.2, 4099.3]]},
        (0.0, 5000.0),
        lambda x: np.sqrt(((x - x.mean(1, keepdims=True)) ** 2).sum(1, keepdims=True)),
        1,
    ),
    Form(
        "stable_squared_distance",
        """q = Mul(x, x) s = ReduceSum(q, last) r = Mul(t, t) u = ReduceSum(r, last) p = Mul(x, t)
        w = ReduceSum(p, last) v = Mul(two, w) a = Add(s, u) d = Sub(a, v) y = Sqrt(d)""",
        {"Sub", "Mul", "ReduceSum", "Sqrt"},
        {"x": [[2151.1, 2181.85, 2291.1], [1, 2, 3]], "t": [[2151.35, 2181.85, 2291.1], [1, 2, 4]]},
        (0.0, 5000.0),
        lambda x, t: np.sqrt(((x - t) ** 2).sum(1, keepdims=True)),
        1,
    ),
    Form(
        "stable_squared_distance",
        """q = Mul(x, x) s = ReduceSum(q, last) r = Mul(t, t) u = ReduceSum(r, last) k = Transpose<perm = [1, 0]>(u)
        o = Transpose<perm = [1, 0]>(t) w = MatMul(x, o) v = Mul(two, w) a = Add(s, k) d = Sub(a, v) y = Sqrt(d)""",
        {"Reshape", "Sub", "Mul", "ReduceSum", "Sqrt"},
        {"x": [[2151.1, 2181.85, 2291.1], [1, 2, 3]], "t": [[2151.35, 2181.85, 2291.1], [1, 2, 4]]},
        (0.0, 5000.0),
        lambda x, t: np.sqrt(((x[:, None] - t[None]) ** 2).sum(2)),
        2,
    ),
    Form(
        "stable_layer_normalization",
        "n = Constant<value_ints = [3]>() c = Expand(two, n) y = LayerNormalization<epsilon = 0.0>(x, c)",
        {"ReduceMean", "Sub", "Abs", "ReduceMax", "Max", "Div", "Clip", "LayerNormalization", "Expand"},
        {"x": [[3.0, 3.0, 3.0], [1e-25, 2e-25, 4e-25]]},
        (-1e30, 1e30),
        lambda x: unit(x - x.mean(1, keepdims=True)) * np.sqrt(12),
    ),
    Form(
        "stable_log_normal_distribution",
        "e = Erf(x) s = Sub(one, e) p = Mul(half, s) y = Log(p)",
        {"Neg", "Abs", "Mul", "Add", "Div", "Log", "Sub", "Min", "Exp", "Max", "Less", "Where"},
        {"x": [[-1.0, 0.0, 1.0], [6.0, 20.0, 50.0]]},
        (-50.0, 50.0),
        lambda x: log_ndtr(-x * np.sqrt(2)),
    ),
    Form(
        "stable_division_by_square",
        "q = Mul(t, t) y = Div(x, q)",
        {"Div"},
        {
            "x": [[1e-12, 1e-20, 1e-24], [1e-13, 1e-15, 1e-22]],
            "t": [[1e-24, 1e-15, 1e-12], [1e-22, 1e-12, 1e-20]],
        },
        (1e-24, 1e-12),
        lambda x, t: x / t / t,
    ),
    Form(
        "stable_x_log_x",
        "l = Log(x) y = Mul(x, l)",
        {"Equal", "Where", "Log", "Mul"},
        {"x": [[0, 0.5, 1], [0.25, 0.125, 0]]},
        (0.0, 1.0),
        x_log_x,
    ),
    Form(
        "stable_x_log_x",
        "p = Sub(one, x) l = Log(p) y = Mul(l, p)",
        {"Sub", "Equal", "Where", "Log", "Mul"},
        {"x": [[0, 0.5, 1], [0.25, 0.125, 0]]},
        (0.0, 1.0),
        lambda x: x_log_x(1 - x),
    ),
    Form(
        "stable_bce_with_logits",
        f"{ENTROPY} y = Add(a, b)",
        BCE,
        {"x": LOGITS, "t": TARGETS},
        WIDE,
        bce,
    ),
    Form(
        "stable_bce_with_logits",
        f"{ENTROPY} w = Mul(three, a) v = Add(w, b) y = Neg(v)",
        BCE,
        {"x": LOGITS, "t": TARGETS},
        WIDE,
        lambda x, t: 3 * t * softplus(-x) + (1 - t) * softplus(x),
    ),
    Form(
        "stable_bce_loss",
        TORCH_LOSS,
        {"Neg", "Softplus", "Mul", "Sub"},
        {"x": [[-90, 50, 20], [1, 2, -2]], "t": TARGETS},
        WIDE,
        lambda x, t: -bce(x, t),
    ),
    Form(
        "drop_log_epsilon",
        "p = Softmax(x) q = Add(p, tiny) y = Log(q)",
        {"LogSoftmax"},
        {"x": LOGITS},
        WIDE,
        log_softmax,
    ),
]
