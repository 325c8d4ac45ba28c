"""Options of `no_invalid_input`, checked."""

from __future__ import annotations

import difflib
from typing import Any

import onnx.defs

from ranum_falsify.errors import PropertyError
from ranum_falsify.network import list_supported
from ranum_falsify.properties.language.walk import shorten

__all__ = ["check_operators", "names_option"]


def names_option(name: str, value: Any, source: Any) -> tuple[str, ...] | None:
    """Return the names given for `only` or `nodes`, None if the option is not used.

    Raises:
        PropertyError: It is not a list of names, or an empty one.
    """
    if value is None:
        return None
    if (
        isinstance(value, str)
        or not isinstance(value, list | tuple | set)
        or not all(isinstance(v, str) for v in value)
    ):
        raise PropertyError(f'property: {shorten(source)}: {name} takes a list of names, such as {name}=["Log"]')
    if not value:
        raise PropertyError(f"property: {shorten(source)}: {name} is empty, so nothing would be checked")
    return tuple(value)


def check_operators(only: tuple[str, ...] | None) -> None:
    """Refuse operator types that are not in ONNX and have no row.

    Raises:
        PropertyError: One of them is unknown; the message suggests a similar one.
    """
    rows = {spec.op_type for spec in list_supported()}
    for name in only or ():
        if not onnx.defs.has(name) and name not in rows:
            known = sorted(rows | {schema.name for schema in onnx.defs.get_all_schemas()})
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise PropertyError(f"property: only={name!r} is not an ONNX operator{hint}")
