"""What reports have in common: records as strict JSON holds them, names, and versions."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from operator import methodcaller
from typing import Any

import msgspec

from ranum_falsify.bundle import UPSTREAM, version_of_upstream
from ranum_falsify.version import __version__


def as_json(record: object) -> Any:
    """Return a record of dataclasses, mappings, sequences and numbers; those that are not finite are text."""
    return _finite(msgspec.to_builtins(record, enc_hook=methodcaller("item")))


def list_some(names: Iterable[str], most: int) -> str:
    """Return so many names, and how many more there are."""
    known = list(names)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{', '.join(known[:most])}{more}"


def pick(record: object, names: str) -> dict[str, Any]:
    """Return attributes of a record as JSON holds them; their names are separated by spaces."""
    return {name: as_json(getattr(record, name)) for name in names.split()}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return number(value) if isinstance(value, float) else value


def number(value: float) -> float | str:
    """Return a number as strict JSON can hold it: infinities and NaN as text."""
    return value if math.isfinite(value) else str(value)


_PACKAGES = ("numpy", "onnx", "onnxruntime", "torch")


def versions() -> dict[str, str]:
    """Return version by package, Python among them; packages without metadata are left out."""
    return {"ranum-falsify": __version__, "python": platform.python_version(), **_installed()}


@cache
def _installed() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    upstream = {name: version_of_upstream(name) for name in UPSTREAM}
    return found | {name: number for name, number in upstream.items() if number is not None}
