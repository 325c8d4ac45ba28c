"""Arithmetic and functions, element by element, and lines about them, by which what they make of a form is one, too."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from ranum_falsify.checker.bounds import Bounds, choose, corners, enclose, least, require, unit
from ranum_falsify.checker.forms import Form, add_up, multiply
from ranum_falsify.checker.node import RULES, NodeView, Rule, rule
from ranum_falsify.checker.sums import add_products, same_float

_MOST_PIECES, _MOST_POINTS = 256, 1 << 20


def lined(rule: Rule) -> Rule:
    """Return a rule, element by element, that follows forms of one operand by lines."""
    return functools.wraps(rule)(lambda node, *operands: _follow(rule, node, *operands))


def _follow(rule: Rule, node: NodeView, *operands: Bounds | None) -> Bounds:
    """Keep what a rule makes of one operand that has a form between two parallel lines.

    Lines of any slope do.  How far results stray from them comes of the rule itself, for pieces of what the operand
    ranges over, or for the points between which the function is straight.
    """
    found: Bounds = only(rule(node, *operands))
    formed = {name for name, one in zip(node.proto.input, operands, strict=False) if one is not None and one.form}
    varying = [one is not None and name in formed for name, one in zip(node.proto.input, operands, strict=False)]
    x = next((one for one in operands if one is not None and one.form), None)
    if len(formed) != 1 or x is None or x.form is None or found.form or x.shape != found.shape or not x.lower.size:
        return found
    others = [one for one, varies in zip(operands, varying, strict=True) if one is not None and not varies]
    pieces = _cut_up(node.op, x, others).flushed()
    y = only(rule(node, *(pieces if varies else one for one, varies in zip(operands, varying, strict=True)))).real
    width = x.real.upper - x.real.lower
    slope = np.where(width > 0, (y.upper[-1] - y.lower[0]) / np.where(width > 0, width, 1.0), 0.0)
    gap = y - Bounds.of(slope) * pieces
    rest = Form.between(gap.lower.min(0), gap.upper.max(0))
    form = add_up(
        [(x.form, lambda plane: plane * slope, lambda size: size * np.abs(slope)), (rest, np.asarray, np.asarray)]
    )
    return Bounds(found.lower, found.upper, form)


def only(found: Bounds | list[Bounds]) -> Bounds:
    """Return the first of some results."""
    return found if isinstance(found, Bounds) else found[0]


def _cut_up(op: str, x: Bounds, others: Sequence[Bounds]) -> Bounds:
    """Return pieces of an interval, one after another along a new first axis."""
    kinks: list[np.ndarray] | None = None
    if op in ("Relu", "LeakyRelu", "PRelu", "Abs"):
        kinks = [np.zeros((), x.dtype)]
    elif op in ("Clip", "Max", "Min") and others and all(one.is_point for one in others):
        kinks = [one.lower for one in others]
    if kinks is not None:
        points = np.stack([x.lower, *(np.clip(kink, x.lower, x.upper) for kink in kinks), x.upper])
        return Bounds(points, points)
    count = int(np.clip(_MOST_POINTS // x.lower.size, 4, _MOST_PIECES))
    shares = np.linspace(0, 1, count + 1).reshape(-1, *[1] * x.lower.ndim)
    inner = (x.real.lower + (x.real.upper - x.real.lower) * shares).astype(x.dtype)
    points = np.clip(inner, x.lower, x.upper)
    points[0], points[-1] = x.lower, x.upper
    return Bounds(points[:-1], points[1:])


# exact operators -----------------------------------------------------------------------------------------------------

SIGNS = {
    **dict.fromkeys("Max Min Clip Relu Floor Ceil Round Sign And Or".split(), "+"),
    **dict.fromkeys(("Neg", "Not"), "-"),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), "+."),
    **dict.fromkeys(("Greater", "GreaterOrEqual"), "+-"),
    **dict.fromkeys(("Less", "LessOrEqual"), "-+"),
}
"""Exact operators that grow, or fall, with each operand, the last sign for all others; a dot is of known ones."""


@rule(" ".join(SIGNS))
def _grow(node: NodeView, *operands: Bounds | None) -> list[Bounds]:
    """Evaluate operators that grow or fall with their operands at the ends."""
    signs = SIGNS[node.op].ljust(len(operands), SIGNS[node.op][-1])
    lows, highs = list[np.ndarray | None](), list[np.ndarray | None]()
    for sign, one in zip(signs, operands, strict=False):
        if one is not None:
            require(sign != "." or one.is_point, node.op != "Neg" or one.is_float, len(operands) == 1 or one.lower.size)
        lows.append(None if one is None else one.upper if sign == "-" else one.lower)
        highs.append(None if one is None else one.lower if sign == "-" else one.upper)
    return [Bounds(low, high) for low, high in zip(node.run(lows), node.run(highs), strict=True)]


rule("Relu Clip Max Min")(lined(_grow))


# arithmetic ----------------------------------------------------------------------------------------------------------

_WHOLE = 2.0**53
_UFUNCS: Mapping[str, np.ufunc] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


@rule("Add Sub Mul")
@lined
def _combine(node: NodeView, a: Bounds, b: Bounds) -> Bounds:
    """Bound sums, differences and products of two operands, and quotients of integers."""
    require(a.dtype == b.dtype)
    if node.op == "Mul" and node.proto.input[0] == node.proto.input[1]:
        square = [_rounded(np.multiply, end, end) for end in map(Bounds.of, (a.magnitudes.lower, a.magnitudes.upper))]
        return Bounds(square[0].lower, square[1].upper)
    found = _rounded(_UFUNCS[node.op], a, b)
    if a.form is None and b.form is None:
        return found
    if node.op == "Mul":
        form = multiply(np.multiply, a.linear, b.linear, 1)
    else:
        sign = np.asarray if node.op == "Add" else np.negative
        form = add_up([(a.linear, np.asarray, np.asarray), (b.linear, sign, np.asarray)])
    return Bounds(found.lower, found.upper, form and form.widened(2 * unit(a.dtype) * found.size + least(a.dtype)))


def _rounded(apply: Callable[..., np.ndarray], a: Bounds, b: Bounds) -> Bounds:
    """Bound a result that is rounded once, or not at all: chains of float16 may run in float32."""
    if a.dtype in (np.float32, np.float64):
        return Bounds(*corners(apply, a, b))
    wide = Bounds(*corners(apply, a.real, b.real))
    if a.is_float:
        return enclose(wide, a.dtype)  # exact in float64
    require(a.dtype.kind in "iu")
    limits = np.iinfo(a.dtype)  # beyond which integers wrap around
    require(wide.lower >= max(-_WHOLE, limits.min), wide.upper <= min(_WHOLE, limits.max))
    return wide.map(lambda end: np.trunc(end).astype(a.dtype))


@rule("Div Reciprocal")
@lined
def _divide(node: NodeView, a: Bounds, b: Bounds | None = None) -> Bounds:
    """Bound quotients; PyTorch multiplies by reciprocals of constants, which rounds twice."""
    a, b = (a.map(np.ones_like), a) if b is None else (a, b)
    if not b.is_float:
        require(b.magnitudes.lower >= 1)
        return only(_combine(node, a, b))
    dtype, smallest, form = same_float(a, b), np.maximum(b.magnitudes.real.lower, node.away), None
    require(smallest >= least(dtype), 1 / smallest < np.finfo(dtype).max)
    above, below = np.maximum(b.real.lower, smallest), np.minimum(b.real.upper, -smallest)
    sides = a / Bounds(above, np.maximum(b.real.upper, above)), a / Bounds(np.minimum(b.real.lower, below), below)
    quotient = choose(b.upper > 0, b.lower < 0, *sides)
    error = np.where(quotient.size > 1e-300, 4 * unit(dtype) * quotient.size + least(dtype), 1e-300)
    if a.form and (b.magnitudes.lower >= least(dtype)).all():
        inverse = only(RULES["Reciprocal"](node.like("Reciprocal"), b))
        form = multiply(np.multiply, a.form, inverse.linear, 1)
    positive = a.lower.size and (a.lower >= 0).all() and (b.lower >= 0).all()
    return enclose(quotient, dtype, error, form).at_least(0.0 if positive else -np.inf)


@rule("Sum Mean")
def _add_up(node: NodeView, first: Bounds, *others: Bounds) -> Bounds:
    same_float(first, *others)
    count = 1 + len(others)
    scale = 1 / count if node.op == "Mean" else 1.0
    bias = others if scale == 1.0 else [one * Bounds.of(scale) for one in others]
    return add_products(np.multiply, first, Bounds.of(1.0), count, bias, scale=scale)


@rule("LeakyRelu PRelu HardSigmoid")
@lined
def _bend(node: NodeView, x: Bounds, slope: Bounds | None = None) -> Bounds:
    """Bound functions of two straight lines, or of three."""
    dtype = same_float(x)
    if node.op == "HardSigmoid":
        alpha, beta = node.attribute("alpha", 0.2), node.attribute("beta", 0.5)
        margin = 4 * unit(dtype) * (abs(alpha) * x.size + abs(beta)) + least(dtype)
        line = Bounds.of(alpha) * x + Bounds.of(beta)
        return enclose(line.widen(margin).map(lambda end: np.clip(end, 0, 1)), dtype)
    slope = Bounds.of(node.attribute("alpha", 0.01)) if slope is None else slope
    found = x.real.map(lambda end: np.maximum(end, 0)) + x.real.map(lambda end: np.minimum(end, 0)) * slope
    return enclose(found, dtype, 4 * unit(dtype) * found.size + least(dtype))


rule("Abs")(lined(lambda node, x: x.magnitudes))
rule("IsNaN IsInf")(lambda node, x: Bounds.of(np.zeros(x.shape, dtype=bool)))


@rule("Equal Xor")
def _compare(node: NodeView, a: Bounds, b: Bounds) -> Bounds:
    """Tell whether values are surely the same, or surely not, and whether they may be."""
    require(a.dtype == b.dtype)
    same = (a.lower == a.upper) & (b.lower == b.upper) & (a.lower == b.lower)
    apart = (a.upper < b.lower) | (b.upper < a.lower)
    return Bounds(same, ~apart) if node.op == "Equal" else Bounds(apart, ~same)


@rule("Cast CastLike")
def _cast(node: NodeView, x: Bounds, like: Bounds | None = None) -> Bounds:
    """Bound conversions: to the nearest float, some of which ONNX Runtime leaves out, and towards 0."""
    number = node.attribute("to", 0)
    node.ignore("saturate")
    dtype = like.dtype if like is not None else onnx.helper.tensor_dtype_to_np_dtype(number)
    require(dtype.kind in "biuf", dtype.name != "bfloat16")
    if dtype == x.dtype:
        return x
    if dtype.kind == "b":
        return Bounds((x.lower > 0) | (x.upper < 0), (x.lower != 0) | (x.upper != 0))
    if dtype.kind == "f":
        found = enclose(x.real, dtype) if x.is_float and dtype == np.float16 else x.map(lambda end: end.astype(dtype))
        error = 2 * max(unit(dtype), unit(x.dtype)) * x.size + least(dtype) if x.is_float else 0.0
        return Bounds(found.lower, found.upper, x.form and x.form.widened(error))
    limits, whole = np.iinfo(dtype), x.map(np.trunc) if x.is_float else x
    require(whole.real.lower >= max(limits.min, -(2.0**62)), whole.real.upper <= min(limits.max, 2.0**62))
    return whole.map(lambda end: end.astype(dtype))


@rule("Mod")
def _modulo(node: NodeView, x: Bounds, by: Bounds) -> Bounds:
    """Bound remainders by positive integers."""
    require(x.dtype.kind in "iu", not node.attribute("fmod", 0), by.lower > 0)
    high = by.upper - 1 + np.zeros_like(x.upper)
    return Bounds(np.zeros_like(high), high)


# functions that kernels approximate -----------------------------------------------------------------------------------

RELATIVE: Mapping[str, float] = {"float16": 4e-2, "float32": 4e-6, "float64": 3e-14}
"""Relative errors of kernels, by type; |result - f| <= relative |f| + absolute.

