"""The meaning of a model: its formula in real numbers, from ONNX's reference evaluator on numbers of many digits.

Doubles are not enough: the logarithm of a probability of 1e-400 is -921, and 1 - p is 0 for a p that is not 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import mpmath
import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from ranum_falsify.network.nesting import attribute_graphs
from ranum_falsify.rewrite.checks.runs import WideModel
from ranum_falsify.rewrite.model import to_proto

_DIGITS = 120
_HUGE = 1e40
"""Functions of larger numbers would need more digits than there is memory for."""
_PATIENCE = 8
"""After so many failures real numbers are no longer tried."""
_UFUNCS = {
    name: name
    for name in ("exp", "expm1", "log", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor")
} | {
    "ceil": "ceil",
    "rint": "nint",
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
}
"""The methods that NumPy calls on the elements of an array of objects, and what mpmath calls them."""

_EASY = ("log", "log10", "log1p", "sqrt", "floor", "ceil", "nint")

_REALS = mpmath.MPContext()
_REALS.dps = _DIGITS
_Real: Any = _REALS.mpf


def _defined(function: Callable[..., Any], *, grows: bool) -> Callable[..., Any]:
    """Return a function of real numbers that is NaN where it has no real value."""

    def call(*numbers: Any) -> Any:
        if grows and any(_HUGE < abs(number) < math.inf for number in numbers):
            return _REALS.nan
        try:
            found = function(*numbers)
        except (ValueError, ZeroDivisionError):
            return _REALS.nan
        is_real = isinstance(found, _Real) and (_REALS.isfinite(found) or not all(map(_REALS.isfinite, numbers)))
        return found if is_real else _REALS.nan

    return call


for _method, _name in _UFUNCS.items():
    setattr(_Real, _method, _defined(getattr(_REALS, _name), grows=_name not in _EASY))


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an operation of two numbers that is NaN where it has no real value, or one that is too large."""

    def call(x: Any, y: Any) -> Any:
        try:
            if function is _POWER and x and abs(y * _REALS.mag(x)) > _HUGE:
                return _REALS.nan
            found = function(x, y)
        except (ValueError, ZeroDivisionError, OverflowError):
            return _REALS.nan
        return found if found is NotImplemented or isinstance(found, _Real) else _REALS.nan

    return call


_POWER = _Real.__pow__
for _operation in ("__pow__", "__truediv__", "__rtruediv__"):
    setattr(_Real, _operation, _arithmetic(getattr(_Real, _operation)))

_lifted = np.vectorize(lambda number: _Real(float(number)), otypes=[object])
_erf = np.vectorize(_defined(_REALS.erf, grows=True), otypes=[object])


class _RealErf(OpRun):
    """ONNX's own takes floats only."""

    def _run(self, x: Any) -> tuple[Any]:
        return (_erf(x),)


class _RealCast(OpRun):
    """A cast between floating types changes no real number."""

    def _run(self, x: Any, to: int = 0, saturate: int = 1, **_: Any) -> tuple[Any]:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(to))
        if dtype.kind == "f":
            return (_real(np.asarray(x)),)
        return (np.asarray(x).astype(dtype),)


# The evaluator finds operators by the names of their classes.
_RealErf.__name__, _RealCast.__name__ = "Erf", "Cast"


def _real(array: np.ndarray) -> np.ndarray:
    """Return an array of floats, or of whole numbers, as real numbers."""
    made: np.ndarray = array if array.dtype == object else _lifted(array) if array.size else array.astype(object)
    return made


class Meaning:
    """The real function that a model computes approximately.

    Args:
        model: The model.
        is_small: Whether it is small enough for real numbers; of others, double precision has to do.
    """

    def __init__(self, model: onnx.ModelProto, *, is_small: bool) -> None:
        self._wide = WideModel(ir.from_proto(model))
        self._names = [value.name for value in model.graph.output]
        self._evaluator = _evaluator(model) if is_small else None
        self._patience = _PATIENCE

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the outputs, rounded to double precision; NaN where they have no value, or it is not known.

        Those that nothing can be said of are missing.
        """
        if self._evaluator is not None:
            try:
                found = self._evaluator.run(None, {name: _given(array) for name, array in inputs.items()})
                return {name: _rounded(array) for name, array in zip(self._names, found, strict=True)}
            except Exception:
                # An operator whose reference takes arrays of floats only, on all inputs or on some.
                self._patience -= 1
                if not self._patience:
                    self._evaluator = None
        return self._wide.run(inputs)


def _evaluator(model: onnx.ModelProto) -> ReferenceEvaluator | None:
    """Return an evaluator in real numbers, None of models with subgraphs or operators that it does not know."""
    if any(True for node in model.graph.node for _ in attribute_graphs(node)):
        return None
    lifted = ir.from_proto(model)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(lifted)
    try:
        made = ReferenceEvaluator(to_proto(lifted), new_ops=[_RealErf, _RealCast])
    except Exception:
        return None
    for name, array in made.rt_inits_.items():
        made.rt_inits_[name] = _given(array)
    return made


def _given(array: np.ndarray) -> np.ndarray:
    return _real(array) if array.dtype.kind == "f" else array


def _rounded(array: np.ndarray) -> np.ndarray:
    found = np.asarray(array)
    return found.astype(np.float64) if found.dtype == object else found
