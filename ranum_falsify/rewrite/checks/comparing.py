"""Outputs of two models, compared as a guarantee asks, and metrics of how they differ over all samples."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ranum_falsify.errors import TransformError
from ranum_falsify.network.messages import show_number
from ranum_falsify.rewrite.verify import Guarantee

_RELATIVE = {2: 1e-2, 4: 1e-5, 8: 1e-10}  # by bytes of an element; 1e-5 is the default of numpy.allclose


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far outputs may be apart, as in `numpy.allclose`.

    Attributes:
        rtol: Relative tolerance, None for one that fits the element type (1e-5 for float32).
        atol: Absolute tolerance.
        equal_nan: Whether NaN equals NaN.
    """

    rtol: float | None = None
    atol: float = 1e-8
    equal_nan: bool = True

    def allowed(self, expected: np.ndarray) -> np.ndarray:
        """Return how far each element may be away; in float64."""
        rtol = self.relative(expected.dtype)
        magnitude = np.abs(_widen(expected))
        return self.atol + np.where(np.isfinite(magnitude), rtol * magnitude, 0.0)

    def relative(self, dtype: np.dtype) -> float:
        """Return the relative tolerance for an element type."""
        return _RELATIVE.get(dtype.itemsize, 1e-5) if self.rtol is None else self.rtol


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The largest difference of an output.

    Attributes:
        output: Its name.
        why: What is wrong, in a few words; empty where only values differ.
        index: Where the largest difference is.
        expected: The old value there.
        actual: The new one.
        elements: How many elements differ by more than they may.
    """

    output: str
    why: str = ""
    index: tuple[int, ...] = ()
    expected: float | int = 0.0
    actual: float | int = 0.0
    elements: int = 0

    @property
    def size(self) -> float:
        """The absolute difference; infinite where one value alone is not finite, or there is none to compare."""
        if self.why:
            return np.inf
        size = abs(self.expected - self.actual)
        return np.inf if np.isnan(size) else size

    def __str__(self) -> str:
        if self.why:
            return self.why
        where = f" at {list(self.index)}" if self.index else ""
        many = f"; {self.elements} elements differ" if self.elements > 1 else ""
        before, after = map(show_number, (self.expected, self.actual))
        return f"{before} became {after}{where}{many}"


def compare(
    expected: Mapping[str, np.ndarray],
    actual: Mapping[str, np.ndarray],
    guarantee: Guarantee,
    tolerance: Tolerance,
    extra: Mapping[str, np.ndarray] | None = None,
) -> Difference | None:
    """Return the largest difference that a guarantee does not allow, None where there is none.

    Args:
        expected: Outputs of the old model.
        actual: Outputs of the new one.
        guarantee: `equality` or `tolerance`.
        tolerance: How far they may be apart.
        extra: How much further each element of an output may be away.
    """
    differences = []
    for name, old in expected.items():
        if name not in actual:
            return Difference(output=name, why="it is missing")
        new = actual[name]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            old_kind, new_kind = (f"{array.dtype}{list(array.shape)}" for array in (old, new))
            return Difference(output=name, why=f"it was {old_kind}, and is {new_kind}")
        wrong = ~_is_equal(old, new, signed_zero=guarantee.signed_zero)
        if guarantee.kind == "tolerance":
            wrong = _apart(old, new, wrong, tolerance, (extra or {}).get(name))
        if wrong.any():
            differences.append(_largest(name, old, new, wrong))
    return max(differences, key=lambda difference: difference.size, default=None)


def distance_of(expected: Mapping[str, np.ndarray], actual: Mapping[str, np.ndarray], tolerance: Tolerance) -> float:
    """Return by how much outputs are at most apart, beyond the relative tolerance; infinite where shapes differ."""
    most = 0.0
    for name, old in expected.items():
        if name not in actual or actual[name].shape != old.shape:
            return np.inf
        wide, other = _widen(old), _widen(actual[name])
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(wide - other) - tolerance.relative(old.dtype) * np.abs(wide)
        most = max(most, float(np.max(apart, initial=0.0, where=~np.isnan(apart))))
    return most


def _is_equal(old: np.ndarray, new: np.ndarray, *, signed_zero: bool) -> np.ndarray:
    same: np.ndarray = old == new
    if old.dtype.kind not in "fV" and not _is_brain(old):
        return same
    wide, other = _widen(old), _widen(new)
    if signed_zero:
        same = same & (np.signbit(wide) == np.signbit(other))
    same |= np.isnan(wide) & np.isnan(other)
    return same


def _apart(
    old: np.ndarray, new: np.ndarray, unequal: np.ndarray, tolerance: Tolerance, extra: np.ndarray | None
) -> np.ndarray:
    """Return which elements are further apart than they may be; integers must be equal but for what `extra` allows."""
    wide, other = _widen(old), _widen(new)
    is_float = old.dtype.kind == "f" or _is_brain(old)
    allowed = tolerance.allowed(old) if is_float else np.zeros(old.shape)
    if extra is not None:
        allowed = allowed + extra
    with np.errstate(invalid="ignore", over="ignore"):
        near: np.ndarray = np.abs(wide - other) <= allowed
    near |= np.isinf(allowed) & ~np.isnan(other)
    if not is_float:
        near &= allowed > 0  # in double precision, large integers are their neighbours
    if not tolerance.equal_nan:
        unequal = unequal | np.isnan(wide) | np.isnan(other)
    apart: np.ndarray = unequal & ~near
    return apart


def _largest(name: str, old: np.ndarray, new: np.ndarray, wrong: np.ndarray) -> Difference:
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = np.abs(_widen(old) - _widen(new))
    sizes = np.where(wrong, np.where(np.isnan(sizes), np.inf, sizes), -1.0)
    index = np.unravel_index(int(np.argmax(sizes)), sizes.shape)
    return Difference(
        output=name,
        index=tuple(int(i) for i in index),
        expected=_number(old[index]),
        actual=_number(new[index]),
        elements=int(wrong.sum()),
    )


def _number(element: np.generic) -> float | int:
    return int(element) if isinstance(element, np.integer | np.bool_) else float(element)


def _widen(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def _is_brain(array: np.ndarray) -> bool:
    return array.dtype.name == "bfloat16"


Arrays = Sequence[tuple[np.ndarray, np.ndarray]]
"""An output of the model before and after a pass, for each sample."""

_Pair = tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]


def metric_faults(pairs: Sequence[_Pair], limits: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return which metrics are out of their limits, in one line each."""
    faults = []
    for name, (least, greatest) in limits.items():
        for output in pairs[0][0]:
            value = _measure(name, [(old[output], new[output]) for old, new in pairs])
            if not least <= value <= greatest:
                faults.append(f"output {output!r}: {name} {value:.9g} not within [{least:g}, {greatest:g}] as required")
    return faults


