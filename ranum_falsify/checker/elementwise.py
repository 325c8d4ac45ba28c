"""Arithmetic and functions, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import onnx

from ranum_falsify.checker.bounds import Bounds, corners, enclose, least, require, unit
from ranum_falsify.checker.node import NodeView, by_lines, by_planes, rule


def same_float(*operands: Bounds | None) -> np.dtype[Any]:
    """Return the floating type of all operands that are given."""
    dtypes = {one.dtype for one in operands if one is not None}
    require(len(dtypes) == 1, all(one is None or one.is_float for one in operands))
    return dtypes.pop()


@rule("Clip Max Min Relu", by_lines)
@rule("And Ceil Floor IsInf IsNaN Or ReduceMax ReduceMin Round Sign")
def rise(node: NodeView, *operands: Bounds | None) -> list[Bounds]:
    """Evaluate operators that rise with each operand at both ends."""
    if node.op.startswith("Reduce"):
        require(*(one.lower.size and (place == 0 or one.is_point) for place, one in enumerate(operands) if one))
    ends = [node.run(*(one and getattr(one, end) for one in operands)) for end in ("lower", "upper")]
    return [Bounds(*one) for one in zip(*ends, strict=True)]


@rule("Abs", by_lines)
@rule("Greater GreaterOrEqual Less LessOrEqual Neg Not Xor")
def choose(node: NodeView, x: Bounds, *others: Bounds) -> Bounds:
    """Evaluate operators that choose or compare at all ends, and at 0."""
    choices = [one.ends for one in (x, *others)]
    require(x.dtype.kind != "i" or node.op not in ("Abs", "Neg") or x.lower > np.iinfo(x.dtype).min)
    if node.op == "Abs":
        choices[0].append(np.clip(x.dtype.type(0), x.lower, x.upper))
    return corners(lambda *ends: node.run(*ends)[0], *choices)


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


@rule("Add Sub Mul", by_planes)
def _combine(node: NodeView, a: Bounds, b: Bounds) -> Bounds:
    require(a.dtype == b.dtype)
    if node.op == "Mul" and a is b:
        return round_once(np.square, Bounds(a.nearest.astype(a.dtype), a.size.astype(a.dtype)))
    return round_once({"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[node.op], a, b)


@rule("Div", by_planes)
def _divide(node: NodeView, a: Bounds, b: Bounds) -> Bounds:
    """Bound quotients; PyTorch multiplies by reciprocals of constants, which rounds twice."""
    if not b.is_float:
        require(a.dtype == b.dtype, b.nearest >= 1)
        return round_once(np.divide, a, b)
    dtype, near = same_float(a, b), b.nearest
    require(near >= least(dtype), 1 / near < np.finfo(dtype).max)
    low = np.where(b.real.lower > -near, np.maximum(b.real.lower, near), b.real.lower)
    high = np.where(b.real.upper < near, np.minimum(b.real.upper, -near), b.real.upper)
    inner = np.where(low < 0, np.minimum(high, -near), low), np.where(high > 0, np.maximum(low, near), high)
    divisors = [low] if b.is_point else [low, high, *inner]  # from both sides, quotients grow towards 0
    quotient = corners(np.divide, a.real.ends, divisors)
    error = np.where(quotient.size > 1e-300, 4 * unit(dtype) * quotient.size + least(dtype), 1e-300)
    positive = a.lower.size and (a.lower >= 0).all() and (b.lower >= 0).all()
    return enclose(quotient, dtype, error).clip(0.0 if positive else -np.inf)


rule("Reciprocal")(lambda node, x: node.call("Div", Bounds.of(np.ones_like(x.lower)), x))
rule("Equal")(lambda node, a, b: node.call("Not", node.call("Or", node.call("Less", a, b), node.call("Less", b, a))))


@rule("Cast CastLike")
def _cast(node: NodeView, x: Bounds, like: Bounds | None = None) -> Bounds:
    """Bound conversions: to the nearest float, some of which ONNX Runtime leaves out, and towards 0."""
    dtype = like.dtype if like else onnx.helper.tensor_dtype_to_np_dtype(node.attribute("to", 0))
    require(dtype.kind in "biuf", dtype.name != "bfloat16")
    if dtype == x.dtype:
        return x
    if dtype.kind == "b":
        return Bounds((x.lower > 0) | (x.upper < 0), (x.lower != 0) | (x.upper != 0))
    if dtype.kind == "f":
        found = enclose(x.real, dtype) if x.is_float and dtype == np.float16 else x.map(lambda end: end.astype(dtype))
        error = 2 * max(unit(dtype), unit(x.dtype)) * x.size + least(dtype) if x.is_float else 0.0
        return replace(found, planes=x.planes, rest=x.rest and x.rest.widen(error))
    limits, whole = np.iinfo(dtype), x.map(np.trunc) if x.is_float else x
    require(whole.real.lower >= max(limits.min, -(2.0**62)), whole.real.upper <= min(limits.max, 2.0**62))
    return whole.map(lambda end: end.astype(dtype))


RELATIVE: Mapping[str, float] = {"float16": 4e-2, "float32": 4e-6, "float64": 3e-14}
"""Relative errors of kernels, by type; |result - f| <= relative |f| + absolute.

