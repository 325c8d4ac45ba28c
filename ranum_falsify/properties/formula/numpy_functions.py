"""NumPy's and Python's functions on symbolic terms: what DNNP allows beyond arithmetic."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.formula.formula import Comparison, Formula, Junction, conjunction, disjunction, negate
from ranum_falsify.properties.formula.terms import Arg, Const, Elementwise, Reduce, Term, rearrange

_Handler = Callable[..., Any]


def _sign(x: Tensor) -> Tensor:
    # To torch, the sign of NaN is 0.
    return torch.where(x.isnan(), x, x.sign())


_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    name: getattr(torch, name)
    for name in (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "square", "reciprocal"),
        *("sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc", "absolute", "negative"),
    )
} | {"arcsin": torch.asin, "arccos": torch.acos, "arctan": torch.atan, "sign": _sign, "positive": lambda x: x}

_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "power": torch.pow,
}

_OPERATORS: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "add": ("+", torch.add),
    "subtract": ("-", torch.sub),
    "multiply": ("*", torch.mul),
    "divide": ("/", torch.div),
}


def as_term(value: Any) -> Term:
    """Return a term as it is, and a number or array as a constant.

    Raises:
        PropertyError: It is neither.
    """
    if isinstance(value, Term):
        return value
    if isinstance(value, Comparison | Junction):
        raise PropertyError("property: a formula is given where a number is needed")
    if isinstance(value, tuple) and any(isinstance(part, Term) for part in value):
        raise PropertyError(
            f"property: {len(value)} inputs or outputs are given where one is needed; select one, as in x[0]"
        )
    return Const(value)


def _elementwise(name: str, function: Callable[..., Tensor], arity: int) -> _Handler:
    def handler(*args: Any) -> Term:
        if len(args) != arity:
            raise PropertyError(f"property: {name} takes {arity} arguments, got {len(args)}")
        return Elementwise(name, function, *map(as_term, args))

    return handler


def _reduction(kind: str) -> _Handler:
    def handler(*args: Any, axis: Any = None, keepdims: bool = False) -> Term:
        if kind in ("max", "min") and len(args) > 1 and isinstance(args[1], Term):
            name = f"{kind}imum"
            return reduce(lambda a, b: Elementwise(name, _BINARY[name], a, b), map(as_term, args))
        axis = args[1] if len(args) > 1 else axis
        return Reduce(kind, as_term(args[0]), axis, bool(keepdims))

    return handler


def _builtin_extremum(kind: str) -> _Handler:
    def handler(*args: Any) -> Term:
        if len(args) == 1:
            return Reduce(kind, as_term(args[0]))
        name = f"{kind}imum"
        return reduce(lambda a, b: Elementwise(name, _BINARY[name], a, b), map(as_term, args))

    return handler


def _arg(kind: str) -> _Handler:
    return lambda value, axis=None: Arg(kind, as_term(value), axis)


def _rearranging(function: Callable[..., Any]) -> _Handler:
    return lambda value, *args, **kwargs: rearrange(as_term(value), lambda a: function(a, *args, **kwargs))


def _clip(value: Any, low: Any = None, high: Any = None) -> Term:
    term = as_term(value)
    term = term if low is None else Elementwise("maximum", torch.maximum, term, as_term(low))
    return term if high is None else Elementwise("minimum", torch.minimum, term, as_term(high))


def _norm(value: Any, ord: Any = None, axis: Any = None) -> Term:
    term = as_term(value)
    if axis is None and ord is not None and len(term.shape) > 1:
        raise PropertyError("property: np.linalg.norm with ord needs a vector or an axis; flatten with np.ravel first")
    absolute = Elementwise("absolute", torch.abs, term)
    if ord == np.inf:
        return Reduce("max", absolute, axis)
    if ord == 1:
        return Reduce("sum", absolute, axis)
    if ord in (None, 2):
        return Elementwise("sqrt", torch.sqrt, Reduce("sum", Elementwise("square", torch.square, term), axis))
    raise PropertyError(f"property: np.linalg.norm with ord={ord!r} is not supported; 1, 2 and np.inf are")


def _comparison(kind: Any, swapped: bool = False, negated: bool = False) -> _Handler:
    def handler(left: Any, right: Any) -> Formula:
        first, second = (right, left) if swapped else (left, right)
        # As NumPy's array and as DNNV's `!=`: an array differs if any element does.
        return Comparison(kind, as_term(first), as_term(second), negated=negated, any=negated)

    return handler


def _isfinite(value: Any) -> Formula:
    largest = Const(np.finfo(np.float64).max)
    return Comparison("<=", Elementwise("absolute", torch.abs, as_term(value)), largest)


def _isnan(value: Any) -> Formula:
    term = as_term(value)
    return Comparison("==", term, term, negated=True)


def _isinf(value: Any) -> Formula:
    absolute = Elementwise("absolute", torch.abs, as_term(value))
    return Comparison("<", Const(np.finfo(np.float64).max), absolute)


def _all(formula: Any) -> Any:
    if isinstance(formula, Term):
        raise PropertyError(
            "property: np.all needs comparisons, not numbers; compare them first, such as np.all(N(x) <= 1)"
        )
    return formula


def _any(formula: Any) -> Any:
    if isinstance(formula, Comparison):
        return replace(formula, any=True)
    raise PropertyError("property: np.any takes one comparison, such as np.any(N(x) > 1)")


def _table() -> dict[Any, _Handler]:
    table: dict[Any, _Handler] = {}
    for name, function in _UNARY.items():
        table[getattr(np, name)] = _elementwise("negate" if name == "negative" else name, function, 1)
    for name, binary in _BINARY.items():
        table[getattr(np, name)] = _elementwise(name, binary, 2)
    for name, (symbol, operator) in _OPERATORS.items():
        table[getattr(np, name)] = _elementwise(symbol, operator, 2)
    for kind in ("max", "min", "sum", "mean"):
        table[getattr(np, kind)] = _reduction(kind)
    table |= {np.amax: _reduction("max"), np.amin: _reduction("min"), builtins.sum: _reduction("sum")}
    table |= {builtins.max: _builtin_extremum("max"), builtins.min: _builtin_extremum("min")}
    table |= {np.argmax: _arg("argmax"), np.argmin: _arg("argmin")}
    table[builtins.abs] = _elementwise("absolute", torch.abs, 1)
    for name in ("reshape", "ravel", "squeeze", "transpose", "expand_dims", "flip", "roll", "moveaxis", "swapaxes"):
        table[getattr(np, name)] = _rearranging(getattr(np, name))
    table |= {np.take: _rearranging(np.take), np.broadcast_to: _rearranging(np.broadcast_to), np.clip: _clip}
    table |= {np.linalg.norm: _norm, np.isfinite: _isfinite, np.isnan: _isnan, np.isinf: _isinf}
    table |= {np.all: _all, np.any: _any, builtins.all: _all, builtins.any: _any}
    table |= {np.less_equal: _comparison("<="), np.less: _comparison("<"), np.equal: _comparison("==")}
    table |= {np.greater_equal: _comparison("<=", swapped=True), np.greater: _comparison("<", swapped=True)}
    table |= {np.not_equal: _comparison("==", negated=True), np.logical_not: negate}
    table[np.logical_and] = lambda *parts: conjunction(parts)
    table[np.logical_or] = lambda *parts: disjunction(parts)
    return table


_TABLE = _table()

METHODS: dict[str, _Handler] = {
    name: _TABLE[getattr(np, name)]
    for name in ("max", "min", "sum", "mean", "argmax", "argmin", "clip", "ravel", "squeeze", "swapaxes", "take")
} | {
    "flatten": _TABLE[np.ravel],
    "reshape": lambda value, *shape: rearrange(as_term(value), lambda a: a.reshape(*shape)),
    "transpose": lambda value, *axes: rearrange(as_term(value), lambda a: a.transpose(*axes)),
}


def find(function: Any) -> _Handler | None:
    """Return how to apply a function to terms, None if it is not supported."""
    try:
        return _TABLE.get(function)
    except TypeError:  # not hashable, so none of ours
        return None


def list_supported() -> list[str]:
    """Return the names of the supported functions, for messages."""
    return sorted({getattr(function, "__name__", str(function)) for function in _TABLE})
