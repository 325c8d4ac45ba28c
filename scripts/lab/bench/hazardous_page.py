"""The part of `repairs.md` on small hazardous models, written from what `bench_repairs.py --hazardous` measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

__all__ = ["section"]

_KEPT = 1e-5
_MATERIAL = 1e-3
_HEAD = """
## {count} small hazardous models

`scripts/bench_repairs.py --hazardous` repairs models of a few operators, in {kinds} kinds, and runs the best repair of
each on 240 inputs from all over its box: its ends, whole, equal and zero numbers, and numbers of every order of
magnitude that the type has. Errors are those against the formula in real numbers, which is written down for each model
a second time, and evaluated with 120 digits. They are relative to what is meant, or to 1/1000 of the greatest number of
the output.

| kind | models | repaired and proved | valid outputs within 1e-5 | valid outputs within 1e-3 | best without a loss |
|---|---|---|---|---|---|
{rows}

- **Valid outputs** are those that are within 1 % of what is meant in the original, with and without denormal numbers.
  In the repaired model they are within 1e-5 (16 units of float16) of it, or within twice the greatest error of the
  original's valid outputs on that input.
- **Best without a loss**: `fix` states no loss, and ends with 0. A repair that changes valid outputs by more than 1e-3
  is never that: of {lossy} such repairs, {stated} say so and end with 4.

| model | best repair | largest error of valid outputs | where the original is not finite | loss stated |
|---|---|---|---|---|
{table}
"""


def section(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the part of the page; empty where nothing is measured."""
    if not records:
        return ""
    kinds = [(kind, list(group)) for kind, group in groupby(records, key=lambda record: record["kind"])]
    lossy = [record for record in records if record.get("lost", 0.0) > _MATERIAL]
    return _HEAD.format(
        count=len(records),
        kinds=len(kinds),
        rows="\n".join(_row(kind, group) for kind, group in [*kinds, ("all", list(records))]),
        table="\n".join(_table(records)),
        lossy=len(lossy),
        stated=sum(bool(record["stated_loss"]) for record in lossy),
    )


def _row(kind: str, records: Sequence[Mapping[str, Any]]) -> str:
    done = [record for record in records if _is_proved(record)]
    counts = (
        len(records),
        len(done),
        sum(record["lost"] <= _KEPT for record in done),
        sum(record["lost"] <= _MATERIAL for record in done),
        sum(not record["stated_loss"] for record in done),
    )
    return f"| {kind} | {' | '.join(map(str, counts))} |"


def _is_proved(record: Mapping[str, Any]) -> bool:
    return record.get("standing") == "proved" and not record["infinite"]


def _table(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for record in records:
        if "changes" not in record:
            yield f"| {record['id']} | none | | | |"
            continue
        changes = "; ".join(record["changes"]) + ("" if _is_proved(record) else f" ({record['standing']})")
        numbers = [f"{record[name]:.1g}" if record[name] else "-" for name in ("lost", "off", "stated_loss")]
        yield f"| {record['id']} | {changes} | {' | '.join(numbers)} |"
