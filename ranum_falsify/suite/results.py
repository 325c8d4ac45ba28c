"""Result files of a suite: `results.jsonl`, a line for each instance done, and `results.csv`, VNN-COMP's columns."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Self

from ranum_falsify.errors import SaveError, UsageError, reason_of
from ranum_falsify.saving import save_together
from ranum_falsify.suite.record import InstanceRecord, Status

_PATIENCE = 2.0
"""Seconds to wait for a file that another process holds, as a worker does that a killed suite was just starting."""


def read_records(path: Path) -> Iterator[InstanceRecord]:
    """Yield the records of a file; a last line that was not written to its end is left out.

    Raises:
        UsageError: It cannot be read, or a line of it is no record.
    """
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if line.endswith(b"\n"):
                    yield _parse(path, number, line)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({reason_of(error)}); give a results.jsonl of a suite") from error


def _parse(path: Path, number: int, line: bytes) -> InstanceRecord:
    try:
        return InstanceRecord.from_json(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise UsageError(f"{path}: line {number} is no result of a suite; give the results.jsonl of one") from error


class ResultsFile:
    """A file that records are appended to, each on the disk before `append` returns; of one process at a time.

    Args:
        path: The file; it is made where it is missing.
        keep: Whether what is in it stays; a last line that was not written to its end is dropped.

    Raises:
        SaveError: It cannot be written.
        UsageError: Another process writes it.
    """

    def __init__(self, path: Path, *, keep: bool) -> None:
        self._path = path
        self._stream = self._open()
        if not keep:
            self._stream.truncate(0)
        self._stream.seek(self._end_of_lines())  # what comes after it goes with the first record that is appended

    def _open(self) -> FileIO:
        try:
            stream = self._path.open("r+b" if self._path.exists() else "x+b", buffering=0)
        except OSError as error:
            raise SaveError(f"{self._path}: cannot be written ({reason_of(error)}); choose another path") from error
        try:
            self._lock(stream)
        except OSError as error:
            stream.close()
            if isinstance(error, BlockingIOError):
                raise UsageError(
                    f"{self._path}: another suite is writing it; wait for it, or choose another path"
                ) from error
            raise SaveError(f"{self._path}: cannot be locked ({reason_of(error)}); choose another path") from error
        return stream

    def _lock(self, stream: FileIO) -> None:
        import fcntl  # Windows has none; suites run where processes fork

        end = time.monotonic() + _PATIENCE
        while True:
            try:
                return fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.01)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it; what was appended is on the disk."""
        self._stream.close()

    def keep(self, wanted: Mapping[str, str]) -> tuple[dict[str, Status], int]:
        """Drop records of instances that are not as they were.

        Args:
            wanted: Fingerprints of the instances that are to run, by id; records of others stay.

        Returns:
            The outcomes of those that are done, by id, and how many records were dropped.

        Raises:
            RanumFalsifyError: The file cannot be read, or not be written.
        """
        done: dict[str, Status] = {}
        stale = 0
        for record in read_records(self._path):
            name = record.instance.id
            if wanted.get(name, record.fingerprint) != record.fingerprint or name in done:
                stale += 1
            elif name in wanted:
                done[name] = record.status
        if stale:
            kept = (r for r in read_records(self._path) if wanted.get(r.instance.id, r.fingerprint) == r.fingerprint)
            unique = {r.instance.id: r.line().encode() for r in kept}
            save_together({self._path: b"".join(unique.values())})
            # It is another file now; the old one stays locked until this one is.
            with self._stream:
                self._stream = self._open()
            self._stream.seek(0, os.SEEK_END)
        return done, stale

    def append(self, record: InstanceRecord) -> None:
        """Write a record to the disk."""
        before = self._stream.tell()
        try:
            self._stream.truncate(before)
            left = memoryview(record.line().encode())
            while left:
                left = left[self._stream.write(left) :]
            os.fsync(self._stream.fileno())
        except OSError as error:
            self._undo(before)
            raise SaveError(f"{self._path}: cannot be written ({reason_of(error)}); free some space") from error

    def _undo(self, size: int) -> None:
        """Take back what was written of a line; the file is of no use to this process any more."""
        os.ftruncate(self._stream.fileno(), size)

    def _end_of_lines(self) -> int:
        """Return where the last whole line ends."""
        with self._path.open("rb") as stream:
            return sum(len(line) for line in stream if line.endswith(b"\n"))


def write_table(source: Path, target: Path) -> None:
    """Write the table of results.

    Args:
        source: Their records.
        target: The table: category, model, property, preparation time, verdict, seconds.

    Raises:
        RanumFalsifyError: The records cannot be read, or the table not be written.
    """
    save_together({target: _as_csv(read_records(source)).encode()})


def _as_csv(records: Iterable[InstanceRecord]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    for record in sorted(_row(record) for record in records):
        table.writerow(record)
    return text.getvalue()


def _row(record: InstanceRecord) -> tuple[str, ...]:
    one = record.instance
    return (one.category, one.model, one.property, f"{record.preparation:.3f}", record.status, f"{record.seconds:.3f}")
