"""Results to compare: of our suites, of the competition's tools, and what is expected."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ranum_falsify.errors import UsageError
from ranum_falsify.suite.instance import Instance
from ranum_falsify.suite.listing import read_rows
from ranum_falsify.suite.record import STATUSES, InstanceRecord, Status
from ranum_falsify.suite.results import read_records

Key = tuple[str, str, str]
"""Category, model and property, written as all lists write them."""

_EXPECTED = "expected.csv"
_WANTED = "a results.jsonl, a results.csv, or an expected.csv"
_ALIASES: dict[str, Status] = {"violated": "sat", "holds": "unsat"}
_TIMES = ("alpha_beta_crown_s",)
"""Columns of a table of expected outcomes that hold times."""


@dataclass(frozen=True, kw_only=True)
class ComparedResult:
    """The result of an instance.

    Attributes:
        key: What identifies it.
        status: The outcome.
        seconds: How long it took; NaN where nobody says.
        counterexample: The description of its counterexample, None where there is none.
        instance: The instance, where the result is a record of ours.
        fingerprint: Hash of what the record is of.
    """

    key: Key
    status: Status
    seconds: float = math.nan
    counterexample: Path | None = None
    instance: Instance | None = None
    fingerprint: str = ""

    @property
    def is_decided(self) -> bool:
        """Whether it is `sat` or `unsat`."""
        return self.status in ("sat", "unsat")


def read_entries(path: Path) -> dict[Key, ComparedResult]:
    """Return results by instance; the last one counts of an instance that has several.

    Args:
        path: A `results.jsonl` or `results.csv` of ours, the results of a tool at VNN-COMP, an `expected.csv`; or a
            folder with one of these, or with folders of which each has an `expected.csv`.

    Raises:
        UsageError: It is none of these.
    """
    found = {entry.key: entry for each in _find_files(path) for entry in _read(each)}
    if not found:
        raise UsageError(f"{path}: holds no results; give {_WANTED}")
    return found


def read_times(path: Path) -> dict[str, float]:
    """Return how many seconds instances took, by id: the ids of records alone are known.

    Raises:
        UsageError: It is no file of records.
    """
    if path.suffix == ".csv":
        path = path.with_suffix(".jsonl")
    return {record.instance.id: record.preparation + record.seconds for record in read_records(path)}


def _find_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = [path / name for name in ("results.jsonl", "results.csv", _EXPECTED) if (path / name).is_file()]
    found = found[:1] or sorted(path.glob(f"*/{_EXPECTED}"))
    if not found:
        raise UsageError(f"{path}: has no results.jsonl, results.csv or {_EXPECTED}; give a file")
    return found


def _read(path: Path) -> Iterator[ComparedResult]:
    if path.suffix == ".jsonl":
        yield from (_of_record(path, record) for record in read_records(path))
        return
    rows = read_rows(path, _WANTED)
    if rows and "expected" in rows[0]:
        yield from _of_expected(path, rows)
    else:
        yield from (_of_row(path, number, row) for number, row in enumerate(rows, 1))


def _of_record(path: Path, record: InstanceRecord) -> ComparedResult:
    file = record.files.get("description")
    return ComparedResult(
        key=_key(record.instance.category, record.instance.model, record.instance.property),
        status=record.status,
        seconds=record.seconds,
        counterexample=None if file is None else path.parent / file,
        instance=record.instance,
        fingerprint=record.fingerprint,
    )


def _of_row(path: Path, number: int, row: Sequence[str]) -> ComparedResult:
    """Return what a row of VNN-COMP's results says: category, model, property, preparation, outcome, seconds."""
    if len(row) < 6:
        raise UsageError(
            f"{path}: row {number} has {len(row)} columns; results have category, model, property, preparation time, "
            "verdict and seconds"
        )
    return ComparedResult(key=_key(*row[:3]), status=_status(row[4]), seconds=_number(row[5]))


def _of_expected(path: Path, rows: Sequence[Sequence[str]]) -> Iterator[ComparedResult]:
    category = path.resolve().parent.name
    for number, row in enumerate(rows[1:], 2):
        cells = dict(zip(rows[0], row, strict=False))
        if not {"onnx", "vnnlib", "expected"} <= cells.keys():
            raise UsageError(f"{path}: row {number} has too few columns; write onnx, vnnlib and expected")
        times = [_number(cells[name]) for name in _TIMES if name in cells]
        yield ComparedResult(
            key=_key(category, cells["onnx"], cells["vnnlib"]),
            status=_status(cells["expected"]),
            seconds=next(iter(times), math.nan),
        )


def _key(category: str, model: str, prop: str) -> Key:
    return re.sub(r"^\d{4}_|_\d{4}$", "", category), _names(model.split()), _names(prop.split())


def _names(paths: Iterable[str]) -> str:
    names = (PurePosixPath(path).name.removesuffix(".gz") for path in paths)
    return " ".join(name.removesuffix(".onnx").removesuffix(".vnnlib") for name in names)


def _status(text: str) -> Status:
    """Return what a tool's outcome means; the competition's scripts write several kinds of errors."""
    lowered = text.lower()
    if lowered in _ALIASES:
        return _ALIASES[lowered]
    for status in STATUSES:
        if lowered == status:
            return status
    return "timeout" if "timeout" in lowered else "unknown" if "unknown" in lowered else "error"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
