"""What a user should know of the numbers that a model stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ranum_falsify.network.naming import list_names
from ranum_falsify.network.trace import Traced

_PORTION = 1 << 22  # elements to look at, at a time


def describe_stored_infinities(tensors: Mapping[str, Traced], noun: str = "initializer") -> Iterator[str]:
    """Yield a sentence for the stored tensors that hold NaN, and one for those that hold infinities.

    Args:
        tensors: The initializers, or other stored tensors, by name.
        noun: What to call one of them.
    """
    bad = {
        name: kinds for name, x in tensors.items() if isinstance(x.source, np.ndarray) and (kinds := _kinds(x.source))
    }
    nan = [name for name, kinds in bad.items() if "NaN" in kinds]
    infinite = {name: kinds - {"NaN"} for name, kinds in bad.items() if kinds - {"NaN"}}
    if nan:
        yield f"{_hold(noun, nan)} NaN: an operator that computes with it is violated, one that only hands it on is not"
    if infinite:
        signs = " or ".join(sorted(set().union(*infinite.values())))
        yield f"{_hold(noun, list(infinite))} {signs}: what it makes infinite is no violation, as a mask is none"


def _hold(noun: str, names: list[str]) -> str:
    return f"{list_names(noun, names)} {'holds' if len(names) == 1 else 'hold'}"


def _kinds(array: np.ndarray) -> set[str]:
    """Return which numbers that are not finite an array holds."""
    if array.dtype.kind not in "fV" or array.dtype.names:
        return set()
    flat, found = array.reshape(-1), set[str]()
    for begin in range(0, flat.size, _PORTION):
        part = flat[begin : begin + _PORTION]
        if np.isfinite(part).all():
            continue
        wide = part.astype(np.float64)
        tests = {"NaN": np.isnan(wide), "inf": wide == np.inf, "-inf": wide == -np.inf}
        found |= {kind for kind, where in tests.items() if where.any()}
    return found
