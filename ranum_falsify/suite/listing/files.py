"""Files that suites are read from, and the paths in them."""

from __future__ import annotations

import csv
import gzip
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from ranum_falsify.content import is_compressed
from ranum_falsify.errors import UsageError, reason_of

__all__ = ["find_present", "make_unique", "read_rows", "read_text"]

_LARGEST = 64 * 2**20  # bytes
_WANTED = "an instances.csv or a suite.toml"


def read_text(path: Path, wanted: str = _WANTED) -> str:
    """Return the text of a file, decompressed if gzip compressed it, without a byte order mark.

    Args:
        path: The file.
        wanted: What messages say to give instead.

    Raises:
        UsageError: It cannot be read, is no text, or too large for a list.
    """
    try:
        with gzip.open(path) if is_compressed(path) else path.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise UsageError(f"{path}: is larger than any list; give {wanted}")
        return data.decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is no text, or truncated; give {wanted}") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({reason_of(error)}); give {wanted}") from error


def read_rows(path: Path, wanted: str = _WANTED) -> list[list[str]]:
    """Return the rows of a table without those that are empty, their cells without spaces around them.

    Args:
        path: The table.
        wanted: What messages say to give instead.

    Raises:
        UsageError: It cannot be read.
    """
    try:
        rows = csv.reader(read_text(path, wanted).splitlines(), skipinitialspace=True, strict=True)
        return [[cell.strip() for cell in row] for row in rows if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise UsageError(f"{path}: is no table of values separated by commas ({error}); correct it") from error


def find_present(folder: Path, name: str) -> str:
    """Return the path of a file that a list names, or of the same compressed by gzip where that is what is there."""
    path = Path(os.path.normpath(folder / name))
    compressed = path.with_name(f"{path.name}.gz")
    return str(compressed if not path.exists() and compressed.exists() else path)


def make_unique(names: Iterable[str]) -> list[str]:
    """Return names of which repeated ones have a number."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return found
