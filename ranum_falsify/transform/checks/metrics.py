"""Metrics of how the outputs of two models differ over all samples."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ranum_falsify.errors import TransformError

__all__ = ["METRICS", "Arrays", "check_metric", "metric", "metric_faults"]

Arrays = Sequence[tuple[np.ndarray, np.ndarray]]
"""An output of the model before and after a pass, for each sample."""

_Pair = tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]


def metric_faults(pairs: Sequence[_Pair], limits: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return which metrics are out of their limits, in one line each.

    Args:
        pairs: Expected and actual outputs of each sample.
        limits: Least and greatest value by metric.
    """
    faults = []
    for name, (least, greatest) in limits.items():
        for output in pairs[0][0]:
            value = _measure(name, [(old[output], new[output]) for old, new in pairs])
            if not least <= value <= greatest:
                faults.append(f"output {output!r}: {name} {value:.9g} not within [{least:g}, {greatest:g}] as required")
    return faults


def _measure(name: str, arrays: Arrays) -> float:
    """Return the value of a metric, which may be a user's.

    Raises:
        TransformError: It fails.
    """
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
