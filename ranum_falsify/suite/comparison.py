"""Comparison of two results of the same instances: of our suites, of the competition's tools, or what is expected."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ranum_falsify.errors import UsageError
from ranum_falsify.suite.listing import read_rows
from ranum_falsify.suite.record import STATUSES, Instance, InstanceRecord, Status
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


_MOST = 20
"""Instances that are named of each kind."""


@dataclass(frozen=True)
class Evidence:
    """What a counterexample shows.

    Attributes:
        path: Its description.
        replays: Whether it shows a violation; None where that could not be tried.
        reason: Why it could not.
    """

    path: Path
    replays: bool | None
    reason: str = ""

    def __str__(self) -> str:
        if self.replays is None:
            return f"{self.path} cannot be replayed: {self.reason}"
        return f"{self.path} replays" if self.replays else f"{self.path} does not replay"


@dataclass(frozen=True)
class Pair:
    """The results of an instance."""

    key: Key
    first: ComparedResult
    second: ComparedResult

    @property
    def is_disagreement(self) -> bool:
        """Whether one says sat and the other unsat: one of them is wrong."""
        return {self.first.status, self.second.status} == {"sat", "unsat"}

    @property
    def claim(self) -> ComparedResult:
        """The result of a disagreement that says sat."""
        return self.first if self.first.status == "sat" else self.second


@dataclass(frozen=True, kw_only=True)
class ResultsComparison:
    """Two results.

    Attributes:
        names: What they are called.
        pairs: The instances that both have.
        alone: Of each, the instances that the other does not have.
        evidence: What the counterexamples of disagreements show, by instance.
    """

    names: tuple[str, str]
    pairs: Sequence[Pair]
    alone: tuple[Sequence[ComparedResult], Sequence[ComparedResult]]
    evidence: Mapping[Key, Evidence]

    @property
    def disagreements(self) -> list[Pair]:
        """Instances of which one says sat and the other unsat."""
        return [pair for pair in self.pairs if pair.is_disagreement]

    def entries(self, side: int) -> list[ComparedResult]:
        """Return the results of one side for the instances that both have."""
        return [pair.first if side == 0 else pair.second for pair in self.pairs]

    def times(self, side: int) -> list[float]:
        """Return the seconds that one side took to decide instances that both have, the shortest first."""
        return sorted(e.seconds for e in self.entries(side) if e.is_decided and e.seconds == e.seconds)

    def only(self, side: int) -> list[Pair]:
        """Return the instances that one side decides and the other does not."""
        return [
            pair for pair in self.pairs if (pair.first.is_decided, pair.second.is_decided) == (side == 0, side == 1)
        ]

    def lines(self) -> Iterator[str]:
        """Yield the comparison for people, disagreements first."""
        yield from self._describe_disagreements()
        first, second = self.names
        alone = [len(entries) for entries in self.alone]
        yield f"{len(self.pairs)} instances in both; {alone[0]} only in {first}, {alone[1]} only in {second}"
        yield from self._table()
        for side, name in enumerate(self.names):
            only = self.only(side)
            if only:
                yield f"decided by {name} alone: {len(only)}"
                yield from _name(f"{_join(p.key)}: {(p.first, p.second)[side].status}" for p in only)
        yield from self._describe_ratio()

    def _describe_disagreements(self) -> Iterator[str]:
        found = self.disagreements
        yield f"disagreements: {len(found)}" + ("; in each, one of the two is wrong" if found else "")
        for pair in found:
            yield f"  {_join(pair.key)}: " + ", ".join(
                f"{entry.status} in {name}{self._judge(pair, entry)}"
                for name, entry in zip(self.names, (pair.first, pair.second), strict=True)
            )

    def _judge(self, pair: Pair, entry: ComparedResult) -> str:
        shown = self.evidence.get(pair.key)
        if entry.status == "sat":
            return f" ({shown or 'no counterexample at hand'})"
        return ", which is wrong" if shown is not None and shown.replays else ""

    def _table(self) -> Iterator[str]:
        width = max(map(len, self.names))
        titles = [*STATUSES, "decided", "median s", "total s"]
        yield " ".join([" " * width, *(f"{title:>8}" for title in titles)])
        for side, name in enumerate(self.names):
            counts, times = Counter(entry.status for entry in self.entries(side)), self.times(side)
            cells = [*(counts[status] for status in STATUSES), counts["sat"] + counts["unsat"]]
            seconds = [f"{statistics.median(times):.2f}", f"{sum(times):.0f}"] if times else ["", ""]
            yield " ".join([f"{name:{width}}", *(f"{cell:>8}" for cell in [*cells, *seconds])])

    def _describe_ratio(self) -> Iterator[str]:
        both = [p for p in self.pairs if p.first.is_decided and p.second.is_decided]
        ratios = [p.second.seconds / p.first.seconds for p in both if p.first.seconds > 0 and p.second.seconds > 0]
        if ratios:
            first, second = self.names
            ratio = statistics.median(ratios)
            yield f"decided by both: {len(both)}; {second} takes {ratio:.2f} x as long as {first} (median)"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON."""
        return {
            "format": 1,
            "names": list(self.names),
            "instances": len(self.pairs),
            "disagreements": [
                _pair_object(pair) | {"evidence": _evidence_object(self.evidence.get(pair.key))}
                for pair in self.disagreements
            ],
            "decided_alone": [[_pair_object(pair) for pair in self.only(side)] for side in (0, 1)],
            "missing": [[list(entry.key) for entry in entries] for entries in reversed(self.alone)],
            "counts": [dict(Counter(entry.status for entry in self.entries(side))) for side in (0, 1)],
            "seconds": [self.times(side) for side in (0, 1)],
        }


def compare(
    first: Mapping[Key, ComparedResult],
    second: Mapping[Key, ComparedResult],
    names: tuple[str, str],
    replay: Callable[[Instance, str, Path], tuple[bool | None, str]],
) -> ResultsComparison:
    """Compare two results: instances are the same whose models and properties have the same names.

    Categories count only where both results have the same ones: tools call them differently.
    """
    if not first.keys() & second.keys():
        first, second = _forget_categories(first), _forget_categories(second)
    pairs = [Pair(key, entry, second[key]) for key, entry in first.items() if key in second]
    disputed = {pair.key: pair.claim for pair in pairs if pair.is_disagreement}
    return ResultsComparison(
        names=names,
        pairs=pairs,
        alone=(
            [entry for key, entry in first.items() if key not in second],
            [entry for key, entry in second.items() if key not in first],
        ),
        evidence={
            key: Evidence(claim.counterexample, *replay(claim.instance, claim.fingerprint, claim.counterexample))
            for key, claim in disputed.items()
            if claim.counterexample is not None and claim.instance is not None
        },
    )


def _forget_categories(entries: Mapping[Key, ComparedResult]) -> dict[Key, ComparedResult]:
    return {("", *key[1:]): entry for key, entry in entries.items()}


def _pair_object(pair: Pair) -> dict[str, Any]:
    return {"instance": list(pair.key), "statuses": [pair.first.status, pair.second.status]}


def _evidence_object(found: Evidence | None) -> dict[str, Any] | None:
    return None if found is None else {"path": str(found.path), "replays": found.replays, "reason": found.reason}


def _join(key: Key) -> str:
    return "/".join(part for part in key if part)


def _name(texts: Iterator[str]) -> Iterator[str]:
    listed = list(texts)
    yield from (f"  {text}" for text in listed[:_MOST])
    if len(listed) > _MOST:
        yield f"  and {len(listed) - _MOST} more"
