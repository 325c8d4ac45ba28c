"""Records as strict JSON holds them."""

from __future__ import annotations

import math
from typing import Any

import msgspec


def as_json(record: object) -> Any:
    """Return a record of dataclasses, mappings, sequences and numbers; numbers that are not finite are text."""
    return _finite(msgspec.to_builtins(record))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
