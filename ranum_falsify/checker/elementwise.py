"""Arithmetic and functions, element by element, and lines about them, by which what they make of a form is one, too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx

from ranum_falsify.checker.bounds import Bounds, Form, corners, enclose, least, require, unit
from ranum_falsify.checker.forms import affine, lined
from ranum_falsify.checker.node import NodeView, rule


def same_float(*operands: Bounds | None) -> np.dtype[Any]:
    """Return the floating type of all operands that are given."""
    dtypes = {one.dtype for one in operands if one is not None}
    require(len(dtypes) == 1, all(one is None or one.is_float for one in operands))
    return dtypes.pop()


# what is exact, or rounded once --------------------------------------------------------------------------------------


def rise(node: NodeView, *operands: Bounds | None) -> list[Bounds]:
    """Evaluate operators that rise with each operand at both ends."""
    lower = node.run(*(None if one is None else one.lower for one in operands))
    upper = node.run(*(None if one is None else one.upper for one in operands))
    return [Bounds(*ends) for ends in zip(lower, upper, strict=True)]


@rule("And Ceil Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Neg Not Or ReduceMax ReduceMin Round Sign")
def choose(node: NodeView, *operands: Bounds | None) -> Bounds:
    """Evaluate operators that choose, compare or round at the ends."""
    for place, one in enumerate(operands):
        known = place == 0 or not node.op.startswith("Reduce")
        require(one is None or (one.lower.size and (known or one.is_point) and (node.op != "Neg" or one.is_float)))
    if node.op not in ("Abs", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Neg", "Not", "Where"):
        return rise(node, *operands)[0]
    choices = [one.ends for one in operands if one is not None]
    if node.op == "Abs":
        choices[0].append(np.clip(choices[0][0].dtype.type(0), choices[0][0], choices[0][-1]))
    return corners(lambda *ends: node.run(*ends)[0], *choices)


rule("Abs Clip Max Min Relu")(lined(choose))


@rule("Equal Xor")
def _compare(node: NodeView, a: Bounds, b: Bounds) -> Bounds:
    """Tell whether values are surely the same, or surely not, and whether they may be."""
    require(a.dtype == b.dtype)
    same = (a.lower == a.upper) & (b.lower == b.upper) & (a.lower == b.lower)
    apart = (a.upper < b.lower) | (b.upper < a.lower)
    return Bounds(same, ~apart) if node.op == "Equal" else Bounds(apart, ~same)


def round_once(apply: Callable[..., np.ndarray], *operands: Bounds) -> Bounds:
    """Bound what is monotone and rounded once, or not at all: chains of float16 may run in float32."""
    dtype, whole = operands[0].dtype, 2.0**53
    if dtype in (np.float32, np.float64):
        return corners(apply, *(one.ends for one in operands))
    wide = corners(apply, *(one.real.ends for one in operands))
    if operands[0].is_float:
        return enclose(wide, dtype)  # exact in float64
    limits = np.iinfo(dtype)  # beyond which integers wrap around
    require(wide.lower >= max(-whole, limits.min), wide.upper <= min(whole, limits.max))
    return wide.map(lambda end: np.trunc(end).astype(dtype))


def square(x: Bounds) -> Bounds:
    """Bound squares."""
    return round_once(np.square, Bounds(x.nearest.astype(x.dtype), x.size.astype(x.dtype)))


@rule("Add Sub Mul")
@affine
def _combine(node: NodeView, a: Bounds, b: Bounds) -> Bounds:
    require(a.dtype == b.dtype)
    if node.op == "Mul" and node.proto.input[0] == node.proto.input[1]:
        return square(a)
    return round_once({"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[node.op], a, b)


# a few roundings -----------------------------------------------------------------------------------------------------


def _divide(node: NodeView, a: Bounds, b: Bounds | None = None) -> Bounds:
    """Bound quotients; PyTorch multiplies by reciprocals of constants, which rounds twice."""
    a, b = (Bounds.of(np.ones_like(a.lower)), a) if b is None else (a, b)
    if not b.is_float:
        require(a.dtype == b.dtype, b.nearest >= 1)
        return round_once(np.divide, a, b)
    dtype, near = same_float(a, b), np.maximum(b.nearest, node.away)
    require(near >= least(dtype), 1 / near < np.finfo(dtype).max)
    low = np.where(b.real.lower > -near, np.maximum(b.real.lower, near), b.real.lower)
    high = np.where(b.real.upper < near, np.minimum(b.real.upper, -near), b.real.upper)
    around = (low < 0) & (high > 0)  # from both sides, quotients grow towards 0
    divisors = [low] if b.is_point else [low, high, np.where(around, -near, low), np.where(around, near, high)]
    quotient = corners(np.divide, a.real.ends, divisors)
    error = np.where(quotient.size > 1e-300, 4 * unit(dtype) * quotient.size + least(dtype), 1e-300)
    positive = a.lower.size and (a.lower >= 0).all() and (b.lower >= 0).all()
    return enclose(quotient, dtype, error).at_least(0.0 if positive else -np.inf)


rule("Div")(affine(_divide))
rule("Reciprocal")(lined(_divide))


@rule("Cast CastLike")
def _cast(node: NodeView, x: Bounds, like: Bounds | None = None) -> Bounds:
    """Bound conversions: to the nearest float, some of which ONNX Runtime leaves out, and towards 0."""
    number = node.attribute("to", 0)
    dtype = like.dtype if like is not None else onnx.helper.tensor_dtype_to_np_dtype(number)
    require(dtype.kind in "biuf", dtype.name != "bfloat16")
    if dtype == x.dtype:
        return x
    if dtype.kind == "b":
        return Bounds((x.lower > 0) | (x.upper < 0), (x.lower != 0) | (x.upper != 0))
    if dtype.kind == "f":
        found = enclose(x.real, dtype) if x.is_float and dtype == np.float16 else x.map(lambda end: end.astype(dtype))
        error = 2 * max(unit(dtype), unit(x.dtype)) * x.size + least(dtype) if x.is_float else 0.0
        return Bounds(found.lower, found.upper, x.form and Form(x.form.planes, x.form.rest.widen(error)))
    limits, whole = np.iinfo(dtype), x.map(np.trunc) if x.is_float else x
    require(whole.real.lower >= max(limits.min, -(2.0**62)), whole.real.upper <= min(limits.max, 2.0**62))
    return whole.map(lambda end: end.astype(dtype))


# functions that kernels approximate ----------------------------------------------------------------------------------

RELATIVE: Mapping[str, float] = {"float16": 4e-2, "float32": 4e-6, "float64": 3e-14}
"""Relative errors of kernels, by type; |result - f| <= relative |f| + absolute.

