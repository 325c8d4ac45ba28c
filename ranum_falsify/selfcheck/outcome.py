"""The check of the installed kernels, once for each machine and version, and the versions that were measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ranum_falsify.config import Runtime, library_of, runtime_here
from ranum_falsify.domain.kernels import Record, measured_versions, use_here, use_measured
from ranum_falsify.domain.kernels.records import FOLDER, read_record, record_text
from ranum_falsify.errors import SaveError, reason_of
from ranum_falsify.network.tensors import torch_threads
from ranum_falsify.saving import check_place, save_together
from ranum_falsify.selfcheck.family import family_here, processor, processor_flags
from ranum_falsify.selfcheck.subjects import ROW_SUBJECTS, SUBJECTS

LIBRARIES: Mapping[Runtime, str] = {"onnxruntime": "ONNX Runtime", "torch": "PyTorch"}
"""Libraries whose kernels are checked, by runtime."""

MINUTES = 2
"""Processor time of a measurement of one library, about."""


@cache
def release_of(runtime: Runtime) -> str:
    """Return the version of an installed runtime, without what names its build."""
    return version(runtime).split("+")[0]


def unmeasured() -> tuple[Runtime, ...]:
    """Return the runtimes whose installed version was not measured on the family of this processor."""
    return tuple(r for r in LIBRARIES if release_of(r) not in _measured_here(r).get(family_here(r), ()))


def list_unmeasured() -> tuple[str, ...]:
    """Return a sentence for each library whose version was not measured on this family, with what to do about it."""
    missing = unmeasured()
    measure = f"`ranum-falsify doctor --measure` ({MINUTES * len(missing)} minutes)"
    return tuple(_describe(runtime, measure) for runtime in missing)


def _measured_here(runtime: Runtime) -> Mapping[str, tuple[str, ...]]:
    return measured_versions(runtime_here(runtime))


def _describe(runtime: Runtime, measure: str) -> str:
    here, of = family_here(runtime), _measured_here(runtime)
    start = f"{LIBRARIES[runtime]} {release_of(runtime)} was not measured on processors of the family {here}"
    if here not in of:
        return f"{start}, nor was any other version: its kernels are only sampled; run {measure}"
    return (
        f"{start}, only {', '.join(of[here])}: its kernels are only sampled; "
        f"install {runtime}=={of[here][-1]}, or run {measure}"
    )


def measure_here(runtime: Runtime, cache_folder: Path, settings: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    """Measure the installed kernels of a runtime on this machine, and keep the record, which counts from now on.

    Args:
        runtime: The runtime.
        cache_folder: Where to keep it.
        settings: Other influences on the choice of kernels, such as environment variables.

    Yields:
        The function that comes next, and the share of all that is done.

    Raises:
        SaveError: The record cannot be kept; nothing was measured.
    """
    # It takes a while to load, and most processes measure nothing.
    from ranum_falsify.selfcheck.measuring import EVERYTHING, Sweep, make_record, measure, measure_facts
    from ranum_falsify.selfcheck.running import session_in

    path = _path(cache_folder, runtime, settings)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_place(path)
    except OSError as error:
        raise SaveError(f"{path.parent}: no file can be kept there ({reason_of(error)}); set XDG_CACHE_HOME") from error
    sweep, found = Sweep(inner=61, every=997), []
    with torch_threads(1):
        for index, function in enumerate(EVERYTHING):
            yield function.key, index / len(EVERYTHING)
            found.append((function, measure(function, runtime_here(runtime), sweep)))
    versions = {release_of(runtime): f"natively, on {processor()}, by `doctor --measure`, {sweep}"}
    facts = measure_facts(session_in(runtime))
    record = make_record(runtime_here(runtime), family_here(runtime), versions, sweep, found, facts)
    save_together({path: record_text(record).encode()})


def read_measured(cache_folder: Path, settings: Mapping[str, str]) -> tuple[Record, ...]:
    """Return the records of the installed versions that were measured on this machine."""
    kept = (read_kept(_path(cache_folder, runtime, settings)) for runtime in LIBRARIES)
    return tuple(record for record in kept if record is not None)


def read_kept(path: Path) -> Record | None:
    """Return the record in a file; None if it is missing or broken."""
    try:
        return read_record(path)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _path(cache_folder: Path, runtime: Runtime, settings: Mapping[str, str]) -> Path:
    """Return the file of a measurement on this machine, named by all that decides what is measured."""
    functions = [subject.key for subject in (*SUBJECTS, *ROW_SUBJECTS)]
    of = [processor_flags(), release_of(runtime), family_here(runtime), dict(settings), functions]
    key = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder / "measured" / f"{runtime}-{key}.json"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a check.

    Attributes:
        records: Results outside the records of all families, one record for each library; from now on bounds cover
            them.
        known: Whether an earlier check found it.
        notices: What users should know, one sentence each; none if everything is as measured.
    """

    records: tuple[Record, ...]
    known: bool
    notices: tuple[str, ...]


