"""Records as files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ranum_falsify.domain.kernels import Envelope
from ranum_falsify.domain.kernels.records import Record, Row, read_record, write_record
from ranum_falsify.selfcheck.measuring import Sweep

__all__ = ["join_records", "path_of", "update"]


def path_of(folder: Path, runtime: str, family: str) -> Path:
    """Return the file of a record."""
    return folder / f"{runtime}_{family}.json"


def update(path: Path, record: Record, *, sweep: Sweep, widen: bool = False) -> None:
    """Write what was measured of a version now, together with earlier measurements.

    Args:
        path: The record's file.
        record: What was measured now.
        sweep: Which float32 values were run.
        widen: Whether earlier measurements of the same functions count too.  They always do in a record of several
            versions.

    Raises:
        ValueError: The record has another version only, and functions that were not measured of this one.
    """
    if path.exists():
        before = read_record(path)
        if before.versions.keys() == record.versions.keys() and not widen:
            record = _extend(before, record)
        else:
            record = join_records(before, record, sweep)
    write_record(record, path)


def join_records(before: Record, record: Record, sweep: Sweep) -> Record:
    """Return a record that covers two of one family.

    What was swept is said of the versions that the record had first; how a later version was measured says so itself.

    Args:
        before: The record of any number of versions.
        record: The record of one version.
        sweep: Which float32 values were run for it.

    Raises:
        ValueError: The version is new to the record, and functions are missing.
    """
    ((version, how),) = record.versions.items()
    is_new = version not in before.versions
    if is_new and (missing := before.rows.keys() - record.rows.keys()):
        raise ValueError(
            f"{record.runtime} {version} ({record.family}) has no measurement yet: measure all functions, not only "
            f"some ({', '.join(sorted(missing))} are missing)"
        )
    rows = {f: _widen_rows(before.rows.get(f, {}), of) for f, of in record.rows.items()}
    swept = {
        f: before.swept.get(f, text) if is_new else _join(before.swept.get(f), text) for f, text in record.swept.items()
    }
    saturation = {}
    for function, (low, high) in record.saturation.items():
        was = before.saturation.get(function, (low, high))
        saturation[function] = min(low, was[0]), max(high, was[1])
    versions = {**before.versions, version: f"{how}, {sweep}" if is_new else _join(before.versions[version], how)}
    overflows = {
        f: {
            dtype: min(of.get(f, {}).get(dtype, math.inf) for of in (before.overflows, record.overflows))
            for dtype in {**before.overflows.get(f, {}), **record.overflows.get(f, {})}
        }
        for f in record.rows
    }
    joined = replace(record, versions=versions, swept=swept, rows=rows, saturation=saturation, overflows=overflows)
    return _extend(before, joined)


def _join(before: str | None, now: str) -> str:
    """Join two statements; one that says nothing more adds nothing."""
    if before is None:
        return now
    return before if now in before else f"{before}; {now}"


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
        overflows={**before.overflows, **record.overflows},
        half_sums=before.half_sums or record.half_sums,
        updates=before.updates and record.updates,
    )