The errors are this checker's own: several times what sweeps of the kernels of ONNX Runtime 1.31 and PyTorch 2.13 over
float32 and float16 values showed on x86-64 processors with SSE, AVX, AVX2 and AVX-512, of which the prover has records
of its own.
"""


class Function(NamedTuple):
    """A function that only rises, or only falls, on either side of where it turns, and with each of its parameters."""

    values: Callable[..., Any]  # in float64; NaN or infinity outside of its domain
    absolute: tuple[float, float, float] = (0.0, 0.0, 0.0)  # errors of kernels of float16, float32 and float64
    range: tuple[float, float] = (-math.inf, math.inf)  # no result lies outside
    turn: float = math.inf  # about where, so that its value there is off by less than the absolute errors
    parameters: tuple[tuple[str, float], ...] = ()  # attributes that follow its operands
    roundings: int = 0  # of kernels, where that is all


def _swish(x: np.ndarray, alpha: Any = 1.0) -> Any:
    return x * np.exp(-np.logaddexp(0.0, -alpha * x))


def _bend(x: np.ndarray, slope: np.ndarray) -> Any:
    return np.where(x < 0, x * slope, x)


def _ramp(x: np.ndarray, alpha: np.ndarray, beta: np.ndarray) -> Any:
    return np.clip(alpha * x + beta, 0, 1)


_erf = np.vectorize(math.erf, otypes=[np.float64])
_ONE = 1 + 1e-6
_ABOUT = (2e-3, 1e-5, 1e-5)
FUNCTIONS: Mapping[str, Function] = {
    "Exp": Function(np.exp, range=(0, math.inf)),
    "Log": Function(np.log),
    "Sqrt": Function(np.sqrt, range=(0, math.inf)),
    "Sigmoid": Function(lambda x: np.exp(-np.logaddexp(0.0, -x)), (1e-4, 1e-6, 1e-14), range=(0, _ONE)),
    "Tanh": Function(np.tanh, (1e-7, 1e-35, 1e-300), range=(-_ONE, _ONE)),
    "Erf": Function(_erf, (1e-4, 1e-35, 1e-300), range=(-_ONE, _ONE)),
    "Softplus": Function(lambda x: np.logaddexp(0.0, x), (1e-7, 1e-35, 1e-7), range=(0, math.inf)),
    "Atan": Function(np.arctan, (1e-7, 1e-35, 1e-300), range=(-1.6, 1.6)),
    "Elu": Function(lambda x: np.maximum(x, 0) + np.expm1(np.minimum(x, 0)), _ABOUT, range=(-_ONE, math.inf)),
    "HardSwish": Function(lambda x: x * np.clip(x / 6 + 0.5, 0, 1), _ABOUT, turn=-1.5),
    "Mish": Function(lambda x: x * np.tanh(np.logaddexp(0.0, x)), _ABOUT, turn=-1.19247),
    "Swish": Function(_swish, _ABOUT, turn=-1.27846),
    "Gelu": Function(lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2, (2.5e-3, 5e-4, 5e-4), turn=-0.75179),
    "com.microsoft.QuickGelu": Function(_swish, _ABOUT, turn=-0.75115, parameters=(("alpha", 1.702),)),
    "Softsign": Function(lambda x: x / (1 + np.abs(x)), range=(-_ONE, _ONE)),
    "LeakyRelu": Function(_bend, turn=0.0, parameters=(("alpha", 0.01),), roundings=4),
    "PRelu": Function(_bend, turn=0.0, roundings=4),
    "HardSigmoid": Function(_ramp, (6e-3, 1e-6, 1e-14), (0, 1), parameters=(("alpha", 0.2), ("beta", 0.5))),
}
"""The functions by operator; both forms of Gelu lie within 4.8e-4 of each other."""


@rule(" ".join(FUNCTIONS) + " com.microsoft.Gelu com.microsoft.BiasGelu com.microsoft.FastGelu", by_lines)
def _function(node: NodeView, x: Bounds, *others: Bounds) -> Bounds:
    function = FUNCTIONS["Gelu" if node.op in ("Gelu", "BiasGelu", "FastGelu") else node.key]
    parameters = [Bounds.of(node.attribute(name, default)) for name, default in function.parameters]
    node.attribute("approximate", "none")
    require(node.op != "HardSigmoid" or abs(parameters[1].lower) <= 1)  # absolute errors are about that
    require(node.op != "QuickGelu" or abs(parameters[0].lower - 1.702) <= 1e-6)  # it turns elsewhere, otherwise
    if node.op in ("BiasGelu", "FastGelu") and others:
        x, others = enclose(x + others[0], x.dtype), ()
    name, real = same_float(x).name, x.real
    require(node.op != "Log" or real.lower >= least(x.dtype))
    if node.op in ("Softplus", "Mish"):  # but for float32, kernels compute exp(x)
        require(real.upper <= {"float16": 11.0, "float32": np.inf, "float64": 700.0}[name])
    ends = [*real.ends, np.clip(function.turn, real.lower, real.upper)]
    if function.turn < 0:  # all that lies between its least value and 0 may come of negative operands
        ends += [np.where(real.lower < 0, end, real.lower) for end in (function.turn, 0.0)]
    found = corners(function.values, ends, *(one.real.ends for one in (*others, *parameters)))
    absolute = function.absolute[("float16", "float32", "float64").index(name)]
    relative = function.roundings * unit(x.dtype) if function.roundings else RELATIVE[name]
    low, high = (relative * np.abs(end) + absolute for end in (found.lower, found.upper))
    wide = Bounds(found.lower - low, found.upper + high).clip(*function.range)
    return enclose(wide, x.dtype, 0.0).clip(0.0 if function.range[0] == 0 else -np.inf)


@rule("Pow", by_lines)
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
    return made.clip(0.0 if (found.lower >= 0).all() else -np.inf)