def self_check(cache_folder: Path | None, settings: Mapping[str, str] | None = None) -> Outcome:
    """Compare the installed kernels with the records, and widen this process's bounds where results lie outside.

    Records of the installed versions that were measured on this machine count like those that come with this program.

    Args:
        cache_folder: Where to keep the outcome, so that the next process need not check again; None for nowhere.
        settings: Other influences on the choice of kernels, such as environment variables.
    """
    settings = settings or {}
    measured = () if cache_folder is None else read_measured(cache_folder, settings)
    use_measured(measured)
    folder = None if cache_folder is None else cache_folder / "kernels" / _key(settings, measured)
    records = None if folder is None else _read_earlier(folder)
    known = records is not None
    if records is None:
        # Loading ONNX Runtime takes a while, and most processes do not need it.
        from ranum_falsify.selfcheck.check import check

        with torch_threads(1):
            records = tuple(check(runtime_here(runtime), release_of(runtime)) for runtime in LIBRARIES)
        if folder is not None:
            _keep(folder, records)
    widened = [record for record in records if record.rows or record.saturation]
    use_here(widened)
    return Outcome(records=records, known=known, notices=(*list_unmeasured(), *map(_describe_widened, widened)))


def _describe_widened(record: Record) -> str:
    functions = ", ".join(sorted({*record.rows, *record.saturation}))
    name = LIBRARIES[library_of(record.runtime)]
    return f"{name} strays further here than was measured, so bounds are wider: {functions}"


def _key(settings: Mapping[str, str], measured: Sequence[Record]) -> str:
    """Return a key of everything that decides the outcome: processor, libraries, settings, records."""
    digest = hashlib.sha256()
    versions = {runtime: release_of(runtime) for runtime in LIBRARIES}
    chosen = {runtime: family_here(runtime) for runtime in LIBRARIES}
    digest.update(json.dumps([processor_flags(), versions, chosen, dict(settings)], sort_keys=True).encode())
    for path in sorted(FOLDER.glob("*.json")):
        digest.update(path.read_bytes())
    for record in measured:
        digest.update(record_text(record).encode())
    return digest.hexdigest()[:16]


def _read_earlier(folder: Path) -> tuple[Record, ...] | None:
    """Return what an earlier check found; None if it is missing or broken."""
    records = [read_kept(folder / f"{runtime}.json") for runtime in LIBRARIES]
    return None if None in records else tuple(record for record in records if record is not None)


def _keep(folder: Path, records: tuple[Record, ...]) -> None:
    """Keep the outcome; a folder that cannot be written is no failure, because the next process can check again."""
    with suppress(OSError, SaveError):
        folder.mkdir(parents=True, exist_ok=True)
        save_together(
            {folder / f"{library_of(record.runtime)}.json": record_text(record).encode() for record in records}
        )
