"""Records as files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ranum_falsify.domain.kernels import Envelope
from ranum_falsify.domain.kernels.records import Record, Row, read_record, write_record

__all__ = ["join_records", "path_of", "update"]


def path_of(folder: Path, runtime: str, family: str) -> Path:
    """Return the file of a record."""
    return folder / f"{runtime}_{family}.json"


def update(path: Path, record: Record, *, widen: bool = False) -> None:
    """Write what was measured now, together with earlier measurements of the same version.

    Args:
        path: The record's file.
        record: What was measured now.
        widen: Whether earlier measurements of the same functions count too.
    """
    if path.exists():
        before = read_record(path)
        if before.version == record.version:
            record = join_records(before, record) if widen else _extend(before, record)
    write_record(record, path)


def join_records(before: Record, record: Record) -> Record:
    """Return a record that covers two of one family; one that saw no other processor adds nothing to the heading."""
    how = before.measured if record.measured in before.measured else f"{before.measured}; {record.measured}"
    rows = {f: _widen_rows(before.rows.get(f, {}), of) for f, of in record.rows.items()}
    swept = {f: _join(before.swept.get(f), text) for f, text in record.swept.items()}
    saturation = {}
    for function, (low, high) in record.saturation.items():
        was = before.saturation.get(function, (low, high))
        saturation[function] = min(low, was[0]), max(high, was[1])
    return _extend(before, replace(record, measured=how, swept=swept, rows=rows, saturation=saturation))


def _join(before: str | None, now: str) -> str:
    return now if before is None or now in before else f"{before}; {now}"


def _widen_rows(before: Mapping[str, Row], now: Mapping[str, Row]) -> dict[str, Row]:
    return {**before, **{dtype: _union(before[dtype], row) if dtype in before else row for dtype, row in now.items()}}


def _union(one: Row, other: Row) -> Row:
    return Envelope(*one).union(Envelope(*other)).row


def _extend(before: Record, record: Record) -> Record:
    return replace(
        record,
        swept={**before.swept, **record.swept},
        rows={**before.rows, **record.rows},
        saturation={**before.saturation, **record.saturation},
    )
