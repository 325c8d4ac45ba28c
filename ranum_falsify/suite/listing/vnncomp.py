"""VNN-COMP's `instances.csv`: model, property and time limit of each instance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from ranum_falsify.errors import UsageError
from ranum_falsify.suite.instance import Instance
from ranum_falsify.suite.listing.files import find_present

__all__ = ["read_vnncomp"]


def read_vnncomp(path: Path, rows: Sequence[Sequence[str]]) -> Iterator[Instance]:
    """Yield the instances of a list.

    Args:
        path: Its file; its folder is the category, and what files are relative to.
        rows: Its rows.

    Raises:
        UsageError: A row is not of this form.
    """
    category = path.resolve().parent.name
    for number, row in enumerate(rows, 1):
        if len(row) not in (2, 3):
            raise UsageError(f"{path}: row {number} has {len(row)} columns; write model, property and time limit")
        model, prop = row[:2]
        timeout = _parse_seconds(path, number, row[2]) if len(row) == 3 else None
        yield Instance(
            id=f"{category}/{_shorten(model)}/{_shorten(prop)}",
            category=category,
            model=model,
            property=prop,
            networks={"": find_present(path.parent, model)},
            property_path=find_present(path.parent, prop),
            options={"n_starts": -1},
            timeout=timeout,
        )


def _parse_seconds(path: Path, number: int, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"{path}: row {number}: {text!r} is no number of seconds; write a time limit")
    return seconds


def _shorten(path: str) -> str:
    """Return a file's name without what all of its kind end in."""
    name = Path(path).name.removesuffix(".gz")
    return name.removesuffix(".onnx").removesuffix(".vnnlib")
