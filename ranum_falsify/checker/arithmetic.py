"""Elementwise arithmetic and comparisons, of floating numbers and of integers."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import onnx

from ranum_falsify.checker.bounds import Bounds, Real, enclose, least, unit
from ranum_falsify.checker.node import NodeView, Operands, Results

_Ufunc = Callable[[np.ndarray, np.ndarray], np.ndarray]
_WHOLE = 2.0**53


def _alike(operands: Operands) -> list[Bounds] | None:
    """Return operands of one type, all given."""
    given = [one for one in operands if one is not None]
    return given if len(given) == len(operands) and len({one.dtype for one in given}) == 1 else None


def _corners(apply: _Ufunc, a: Bounds, b: Bounds) -> Bounds:
    """Combine all ends: correctly rounded results lie between those, in float32 and float64."""
    values = [apply(x, y) for x in (a.lower, a.upper) for y in (b.lower, b.upper)]
    return Bounds(np.minimum.reduce(values), np.maximum.reduce(values))


def _combined(apply: _Ufunc, a: Bounds, b: Bounds) -> Bounds | None:
    """Bound a result that is rounded once, or not at all: chains of float16 may run in float32."""
    if a.dtype in (np.float32, np.float64):
        return _corners(apply, a, b)
    wide = _corners(apply, Bounds(a.real.low, a.real.high), Bounds(b.real.low, b.real.high))
    if a.is_float:
        return enclose(Real(wide.lower, wide.upper), a.dtype)  # exact in float64, but for quotients, which are widened
    if a.dtype.kind not in "iu":
        return None
    limits = np.iinfo(a.dtype)
    least_whole, most_whole = max(-_WHOLE, limits.min), min(_WHOLE, limits.max)
    if wide.lower.size and not (least_whole <= wide.lower.min() and wide.upper.max() <= most_whole):
        return None  # integers wrap around
    return Bounds(np.trunc(wide.lower).astype(a.dtype), np.trunc(wide.upper).astype(a.dtype))


_UFUNCS: dict[str, _Ufunc] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}


def combine(node: NodeView, operands: Operands) -> Results:
    """Bound sums, differences and products of two operands."""
    given = _alike(operands)
    if given is None:
        return None
    a, b = given
    if node.proto.op_type == "Mul" and node.proto.input[0] == node.proto.input[1]:
        size = known_sign("Abs", a)
        found = None if size is None else _square(size)
        return None if found is None else [found]
    found = _combined(_UFUNCS[node.proto.op_type], a, b)
    return None if found is None else [found]


def _square(size: Bounds) -> Bounds | None:
    ends = [_combined(np.multiply, Bounds(end, end), Bounds(end, end)) for end in (size.lower, size.upper)]
    low, high = ends
    return None if low is None or high is None else Bounds(low.lower, high.upper)


def add_up(node: NodeView, operands: Operands) -> Results:
    """Bound sums and means of several operands, in their order."""
    given = _alike(operands)
    if given is None or not given[0].is_float:
        return None
    total = functools.reduce(Real.__add__, [one.real for one in given])
    magnitude = functools.reduce(np.add, [one.real.size for one in given])
    if not (magnitude * 1.01 < np.finfo(given[0].dtype).max).all():
        return None
    count = len(given) if node.proto.op_type == "Mean" else 1
    error = magnitude * (len(given) + 2) * 2 * unit(given[0].dtype) + least(given[0].dtype)
    share = Real(np.asarray(float(count)), np.asarray(float(count)))
    return [enclose(total / share, given[0].dtype, error)]


def divide(node: NodeView, operands: Operands) -> Results:
    """Bound quotients; PyTorch multiplies by reciprocals of constants, which rounds twice."""
    one = node.proto.op_type == "Reciprocal"
    given = _alike(operands)
    if given is None or given[0].dtype.kind not in "fiu":
        return None
    a, b = (Bounds(np.ones_like(given[0].lower), np.ones_like(given[0].upper)), given[0]) if one else given
    if not b.is_float:
        found = _combined(np.divide, a, b) if ((b.real.low >= 1) | (b.real.high <= -1)).all() else None
        return None if found is None else [found]
    smallest = np.where((b.lower <= 0) & (b.upper >= 0), 0.0, np.minimum(np.abs(b.real.low), np.abs(b.real.high)))
    smallest = np.maximum(smallest, 0.0 if one else node.away)
    if not (smallest >= least(b.dtype)).all() or not (1 / smallest < np.finfo(b.dtype).max).all():
        return None
    around, size = (b.lower < 0) & (b.upper > 0), a.real.size / smallest
    nearest = np.where(around | (b.lower >= 0), np.maximum(np.where(around, 0, b.real.low), smallest), b.real.low)
    quotient = a.real / Real(nearest, np.where(around, smallest, np.where(b.upper <= 0, -smallest, b.real.high)))
    quotient = Real(np.where(around, -size, quotient.low), np.where(around, size, quotient.high))
    error = np.where(quotient.size > 1e-300, 4 * unit(b.dtype) * quotient.size + least(b.dtype), 1e-300)
    signed = [one.real.low.size and (one.real.low >= 0).all() for one in (a, b)]
    return [enclose(quotient, b.dtype, error, at_least=0.0 if all(signed) else -np.inf)]


def negate(node: NodeView, operands: Operands) -> Results:
    """Change signs."""
    (x,) = operands
    return None if x is None or x.dtype.kind != "f" else [Bounds(-x.upper, -x.lower)]


def known_sign(name: str, x: Bounds) -> Bounds | None:
    """Bound magnitudes."""
    if x.dtype.kind == "i" and x.lower.size and x.lower.min() == np.iinfo(x.dtype).min:
        return None  # its magnitude is itself
    low, high = np.abs(x.lower), np.abs(x.upper)
    around = (x.lower <= 0) & (x.upper >= 0)
    return Bounds(np.where(around, x.dtype.type(0), np.minimum(low, high)), np.maximum(low, high))


_RISING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Sign": np.sign,
}


def piecewise(node: NodeView, operands: Operands) -> Results:
    """Bound functions that are exact, and those of a few straight lines."""
    x, *rest = operands
    name = node.proto.op_type
    if x is None or (name != "PRelu" and rest):
        return None
    if name == "Abs":
        size = known_sign(name, x)
        return None if size is None else [size]
    if name in _RISING:
        return [Bounds(_RISING[name](x.lower), _RISING[name](x.upper))]
    if not x.is_float:
        return None
    error = 4 * unit(x.dtype)
    if name in ("LeakyRelu", "PRelu"):
        slope = rest[0].real if rest and rest[0] is not None else _point(node.attribute("alpha", 0.01))
        ends = [x.real.apply(lambda end: np.maximum(end, 0)), x.real.apply(lambda end: np.minimum(end, 0))]
        found = ends[0] + ends[1] * slope
        return [enclose(found, x.dtype, error * found.size + least(x.dtype))]
    alpha, beta = node.attribute("alpha", 0.2), node.attribute("beta", 0.5)
    line = _point(alpha) * x.real + _point(beta)
    margin = error * (np.abs(alpha) * x.real.size + np.abs(beta)) + least(x.dtype)
    return [enclose(line.widen(margin).apply(lambda end: np.clip(end, 0, 1)), x.dtype)]


def _point(value: float) -> Real:
    return Real(np.asarray(float(value)), np.asarray(float(value)))


_COMPARISONS = {"Greater": np.greater, "GreaterOrEqual": np.greater_equal}
_MIRRORED = {"Less": "Greater", "LessOrEqual": "GreaterOrEqual"}


def compare(node: NodeView, operands: Operands) -> Results:
    """Tell whether a comparison is surely true, and whether it may be."""
    given = _alike(operands)
    if given is None:
        return None
    a, b = given
    name = node.proto.op_type
    if name == "Equal":
        apart = (a.upper < b.lower) | (b.upper < a.lower)
        return [Bounds((a.lower == a.upper) & (b.lower == b.upper) & (a.lower == b.lower), ~apart)]
    if name in _MIRRORED:
        a, b, name = b, a, _MIRRORED[name]
    return [Bounds(_COMPARISONS[name](a.lower, b.upper), _COMPARISONS[name](a.upper, b.lower))]


def decide(node: NodeView, operands: Operands) -> Results:
    """Bound logic, in which false comes before true, and questions about NaN and infinity, of which there is none."""
    given = [one for one in operands if one is not None]
    name = node.proto.op_type
    if name in ("IsNaN", "IsInf"):
        false = np.zeros(given[0].lower.shape, dtype=bool)
        return [Bounds(false, false)]
    if any(one.dtype != bool for one in given) or len(given) != len(operands):
        return None
    if name == "Not":
        return [Bounds(~given[0].upper, ~given[0].lower)]
    a, b = given
    if name == "Xor":
        known = (a.lower == a.upper) & (b.lower == b.upper)
        value = a.lower ^ b.lower
        return [Bounds(known & value, ~known | value)]
    apply = np.logical_and if name == "And" else np.logical_or
    return [Bounds(apply(a.lower, b.lower), apply(a.upper, b.upper))]


def choose(node: NodeView, operands: Operands) -> Results:
    """Bound Where."""
    condition, a, b = operands
    if condition is None or a is None or b is None or a.dtype != b.dtype:
        return None
    first, second = condition.upper, ~condition.lower  # whether it may be chosen
    low = np.where(first & second, np.minimum(a.lower, b.lower), np.where(first, a.lower, b.lower))
    high = np.where(first & second, np.maximum(a.upper, b.upper), np.where(first, a.upper, b.upper))
    return [Bounds(low, high)]


def cast(node: NodeView, operands: Operands) -> Results:
    """Bound conversions: to the nearest float, some of which ONNX Runtime leaves out, and towards 0."""
    x = operands[0]
    if x is None:
        return None
    like = operands[1] if node.proto.op_type == "CastLike" else None
    number = node.attribute("to", 0)
    node.attribute("saturate", 1)
    dtype = like.dtype if like is not None else onnx.helper.tensor_dtype_to_np_dtype(number) if number else None
    if dtype is None or dtype.kind not in "biuf" or dtype.name == "bfloat16":
        return None
    if dtype == x.dtype:
        return [x]
    if dtype.kind == "b":
        return [Bounds((x.lower > 0) | (x.upper < 0), (x.lower != 0) | (x.upper != 0))]
    if dtype.kind == "f":
        if x.dtype.kind == "f" and dtype == np.float16:
            return [enclose(x.real, dtype)]
        return [Bounds(x.lower.astype(dtype), x.upper.astype(dtype))]
    limits = np.iinfo(dtype)
    ends = [np.trunc(end) if x.is_float else end for end in (x.lower, x.upper)]
    low, high = x.real.apply(np.trunc).low, x.real.apply(np.trunc).high
    inside = not low.size or (
        limits.min <= low.min() and high.max() <= min(limits.max, 2.0**62) and low.min() >= -(2.0**62)
    )
    return [Bounds(ends[0].astype(dtype), ends[1].astype(dtype))] if inside else None
