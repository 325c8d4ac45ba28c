"""What files hold: their hashes, whether they are compressed, whether others belong to them.

This imports nothing that takes long, for commands that hand out work and do none.
"""

from __future__ import annotations

import gzip
import hashlib
import mmap
import zlib
from pathlib import Path

__all__ = ["is_compressed", "largest_content", "may_have_external_data", "sha256"]

_MAGIC = b"\x1f\x8b"
_KEY = b"location"
"""A reference to external data holds it."""
_PORTION = 2**20  # bytes
_SMALL, _RATIO = 64 * 2**20, 16


def sha256(path: Path) -> str:
    """Return the SHA-256 hash of a file's bytes as they are, compressed or not, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_compressed(path: Path) -> bool:
    """Tell whether a file is compressed by gzip, whatever its name is.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as stream:
        return stream.read(2) == _MAGIC


def largest_content(path: Path) -> int:
    """Return how many bytes a compressed model may hold: so many, or so many times its size."""
    return max(_SMALL, _RATIO * path.stat().st_size)


def may_have_external_data(path: Path) -> bool:
    """Tell whether a model may refer to files with external data; large ones are not taken into memory.

    Raises:
        OSError: It cannot be read.
    """
    if is_compressed(path):
        return _may_refer_compressed(path)
    if not path.stat().st_size:
        return False
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_KEY) >= 0


def _may_refer_compressed(path: Path) -> bool:
    """Look at what a file decompresses to, as far as it is a model's."""
    left, tail = largest_content(path), b""
    try:
        with gzip.open(path) as stream:
            while left > 0 and (portion := stream.read(_PORTION)):
                if _KEY in tail + portion:
                    return True
                left, tail = left - len(portion), portion[-len(_KEY) :]
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return False
    return False