The errors are this checker's own: several times what sweeps of the kernels of ONNX Runtime 1.31 and PyTorch 2.13 over
float32 and float16 values showed on x86-64 processors with SSE, AVX, AVX2 and AVX-512, of which the prover has records
of its own.
"""

_MOST_EXP = {"float16": 11.0, "float64": 700.0}
"""Where exp(x) is finite."""

_Values = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Function:
    """A function that falls until a valley, if it has one, and then rises.

    Attributes:
        values: The function itself, in float64.
        absolute: Absolute errors of its kernels of float16, float32 and float64.
        start: What its operand must not lie below.
        by_exp: Whether ONNX Runtime computes exp(x) of large operands, except in float32, whose kernels do not.
        range: What no result lies outside of.
        valley: Where it is smallest, below 0, and at most what value it has there; it is negative from there to 0.
        is_positive: Whether operands have to be positive, even where denormal ones are taken for 0.
    """

    values: _Values
    absolute: tuple[float, float, float] = (0.0, 0.0, 0.0)
    start: float = -math.inf
    by_exp: bool = False
    range: tuple[float, float] = (-math.inf, math.inf)
    valley: float | None = None
    is_positive: bool = False


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=np.float64)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + small), small / (1 + small)))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


_ONE = 1 + 1e-6
_ABOUT = (2e-3, 1e-5, 1e-5)
FUNCTIONS: Mapping[str, Function] = {
    "Exp": Function(np.exp, range=(0, math.inf)),
    "Log": Function(np.log, is_positive=True),
    "Sqrt": Function(np.sqrt, start=0, range=(0, math.inf)),
    "Sigmoid": Function(_sigmoid, (1e-4, 1e-6, 1e-14), range=(0, _ONE)),
    "Tanh": Function(np.tanh, (1e-7, 1e-35, 1e-300), range=(-_ONE, _ONE)),
    "Erf": Function(_erf, (1e-4, 1e-35, 1e-300), range=(-_ONE, _ONE)),
    "Softplus": Function(_softplus, (1e-7, 1e-35, 1e-7), by_exp=True, range=(0, math.inf)),
    "Atan": Function(np.arctan, (1e-7, 1e-35, 1e-300), range=(-1.6, 1.6)),
    "Elu": Function(lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), _ABOUT, range=(-_ONE, math.inf)),
    "HardSwish": Function(lambda x: x * np.clip(x / 6 + 0.5, 0, 1), _ABOUT, valley=-0.3751),
    "Mish": Function(lambda x: x * np.tanh(_softplus(x)), _ABOUT, by_exp=True, valley=-0.3089),
    "Swish": Function(lambda x: x * _sigmoid(x), _ABOUT, valley=-0.2785),
    "Gelu": Function(lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2, _ABOUT, valley=-0.17005),
    "Softsign": Function(lambda x: x / (1 + np.abs(x)), range=(-_ONE, _ONE)),
}
"""The functions by ONNX operator; both forms of Gelu lie within 4.8e-4 of each other, which its users add."""


def apply_function(function: Function, x: Bounds, extra: float = 0.0) -> Bounds:
    """Return bounds of what a function makes of a tensor."""
    name, real = same_float(x).name, x.real
    most = _MOST_EXP.get(name, math.inf) if function.by_exp else math.inf
    require(real.lower >= (least(x.dtype) if function.is_positive else function.start), real.upper <= most)
    found = real.map(function.values)
    if function.valley is not None:
        found = Bounds(
            np.where(real.lower >= 0, found.lower, function.valley), np.where(real.upper >= 0, found.upper, 0.0)
        )
    absolute = function.absolute[("float16", "float32", "float64").index(name)] + extra
    wide = Bounds(
        found.lower - RELATIVE[name] * np.abs(found.lower) - absolute,
        found.upper + RELATIVE[name] * np.abs(found.upper) + absolute,
    ).map(lambda end: np.clip(end, *function.range))
    return enclose(wide, x.dtype, 0.0).at_least(0.0 if function.range[0] == 0 else -np.inf)


@rule(" ".join(FUNCTIONS))
@lined
def _function(node: NodeView, x: Bounds) -> Bounds:
    require(node.op not in ("Elu", "Swish") or node.attribute("alpha", 1.0) == 1.0)
    approximate = node.op == "Gelu" and node.attribute("approximate", "none") == "tanh"
    return apply_function(FUNCTIONS[node.op], x, 5e-4 if approximate else 0.0)


@rule("com.microsoft.Gelu com.microsoft.BiasGelu com.microsoft.FastGelu com.microsoft.QuickGelu")
@lined
def _biased(node: NodeView, x: Bounds, bias: Bounds | None = None) -> Bounds:
    """Bound Gelu and its relatives of ONNX Runtime, some of a sum."""
    x = x if bias is None else enclose(x + bias, x.dtype, 0.0)
    quick = node.op == "QuickGelu"  # x sigmoid(1.702 x) is 0.03 from Gelu at most
    require(not quick or abs(float(node.attribute("alpha", 1.702)) - 1.702) <= 1e-6)
    return apply_function(FUNCTIONS["Gelu"], x, 0.03 if quick else 5e-4)


@rule("Pow")
@lined
def _power(node: NodeView, x: Bounds, y: Bounds) -> Bounds:
    """Bound powers, of positive bases or with one whole exponent."""
    require(x.is_float, x.dtype == y.dtype or y.is_point)
    shape = np.broadcast_shapes(x.shape, y.shape)
    base, exponent = (one.real.map(lambda end: np.broadcast_to(end, shape)) for one in (x, y))
    number = float(exponent.lower.flat[0]) if y.is_point and (y.lower == y.lower.flat[0]).all() else math.nan
    if number in range(1, 65):
        found = (base.magnitudes if number % 2 == 0 else base).map(lambda end: end**number)
    else:
        require((base.lower >= least(x.dtype)).all() or ((base.lower >= 0).all() and (exponent.lower > 0).all()))
        found = Bounds(*corners(np.power, base, exponent))
    error = RELATIVE[x.dtype.name] * found.size
    made = enclose(found, x.dtype, np.where(error > 0, error + least(x.dtype), 0))
    return made.at_least(0.0 if (found.lower >= 0).all() else -np.inf)


def activate(node: NodeView, x: Bounds, name: str, parameters: Sequence[float]) -> Bounds:
    """Return what a fused activation makes of a result."""
    if name == "Clip":
        ends = [Bounds.of(x.dtype.type(one)) for one in parameters]
        clip = lined(lambda _, one, low, high: one.map(lambda end: np.clip(end, low.lower, high.lower)))
        return only(clip(node.like(name), x, *ends))
    require(name in ("", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Softplus", "Softsign"), len(parameters) < 2)
    alpha = {"alpha": parameters[0]} if name == "LeakyRelu" else {}
    return only(RULES[name](node.like(name, **alpha), x)) if name else x
