"""The check of the installed kernels, once for each machine and version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ranum_falsify.domain.kernels import Record, families, use_here
from ranum_falsify.domain.kernels.records import FOLDER, read_record, record_text
from ranum_falsify.errors import SaveError
from ranum_falsify.network.tensors import torch_threads
from ranum_falsify.saving import save_together
from ranum_falsify.selfcheck.family import HERE, family_here, processor_flags

__all__ = ["LIBRARIES", "Outcome", "list_unmeasured", "release_of", "self_check"]

LIBRARIES: Mapping[str, str] = {"onnxruntime": "ONNX Runtime", "torch": "PyTorch"}
"""Libraries whose kernels are checked, by runtime."""


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

    Args:
        cache_folder: Where to keep the outcome, so that the next process need not check again; None for nowhere.
        settings: Other influences on the choice of kernels, such as environment variables.
    """
    folder = None if cache_folder is None else cache_folder / "kernels" / _key(settings or {})
    records = None if folder is None else _read_earlier(folder)
    known = records is not None
    if records is None:
        # Loading ONNX Runtime takes a while, and most processes do not need it.
        from ranum_falsify.selfcheck.check import check

        with torch_threads(1):
            records = tuple(check(runtime, release_of(runtime)) for runtime in LIBRARIES)
        if folder is not None:
            _keep(folder, records)
    use_here([record for record in records if record.rows or record.saturation])
    return Outcome(
        records=records, known=known, notices=(*list_unmeasured(), *map(_describe_widened, filter(_is_left, records)))
    )


def list_unmeasured() -> tuple[str, ...]:
    """Return a sentence for each library whose version or family on this processor has no record."""
    found = []
    for runtime, name in LIBRARIES.items():
        of = [record for record in families() if record.runtime == runtime and record.family != HERE]
        here, installed = family_here(runtime), release_of(runtime)
        if installed not in {record.version for record in of}:
            measured = ", ".join(sorted({record.version for record in of}))
            found.append(f"{name} {installed} was not measured, only {measured}: its kernels are only sampled")
        if here not in {record.family for record in of}:
            found.append(f"{name} was not measured on processors of the family {here}: its kernels are only sampled")
    return tuple(found)


def _is_left(record: Record) -> bool:
    return bool(record.rows or record.saturation)


def _describe_widened(record: Record) -> str:
    functions = ", ".join(sorted({*record.rows, *record.saturation}))
    return f"{LIBRARIES[record.runtime]} strays further here than was measured, so bounds are wider: {functions}"


@cache
def release_of(runtime: str) -> str:
    """Return the version of an installed runtime, without what names its build."""
    return version(runtime).split("+")[0]


def _key(settings: Mapping[str, str]) -> str:
    """Return a key of everything that decides the outcome: processor, libraries, settings, records."""
    digest = hashlib.sha256()
    versions = {runtime: release_of(runtime) for runtime in LIBRARIES}
    chosen = {runtime: family_here(runtime) for runtime in LIBRARIES}
    digest.update(json.dumps([processor_flags(), versions, chosen, dict(settings)], sort_keys=True).encode())
    for path in sorted(FOLDER.glob("*.json")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _read_earlier(folder: Path) -> tuple[Record, ...] | None:
    """Return what an earlier check found; None if it is missing or broken."""
    try:
        return tuple(read_record(folder / f"{runtime}.json") for runtime in LIBRARIES)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _keep(folder: Path, records: tuple[Record, ...]) -> None:
    """Keep the outcome; a folder that cannot be written is no failure, because the next process can check again."""
    with suppress(OSError, SaveError):
        folder.mkdir(parents=True, exist_ok=True)
        save_together({folder / f"{record.runtime}.json": record_text(record).encode() for record in records})
