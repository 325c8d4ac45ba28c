"""The check of the installed kernels, once for each machine and version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ranum_falsify.config import library_of, runtime_here
from ranum_falsify.domain.kernels import Record, use_here, use_measured
from ranum_falsify.domain.kernels.records import FOLDER, record_text
from ranum_falsify.errors import SaveError
from ranum_falsify.network.tensors import torch_threads
from ranum_falsify.saving import save_together
from ranum_falsify.selfcheck.family import family_here, processor_flags
from ranum_falsify.selfcheck.measured import LIBRARIES, list_unmeasured, read_kept, read_measured, release_of


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
    use_here([record for record in records if record.rows or record.saturation])
    return Outcome(
        records=records, known=known, notices=(*list_unmeasured(), *map(_describe_widened, filter(_is_left, records)))
    )


def _is_left(record: Record) -> bool:
    return bool(record.rows or record.saturation)


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
