"""`results.csv`: a row for each instance, in VNN-COMP's columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from ranum_falsify.saving import save_together
from ranum_falsify.suite.record import InstanceRecord
from ranum_falsify.suite.results import read_records

__all__ = ["write_table"]


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
