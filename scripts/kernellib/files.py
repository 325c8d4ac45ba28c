"""Records as files that can be reviewed: one line for each element type of a function."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ranum_falsify.domain.kernels.records import Record, read_record

__all__ = ["path_of", "update", "write_record"]

_HEAD = ("runtime", "family", "version", "measured", "safety")


def path_of(folder: Path, runtime: str, family: str) -> Path:
    """Return the file of a record."""
    return folder / f"{runtime}_{family}.json"


def update(path: Path, record: Record) -> Record:
    """Write what was measured now, and of the same version what was measured before; return both."""
    if path.exists():
        before = read_record(path)
        if before.version == record.version:
            record = replace(
                record,
                **{
                    name: {**getattr(before, name), **getattr(record, name)}
                    for name in ("swept", "rows", "saturation")
                },
            )
    write_record(record, path)
    return record


def write_record(record: Record, path: Path) -> None:
    """Write a record."""
    head = [f"  {json.dumps(name)}: {json.dumps(getattr(record, name))}" for name in _HEAD]
    functions = [_text(name, _fields(record, name)) for name in record.swept]
    body = '  "functions": {\n' + ",\n".join(functions) + "\n  }"
    path.write_text("{\n" + ",\n".join([*head, body]) + "\n}\n", encoding="utf-8")


def _fields(record: Record, name: str) -> Mapping[str, Any]:
    fields: dict[str, Any] = {"swept": record.swept[name]}
    if name in record.saturation:
        fields["saturates"] = record.saturation[name]
    return fields | record.rows.get(name, {})


def _text(name: str, fields: Mapping[str, Any]) -> str:
    lines = [f"      {json.dumps(key)}: {json.dumps(_without_infinity(value))}" for key, value in fields.items()]
    return f"    {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n    }"


def _without_infinity(value: Any) -> Any:
    """Return a value in which None stands for what is not bounded, since JSON has no infinity."""
    if isinstance(value, (tuple, list)):
        return [_without_infinity(x) for x in value]
    return None if isinstance(value, float) and math.isinf(value) else value
