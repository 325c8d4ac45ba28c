"""Files written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ranum_falsify.errors import SaveError, reason_of

Content = bytes | Callable[[BinaryIO], object]
"""The content of a file, or a function that writes it."""

_MOST_NAMES = 4


def save_together(files: Mapping[Path, Content]) -> None:
    """Write files, all under temporary names first, which are then renamed.

    No reader sees half of a file; if one cannot be written, none is.

    Raises:
        SaveError: One cannot be written; all files are as they were.
    """
    temporary: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            target = path.resolve()  # a symbolic link stays one
            temporary[target] = _name_beside(target)
            with temporary[target].open("xb") as stream:
                _write(content, stream)
        for target, partial in temporary.items():
            os.replace(partial, target)
    except OSError as error:
        older = "; what is there now is older" if any(path.exists() for path in files) else ""
        raise SaveError(
            f"{_join_names(files)}: cannot be written ({reason_of(error)}){older}; choose another path"
        ) from error
    finally:
        for partial in temporary.values():
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def make_folder(folder: str | Path) -> Path:
    """Return a folder for results, made where its parent exists.

    Raises:
        SaveError: It cannot be made.
    """
    place = Path(folder)
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise SaveError(f"{place}: cannot be created ({reason_of(error)}); choose another folder") from error
    return place


def cache_folder() -> Path | None:
    """Return the folder of this program in the user's cache, which need not exist; None where the user has no home."""
    import platformdirs

    try:
        return platformdirs.user_cache_path("ranum-falsify", appauthor=False)
    except RuntimeError:
        return None


def check_place(path: Path) -> None:
    """Check that a file can be created where another is to go.

    Raises:
        OSError: It cannot.
    """
    probe = _name_beside(path.resolve())
    try:
        with probe.open("xb"):
            pass
    finally:
        probe.unlink(missing_ok=True)


def _write(content: Content, stream: BinaryIO) -> None:
    if isinstance(content, bytes):
        stream.write(content)
    else:
        content(stream)


def _join_names(paths: Iterable[Path]) -> str:
    names = [str(path) for path in paths]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _name_beside(path: Path) -> Path:
    """Return an unused temporary name in the same folder, short enough where the name is long."""
    return path.with_name(f".{path.name[:100]}.{os.urandom(4).hex()}.tmp")
