"""The box that a property's input constraints describe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ranum_falsify.errors import PropertyError
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.properties.formula.formula import Comparison, Formula, Junction, describe
from ranum_falsify.properties.formula.terms import AffineForm, Const, Frame, Gather, Term, Variable
from ranum_falsify.properties.problem.problem import InputVariable

_TOGETHER = 1 << 20
"""Elements of the boxes that are rounded in one step."""


def conjuncts(formula: Formula) -> tuple[Formula, ...]:
    """Return the parts of a conjunction, or the formula itself."""
    return formula.parts if isinstance(formula, Junction) and not formula.any else (formula,)


class BoxBuilder:
    """Bounds of variables, collected from comparisons, in float64 until `finish` rounds them inward.

    A single number that bounds all elements of a variable, say millions of weights, stays a single number: in arrays of
    stride 0, which are never written to.
    """

    def __init__(self, variables: Mapping[str, Variable]) -> None:
        self._variables = variables
        self._lower: dict[str, np.ndarray] = {}
        self._upper: dict[str, np.ndarray] = {}
        for name, variable in variables.items():
            is_bool = variable.dtype == np.bool_
            self._lower[name] = np.broadcast_to(0.0 if is_bool else -np.inf, variable.size)
            self._upper[name] = np.broadcast_to(1.0 if is_bool else np.inf, variable.size)

    def copy(self) -> BoxBuilder:
        """Return a box that can be narrowed on its own."""
        twin = BoxBuilder({})
        twin._variables = self._variables
        twin._lower, twin._upper = (
            {name: bound.copy() if bound.flags.writeable else bound for name, bound in bounds.items()}
            for bounds in (self._lower, self._upper)
        )
        return twin

    def absorb(self, formula: Formula) -> bool:
        """Narrow the box by a formula.

        Returns:
            Whether every point of the box now satisfies the formula; if not, it must be kept.

        Raises:
            PropertyError: A bound is NaN.
        """
        if not isinstance(formula, Comparison) or not self._is_elementwise(formula):
            return False
        if formula.kind == "==":
            if formula.negated:
                return False
            below = self._narrow(formula, formula.left, formula.right, strict=False)
            return self._narrow(formula, formula.right, formula.left, strict=False) and below
        # A box holds no NaN, so that the negation of a <= b is b < a.
        strict = (formula.kind == "<") != formula.negated
        small, large = (formula.right, formula.left) if formula.negated else (formula.left, formula.right)
        return self._narrow(formula, small, large, strict)

    @classmethod
    def can_narrow(cls, formula: Comparison) -> bool:
        """Tell whether `absorb` may narrow a box by a comparison: one side constant, the other affine in a variable."""
        if not cls._is_elementwise(formula):
            return False
        sides = (formula.left, formula.right)
        return any(isinstance(a, Const) and b.affine is not None for a, b in (sides, sides[::-1]))

    @staticmethod
    def _is_elementwise(formula: Comparison) -> bool:
        return not formula.any or (formula.left.size <= 1 and formula.right.size <= 1)

    def _narrow(self, formula: Comparison, small: Term, large: Term, strict: bool) -> bool:
        """Narrow by `small <= large`, one side constant and the other affine in a variable."""
        if isinstance(large, Const):
            term, constant, from_above = small, large.array, True
        elif isinstance(small, Const):
            term, constant, from_above = large, small.array, False
        else:
            return False
        shape = term.shape if term.shape == constant.shape else np.broadcast_shapes(term.shape, constant.shape)
        if isinstance(term, Variable) and shape == term.shape and not strict:
            _check_numbers(constant, term, formula)
            self._tighten_whole(term, constant, from_above)
            return True
        if isinstance(term, Gather) and isinstance(term.base, Variable) and shape == term.shape and not strict:
            _check_numbers(constant, term.base, formula)
            self._tighten_some(term.base, term.index.reshape(-1), _spread(constant, shape), from_above)
            return True
        if term.affine is None:
            return False
        _check_numbers(constant, term.affine.variable, formula)
        affine = term.affine.map(lambda array: _spread(array, shape))
        constant = _spread(constant, shape)
        usable = np.isfinite(affine.scale) & (affine.scale != 0) & np.isfinite(affine.offset)
        if not usable.all():
            return False
        upper = from_above ^ (affine.scale < 0)
        if not strict and (affine.scale == 1).all() and (affine.offset == 0).all():
            self._tighten(affine, constant, upper)
            return True
        return self._narrow_inexactly(affine, term, constant, upper, from_above, strict)

    def _narrow_inexactly(
        self, affine: AffineForm, term: Term, constant: np.ndarray, upper: np.ndarray, from_above: bool, strict: bool
    ) -> bool:
        """Narrow to the outermost values of the variable's dtype at which the comparison, as written, is true."""
        dtype = affine.variable.dtype
        with np.errstate(all="ignore"):
            bound = (constant - affine.offset) / affine.scale
        if len(np.unique(affine.index)) != affine.index.size or np.isnan(bound).any() or term.size != bound.size:
            return False
        # One step back out, because the division may have rounded inward.
        inward = np.where(upper, -np.inf, np.inf)
        rounded = _step(_round(bound, upper, dtype), -inward, dtype)
        for _ in range(6):
            good = _is_satisfied(affine, term, rounded, constant, from_above, strict) | np.isinf(bound)
            if good.all():
                break
            rounded = np.where(good, rounded, _step(rounded, inward, dtype))
        if not good.all():
            self._tighten(affine, bound, upper)
            return False
        self._tighten(affine, np.where(np.isinf(bound), bound, rounded), upper)
        return True

    def _tighten(self, affine: AffineForm, bound: np.ndarray, upper: np.ndarray) -> None:
        for from_above, which in ((True, upper), (False, ~upper)):
            if which.any():
                self._tighten_some(affine.variable, affine.index[which], bound[which], from_above)

    def _tighten_some(self, variable: Variable, index: np.ndarray, bound: np.ndarray, from_above: bool) -> None:
        tighten, bounds = (np.minimum, self._upper) if from_above else (np.maximum, self._lower)
        if not bounds[variable.name].flags.writeable:
            bounds[variable.name] = bounds[variable.name].copy()
        tighten.at(bounds[variable.name], index, bound)

    def _tighten_whole(self, variable: Variable, bound: np.ndarray, from_above: bool) -> None:
        tighten, bounds = (np.minimum, self._upper) if from_above else (np.maximum, self._lower)
        both = _store_once(bounds[variable.name], np.broadcast_to(bound, variable.shape).reshape(-1))
        bounds[variable.name] = np.broadcast_to(tighten(*both), variable.size)

    def hull(self, boxes: Iterable[BoxBuilder]) -> BoxBuilder:
        """Return the smallest box around others that lie in this one."""
        boxes = list(boxes)
        result = self.copy()
        for name, variable in self._variables.items():
            lowest = np.min(_store_once(*(box._lower[name] for box in boxes)), axis=0)
            highest = np.max(_store_once(*(box._upper[name] for box in boxes)), axis=0)
            result._lower[name], result._upper[name] = (np.broadcast_to(b, variable.size) for b in (lowest, highest))
        return result

    @property
    def is_empty(self) -> bool:
        """Whether some lower bound is above the upper one."""
        pairs = (_store_once(self._lower[name], self._upper[name]) for name in self._variables)
        return any(bool((lower > upper).any()) for lower, upper in pairs)

    def exchange_ends(self) -> None:
        """Exchange lower and upper bounds where a box is empty, so that it can be shown."""
        for name in self._variables:
            low, high = self._lower[name], self._upper[name]
            self._lower[name], self._upper[name] = np.minimum(low, high), np.maximum(low, high)

    def finish(self) -> tuple[InputVariable, ...]:
        """Return the variables with their bounds, rounded inward to their dtypes.

        Raises:
            PropertyError: A variable is unbounded, or a lower bound is above its upper bound.
        """
        return self._finish_together([self])[0]

    @classmethod
    def finish_each(cls, boxes: Sequence[BoxBuilder]) -> list[tuple[InputVariable, ...]]:
        """Return what `finish` does of each of some boxes of the same variables, thousands in a few steps.

        Raises:
            PropertyError: As for the first box that cannot be finished.
        """
        size = max(1, _TOGETHER // max(1, sum(v.size for v in boxes[0]._variables.values()))) if boxes else 1
        groups = [boxes[start : start + size] for start in range(0, len(boxes), size)]
        try:
            return [variables for group in groups for variables in cls._finish_together(group)]
        except PropertyError:
            return [box.finish() for box in boxes]

    @staticmethod
    def _finish_together(boxes: Sequence[BoxBuilder]) -> list[tuple[InputVariable, ...]]:
        finished: list[tuple[InputVariable, ...]] = [()] * len(boxes)
        for name, variable in boxes[0]._variables.items():
            stored = _store_once(*(box._lower[name] for box in boxes), *(box._upper[name] for box in boxes))
            ends = stored[: len(boxes)], stored[len(boxes) :]
            lower, upper = (end[0] if len(end) == 1 else np.concatenate(end) for end in ends)
            rows = [bound.reshape(len(boxes), -1) for bound in _round_inward(variable, lower, upper)]
            for number, (low, high) in enumerate(zip(*rows, strict=True)):
                whole = (np.broadcast_to(end, variable.size).reshape(variable.shape) for end in (low, high))
                finished[number] += (_make_input(variable, *whole),)
        return finished


def _make_input(variable: Variable, lower: np.ndarray, upper: np.ndarray) -> InputVariable:
    return InputVariable(name=variable.name, shape=variable.shape, dtype=variable.dtype, lower=lower, upper=upper)


def _round_inward(variable: Variable, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return flat bounds of a variable in its dtype; those of several boxes one after another."""
    name, dtype = variable.name, variable.dtype
    _check_bounded(variable, lower, upper)
    empty = lower > upper
    if empty.any():
        at = int(np.argmax(empty))
        raise PropertyError(
            f"property: lower bound {lower[at]:.9g} of {name!r} is above its upper bound {upper[at]:.9g}"
            f"{_place(variable, at)}; exchange them"
        )
    low, high = _round(lower, False, dtype), _round(upper, True, dtype)
    between = low > high
    if between.any():
        with np.errstate(over="ignore"):
            nearest = (lower + (upper - lower) / 2).astype(dtype).astype(np.float64)
        if dtype.kind in "iub" or np.isinf(nearest[between]).any():
            at = int(np.argmax(between))
            raise PropertyError(
                f"property: no {dtype} value lies between the bounds {lower[at]:.9g} and {upper[at]:.9g} of "
                f"{name!r}{_place(variable, at)}; widen them"
            )
        low, high = np.where(between, nearest, low), np.where(between, nearest, high)
    return _convert(low, dtype), _convert(np.where(upper >= _end(dtype), _end(dtype), high), dtype)


def _spread(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of a shape, in one dimension."""
    return (array if array.shape == shape else np.broadcast_to(array, shape)).reshape(-1)


def _store_once(*bounds: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return views of one element of each flat bound of a variable if each is one number for all; else the bounds."""
    return tuple(bound[:1] for bound in bounds) if all(bound.strides == (0,) for bound in bounds) else bounds


def _check_numbers(constant: np.ndarray, variable: Variable, formula: Comparison) -> None:
    if np.isnan(constant).any():
        raise PropertyError(f"property: NaN in a bound of {variable.name!r}: {describe(formula)}")


def _check_bounded(variable: Variable, lower: np.ndarray, upper: np.ndarray) -> None:
    name = variable.name
    no_lower, no_upper = np.isinf(lower), np.isinf(upper)
    missing = no_lower | no_upper
    if not missing.any():
        return
    at = int(np.argmax(missing))
    side = " and no ".join(["lower"] * bool(no_lower.any()) + ["upper"] * bool(no_upper.any()))
    more = int(missing.sum()) - 1
    others = f" (nor {more} other elements)" if more and not missing.all() else ""
    place = "" if missing.all() else _place(variable, at)
    raise PropertyError(
        f"property: input {name!r} has no {side} bound{place}{others}; bound it, as in "
        f"Forall({name}, Implies(-1 <= {name} <= 1, ...))"
    )


def _place(variable: Variable, position: int) -> str:
    if variable.size <= 1:
        return ""
    index = ", ".join(str(int(i)) for i in np.unravel_index(position % variable.size, variable.shape))
    return f" at [{index}]"


def _round(bound: np.ndarray, upper: bool | np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return float64 values that are values of `dtype`, upper bounds rounded down and lower ones up."""
    if dtype.kind in "iub":
        least, most = (0.0, 1.0) if dtype.kind == "b" else _float_range(dtype)
        down, up = np.minimum(np.floor(bound), most), np.maximum(np.ceil(bound), least)
        return np.asarray(np.where(upper, down, up))
    with np.errstate(over="ignore"):
        rounded = bound.astype(dtype).astype(np.float64)
    outside = np.where(upper, rounded > bound, rounded < bound)
    return np.where(outside, _step(rounded, np.where(upper, -np.inf, np.inf), dtype), rounded)


def _float_range(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the extreme float64 values that an integer dtype holds; the largest int64 is not among them."""
    info = np.iinfo(dtype)
    most = float(info.max)
    return float(info.min), most if int(most) <= info.max else float(np.nextafter(most, 0))


def _end(dtype: np.dtype[Any]) -> float:
    """Return the float64 value that stands for the greatest number of a dtype, which may lie above it."""
    return float(np.iinfo(dtype).max) if dtype.kind in "iu" else np.inf


def _convert(bound: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return float64 values of a dtype as such; the greatest integers of 64 bits round up in float64."""
    if dtype.kind not in "iu":
        return bound.astype(dtype)
    fits = bound < _end(dtype)
    return np.where(fits, np.where(fits, bound, 0).astype(dtype), np.iinfo(dtype).max).astype(dtype)


def _step(value: np.ndarray, towards: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the neighbours of values of `dtype`."""
    if dtype.kind in "iub":
        return np.asarray(value + np.sign(towards))
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.nextafter(value.astype(dtype), towards.astype(dtype)).astype(np.float64))


def _is_satisfied(
    affine: AffineForm, term: Term, values: np.ndarray, constant: np.ndarray, from_above: bool, strict: bool
) -> np.ndarray:
    """Whether the comparison is true, element by element, where the variable has these values."""
    variable = affine.variable
    point = np.zeros(variable.size)
    point[affine.index] = values
    frame = Frame({variable.name: to_torch(point.reshape(1, *variable.shape))}, None)
    with torch.no_grad():
        result = frame.value(term).reshape(-1).numpy()
    small, large = (result, constant) if from_above else (constant, result)
    return np.asarray(small < large if strict else small <= large)