The errors are this checker's own: several times what sweeps of the kernels of ONNX Runtime 1.31 and PyTorch 2.13 over
float32 and float16 values showed on x86-64 processors with SSE, AVX, AVX2 and AVX-512, of which the prover has records
of its own.
"""

_MOST_EXP = {"float16": 11.0, "float64": 700.0}
"""Where exp(x) is finite."""


@dataclass(frozen=True)
class Function:
    """A function that only rises, or only falls, on either side of where it turns, and with each of its parameters.

    Attributes:
        values: The function itself, in float64.
        absolute: Absolute errors of its kernels of float16, float32 and float64.
        roundings: How often kernels round, where that is all.
        parameters: Attributes that follow its operands.
        start: What its operand must not lie below; None: it has to be positive, where denormal ones are taken for 0.
        by_exp: Whether ONNX Runtime computes exp(x) of large operands, except in float32, whose kernels do not.
        range: What no result lies outside of.
        turn: About where it turns, so that its value there is off by less than the absolute errors.
    """

    values: Callable[..., np.ndarray]
    absolute: tuple[float, float, float] = (0.0, 0.0, 0.0)
    roundings: int = 0
    parameters: tuple[tuple[str, float], ...] = ()
    start: float | None = -math.inf
    by_exp: bool = False
    range: tuple[float, float] = (-math.inf, math.inf)
    turn: float = math.inf


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=np.float64)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x))))


def _swish(x: np.ndarray, alpha: Any = 1.0) -> np.ndarray:
    return np.asarray(x * _sigmoid(alpha * x))


def _bend(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0) + np.minimum(x, 0) * slope)


def _ramp(x: np.ndarray, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(alpha * x + beta, 0, 1))


_ONE = 1 + 1e-6
_ABOUT = (2e-3, 1e-5, 1e-5)
FUNCTIONS: Mapping[str, Function] = {
    "Exp": Function(np.exp, range=(0, math.inf)),
    "Log": Function(np.log, start=None),
    "Sqrt": Function(np.sqrt, start=0, range=(0, math.inf)),
    "Sigmoid": Function(_sigmoid, (1e-4, 1e-6, 1e-14), range=(0, _ONE)),
    "Tanh": Function(np.tanh, (1e-7, 1e-35, 1e-300), range=(-_ONE, _ONE)),
    "Erf": Function(_erf, (1e-4, 1e-35, 1e-300), range=(-_ONE, _ONE)),
    "Softplus": Function(partial(np.logaddexp, 0.0), (1e-7, 1e-35, 1e-7), by_exp=True, range=(0, math.inf)),
    "Atan": Function(np.arctan, (1e-7, 1e-35, 1e-300), range=(-1.6, 1.6)),
    "Elu": Function(lambda x: np.maximum(x, 0) + np.expm1(np.minimum(x, 0)), _ABOUT, range=(-_ONE, math.inf)),
    "HardSwish": Function(lambda x: x * np.clip(x / 6 + 0.5, 0, 1), _ABOUT, turn=-1.5),
    "Mish": Function(lambda x: x * np.tanh(np.logaddexp(0.0, x)), _ABOUT, by_exp=True, turn=-1.19247),
    "Swish": Function(_swish, _ABOUT, turn=-1.27846),
    "Gelu": Function(lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2, (2.5e-3, 5e-4, 5e-4), turn=-0.75179),
    "com.microsoft.QuickGelu": Function(_swish, _ABOUT, 0, (("alpha", 1.702),), turn=-0.75115),
    "Softsign": Function(lambda x: x / (1 + np.abs(x)), range=(-_ONE, _ONE)),
    "LeakyRelu": Function(_bend, roundings=4, parameters=(("alpha", 0.01),), turn=0.0),
    "PRelu": Function(_bend, roundings=4, turn=0.0),
    "HardSigmoid": Function(_ramp, (6e-3, 1e-6, 1e-14), 0, (("alpha", 0.2), ("beta", 0.5)), range=(0, 1)),
}
"""The functions by operator; both forms of Gelu lie within 4.8e-4 of each other."""


def apply_function(function: Function, x: Bounds, *others: Bounds) -> Bounds:
    """Return bounds of what a function makes of a tensor."""
    name, real = same_float(x).name, x.real
    most = _MOST_EXP.get(name, math.inf) if function.by_exp else math.inf
    require(real.lower >= (least(x.dtype) if function.start is None else function.start), real.upper <= most)
    ends = [*real.ends, np.clip(function.turn, real.lower, real.upper)]
    if function.turn < 0:  # all that lies between its least value and 0 may come of negative operands
        ends += [np.where(real.lower < 0, end, real.lower) for end in (function.turn, 0.0)]
    found = corners(function.values, ends, *(one.real.ends for one in others))
    absolute = function.absolute[("float16", "float32", "float64").index(name)]
    relative = function.roundings * unit(x.dtype) if function.roundings else RELATIVE[name]
    low, high = (relative * np.abs(end) + absolute for end in (found.lower, found.upper))
    wide = Bounds(found.lower - low, found.upper + high).map(lambda end: np.clip(end, *function.range))
    return enclose(wide, x.dtype, 0.0).at_least(0.0 if function.range[0] == 0 else -np.inf)


@rule(" ".join(FUNCTIONS))
@rule("com.microsoft.Gelu")
@lined
def _function(node: NodeView, x: Bounds, *others: Bounds) -> Bounds:
    function = FUNCTIONS[node.op if node.op == "Gelu" else node.key]
    parameters = [Bounds.of(node.attribute(name, default)) for name, default in function.parameters]
    node.attribute("approximate", "none")
    require(node.op != "HardSigmoid" or abs(parameters[1].lower) <= 1)  # absolute errors are about that
    require(node.op != "QuickGelu" or abs(parameters[0].lower - 1.702) <= 1e-6)  # it turns elsewhere, otherwise
    return apply_function(function, x, *others, *parameters)


@rule("com.microsoft.BiasGelu com.microsoft.FastGelu")
@lined
def _biased(node: NodeView, x: Bounds, bias: Bounds | None = None) -> Bounds:
    return apply_function(FUNCTIONS["Gelu"], x if bias is None else enclose(x + bias, x.dtype))


@rule("Pow")
@lined
def _power(node: NodeView, x: Bounds, y: Bounds) -> Bounds:
    """Bound powers, of positive bases or with one whole exponent."""
    require(x.is_float, x.dtype == y.dtype or y.is_point)
    bases, number = x.real.ends, float(y.lower.flat[0]) if y.is_point and np.ptp(y.lower) == 0 else math.nan
    if number in range(1, 65):
        bases.append(np.clip(0.0, x.real.lower, x.real.upper))
    else:
        require((x.lower >= least(x.dtype)).all() or ((x.lower >= 0).all() and (y.lower > 0).all()))
    found = corners(np.power, bases, y.real.ends)
    error = RELATIVE[x.dtype.name] * found.size
    made = enclose(found, x.dtype, np.where(error > 0, error + least(x.dtype), 0))
    return made.at_least(0.0 if (found.lower >= 0).all() else -np.inf)
