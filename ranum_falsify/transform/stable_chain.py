"""Stable forms of all kinds, one after the other."""

from __future__ import annotations

from ranum_falsify.transform.catalogue import all_passes

__all__ = ["equal_passes"]

# Whole losses come first: what they are made of has stable forms, too, in which they are not found any more.
# So do products of sums of exponentials before softmax and sigmoid, which are written so.
_FIRST = ("stable_bce_with_logits", "stable_softplus", "stable_log_")


def equal_passes() -> list[str]:
    """Return the names of all stable forms that are equal in real arithmetic, so ordered that each finds its own."""
    names = [spec.name for spec in all_passes() if spec.stands_for is not None and spec.stands_for.is_equal]

    def place(name: str) -> int:
        return next((number for number, first in enumerate(_FIRST) if name.startswith(first)), len(_FIRST))

    return sorted(names, key=place)
