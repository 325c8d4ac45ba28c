"""Measurements of each runtime's kernels, by family of processors.

`scripts/measure_kernels.py` writes one file of `records/` for each family, and states in it what was run.  A library
chooses among its kernels by the processor's capabilities, so that each family has its own errors.  A record covers
every version that was measured: what a later one adds widens it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ranum_falsify.config import Runtime

FOLDER = Path(__file__).parent / "records"
"""Folder of the records."""

Row = tuple[float, float, float, float, bool]
"""relative, absolute, lowest, highest, keeps_sign: see `kernels.Envelope`."""

DTypes = Mapping[str, Row]
"""Rows of a function, by element type."""

STATISTICS = "LayerNormalization"
"""What stands for normalisations in records of what was found here."""

_ENDS = (-math.inf, math.inf)
_HEAD = ("runtime", "family", "versions", "safety")
_measured: list[Record] = []
_here: list[Record] = []


@dataclass(frozen=True, kw_only=True)
class Record:
    """Errors of one runtime's kernels on one family of processors.

    Attributes:
        runtime: Runtime that was measured; `exact` is correct rounding, which was computed.
        family: Family of processors, such as `avx2`.
        versions: The versions of the runtime that were measured, each with how, and on which machine; none of what was
            computed.  The errors cover all of them.
        safety: Factor on measured errors, by element type.
        swept: Which float32 values were run, by function.
        rows: Errors, by function and element type.
        saturation: By function, for float32: the operand up to which no result lies above the function's infimum, and
            the one from which on none lies below its supremum.  For `Softmax` the operand is the distance to the
            largest element, and there is no supremum.
        overflows: By function and element type, where kernels overflow early: the least value of the function for which
            a result was infinite, with a margin.
        half_sums: Whether sums of products in float16 are rounded to it at every step, not once in the end.
        updates: Whether rows of float32 are normalised in two passes, or by Welford's updates of one number after
            another, by `LayerNormalization` whose scale does not broadcast, and by `SkipLayerNormalization`.
    """

    runtime: Runtime
    family: str
    versions: Mapping[str, str]
    safety: Mapping[str, float]
    swept: Mapping[str, str]
    rows: Mapping[str, DTypes]
    saturation: Mapping[str, tuple[float, float]]
    overflows: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    half_sums: bool = False
    updates: bool = False

    def __hash__(self) -> int:
        return hash((self.runtime, self.family, *self.versions))

    def ends(self, function: str) -> tuple[float, float]:
        """Return where float32 kernels of a function saturate; nowhere if it was not measured."""
        return self.saturation.get(function, _ENDS)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of an element type in records."""
    return str(dtype).removeprefix("torch.")


def families() -> tuple[Record, ...]:
    """Return the measurements, one record for each runtime and family of processors, and what was found here."""
    return (*measured(), *_here)


def measured() -> tuple[Record, ...]:
    """Return the measurements: those that come with this program, and those that were made on this machine."""
    return (*shipped(), *_measured)


def measured_versions(runtime: Runtime) -> dict[str, tuple[str, ...]]:
    """Return the versions of a runtime that were measured, the newest last, by family of processors."""
    found: dict[str, set[str]] = {}
    for record in measured():
        if record.runtime == runtime:
            found.setdefault(record.family, set()).update(record.versions)
    return {family: tuple(sorted(versions, key=_numbers)) for family, versions in found.items()}


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]


def use_measured(records: Sequence[Record]) -> None:
    """Let bounds of this process also cover what was measured on this machine, in place of earlier such measurements.

    Args:
        records: Measurements of all functions.
    """
    _measured[:] = records


def use_here(records: Sequence[Record]) -> None:
    """Let bounds of this process also cover results that kernels gave on this machine, in place of earlier ones.

    Args:
        records: Records of results outside the others.
    """
    _here[:] = records


def found_here() -> tuple[Record, ...]:
    """Return what was measured and found on this machine."""
    return (*_measured, *_here)


@cache
def shipped() -> tuple[Record, ...]:
    """Return the measurements that come with this program."""
    return tuple(read_record(path) for path in sorted(FOLDER.glob("*.json")))


def read_record(path: Path) -> Record:
    """Read a record."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    functions: dict[str, dict[str, Any]] = content.pop("functions")
    swept, rows, saturation, overflows = {}, {}, {}, {}
    for name, fields in functions.items():
        swept[name] = fields.pop("swept")
        if "saturates" in fields:
            low, high = fields.pop("saturates")
            saturation[name] = (-math.inf if low is None else low, math.inf if high is None else high)
        if "overflows" in fields:
            overflows[name] = fields.pop("overflows")
        rows[name] = {dtype: _row(row) for dtype, row in fields.items()}
    return Record(**content, swept=swept, rows=rows, saturation=saturation, overflows=overflows)


def _row(row: list[Any]) -> Row:
    relative, absolute, lowest, highest, keeps_sign = row
    return (
        relative,
        absolute,
        -math.inf if lowest is None else lowest,
        math.inf if highest is None else highest,
        keeps_sign,
    )


def write_record(record: Record, path: Path) -> None:
    """Write a record."""
    path.write_text(record_text(record), encoding="utf-8")


def record_text(record: Record) -> str:
    """Return the text of a record's file."""
    names = (*_HEAD, *(fact for fact in ("half_sums", "updates") if getattr(record, fact)))
    head = [f"  {json.dumps(name)}: {json.dumps(getattr(record, name))}" for name in names]
    functions = [_text(name, _fields(record, name)) for name in record.swept]
    body = '  "functions": {\n' + ",\n".join(functions) + "\n  }"
    return "{\n" + ",\n".join([*head, body]) + "\n}\n"


def _fields(record: Record, name: str) -> Mapping[str, Any]:
    fields: dict[str, Any] = {"swept": record.swept[name]}
    if name in record.saturation:
        fields["saturates"] = record.saturation[name]
    if record.overflows.get(name):
        fields["overflows"] = dict(record.overflows[name])
    fields.update(record.rows.get(name, {}))
    return fields


def _text(name: str, fields: Mapping[str, Any]) -> str:
    lines = [f"      {json.dumps(key)}: {json.dumps(_replace_infinity(value))}" for key, value in fields.items()]
    return f"    {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n    }"


def _replace_infinity(value: Any) -> Any:
    """Return a value with None in place of unbounded numbers, because JSON has no infinity."""
    if isinstance(value, (tuple, list)):
        return [_replace_infinity(x) for x in value]
    return None if isinstance(value, float) and math.isinf(value) else value