def _measure(name: str, arrays: Arrays) -> float:
    """Return the value of a metric, which may be a user's."""
    try:
        return float(METRICS[name](arrays))
    except Exception as error:
        raise TransformError(f"metric {name!r}: {type(error).__name__}: {error}; repair its function") from error


def metric(name: str, function: Callable[[Arrays], float]) -> None:
    """Register a metric, which limits of `verify.metrics` may name.

    Args:
        name: Its name.
        function: Gets an output of the model before and after a pass as pairs of arrays, one for each sample; returns a
            number.

    Raises:
        TransformError: A metric has this name.
    """
    if name in METRICS:
        raise TransformError(f"metric {name!r} exists already; give yours another name")
    METRICS[name] = function


def check_metric(name: str) -> None:
    """Check that a metric exists.

    Raises:
        TransformError: It does not.
    """
    if name not in METRICS:
        near = difflib.get_close_matches(name, METRICS, n=1)
        meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(METRICS)}"
        raise TransformError(f"there is no metric {name!r}; {meant}")


def _errors(arrays: Arrays) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        sizes = [np.abs(old.astype(np.float64) - new.astype(np.float64)).reshape(-1) for old, new in arrays]
    both = [(old.astype(np.float64).reshape(-1), new.astype(np.float64).reshape(-1)) for old, new in arrays]
    same = [(old == new) | (np.isnan(old) & np.isnan(new)) for old, new in both]
    found = np.concatenate([np.where(equal, 0.0, size) for equal, size in zip(same, sizes, strict=True)])
    return np.where(np.isnan(found), np.inf, found)


def _rows(arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of all samples, classes along the last axis; scalars are a class each."""
    old, new = (
        np.concatenate(
            [np.atleast_1d(pair[side]).reshape(-1, pair[side].shape[-1] if pair[side].ndim else 1) for pair in arrays]
        )
        for side in (0, 1)
    )
    return old, new


def _hits(arrays: Arrays, count: int) -> np.ndarray:
    """Return for each row whether the best class of the old model is among the best of the new one."""
    old, new = _rows(arrays)
    best = np.argsort(-new, axis=-1, kind="stable")[:, :count]
    hits: np.ndarray = (best == old.argmax(-1)[:, None]).any(-1)
    return hits


METRICS: dict[str, Callable[[Arrays], float]] = {
    "max_abs_error": lambda arrays: float(_errors(arrays).max(initial=0.0)),
    "mean_abs_error": lambda arrays: float(_errors(arrays).mean()),
    "accuracy": lambda arrays: float(_hits(arrays, 1).mean()),
    "top_5_accuracy": lambda arrays: float(_hits(arrays, 5).mean()),
    "count_mispredictions": lambda arrays: float((~_hits(arrays, 1)).sum()),
}
"""What can be limited; the best class is the greatest along the last axis, the first of equal ones."""
