"""Numbers at which kernels turn, by class: what attributes and operands are changed to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

__all__ = ["FLOAT_CLASSES", "LIST_CLASSES", "WHOLE_CLASSES", "is_number", "listed", "number", "numbers"]

Array = NDArray[Any]

WHOLE_CLASSES = ("zero", "negative", "positive", "extreme")
FLOAT_CLASSES = (*WHOLE_CLASSES, "not finite")
LIST_CLASSES = ("duplicate", "empty", "shorter", "longer", "permuted")

_WIDE, _LONG = 2**31, 2**63


def is_number(dtype: np.dtype) -> bool:
    """Tell whether an element type is one of numbers that ONNX Runtime computes with, or of booleans."""
    return dtype.kind in "fiub" or dtype == ml_dtypes.bfloat16


def is_float(x: Array) -> bool:
    return x.dtype.kind == "f" or x.dtype == ml_dtypes.bfloat16


def number(kind: str, rng: np.random.Generator, dtype: Any = np.int64) -> Any:
    """Return a number of a class, within an element type; of a type without such numbers, the nearest."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return bool(kind == "positive" or (kind != "zero" and rng.random() < 0.5))
    return _whole(kind, rng, dtype) if dtype.kind in "iu" else _float(kind, rng, dtype)


def _whole(kind: str, rng: np.random.Generator, dtype: np.dtype) -> int:
    limits = np.iinfo(dtype)
    if kind in ("extreme", "not finite"):
        ends = [limits.min, limits.max, limits.min + 1, limits.max - 1]
        ends += [end for end in (-_WIDE, _WIDE - 1, _WIDE, -_WIDE - 1) if limits.min <= end <= limits.max]
        return int(ends[int(rng.integers(len(ends)))])
    small = {"zero": 0, "negative": -int(rng.integers(1, 6)), "positive": int(rng.integers(1, 7))}[kind]
    return max(small, int(limits.min))


def _float(kind: str, rng: np.random.Generator, dtype: np.dtype) -> float:
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    greatest, least = float(limits.max), float(limits.tiny)
    choices: dict[str, Sequence[float]] = {
        "zero": (0.0, -0.0),
        "negative": (-1.0, -0.5, -2.0, -(10.0 ** float(rng.uniform(-3, 3)))),
        "positive": (1.0, 0.5, 2.0, 0.25, 10.0 ** float(rng.uniform(-3, 3))),
        "extreme": (greatest, -greatest, least, -least, least / 8, -least / 8, greatest / 4),
        "not finite": (np.inf, -np.inf, np.nan),
    }
    return float(choices[kind][int(rng.integers(len(choices[kind])))])


def numbers(x: Array, kind: str, rng: np.random.Generator) -> Array:
    """Return an array some elements of which are of a class, or copies of others (`duplicate`)."""
    if not x.size or not is_number(x.dtype):
        return x
    chosen = rng.random(x.shape) < rng.choice((0.3, 1.0))
    chosen.reshape(-1)[int(rng.integers(x.size))] = True
    if kind == "duplicate":
        return np.asarray(np.where(chosen, x.reshape(-1)[int(rng.integers(x.size))], x)).astype(x.dtype)
    with np.errstate(all="ignore"):
        values = np.array([number(kind, rng, x.dtype) for _ in range(x.size)]).astype(x.dtype).reshape(x.shape)
    if is_float(x):  # what reads a stored NaN is not to blame for another
        values = np.where(np.isnan(values), np.zeros_like(values), values)
    return np.asarray(np.where(chosen, values, x)).astype(x.dtype)


def listed(values: Sequence[Any], kind: str, rng: np.random.Generator, fresh: Any) -> list[Any]:
    """Return a list changed in its elements, or in how many there are.

    Args:
        values: The list.
        kind: A class of numbers, or one of :data:`LIST_CLASSES`.
        rng: Source of chance.
        fresh: `fn(kind) -> element`.
    """
    changed = list(values)
    place = int(rng.integers(len(changed))) if changed else 0
    if kind == "empty":
        return []
    if kind == "shorter":
        return changed[:-1] if rng.random() < 0.5 else changed[:place] + changed[place + 1 :]
    if kind == "longer":
        return [*changed, changed[place] if changed and rng.random() < 0.5 else fresh("positive")]
    if kind == "permuted":
        return [changed[int(i)] for i in rng.permutation(len(changed))]
    if not changed:
        changed = [fresh("positive" if kind == "duplicate" else kind)]
    if kind == "duplicate":
        changed = changed if len(changed) > 1 else [*changed, changed[0]]
        other = int(rng.integers(len(changed)))
        changed[other] = changed[place]
        return changed
    for i in range(len(changed)):
        if i == place or rng.random() < 0.3:
            changed[i] = fresh(kind)
    return changed
