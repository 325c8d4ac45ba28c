"""Limits on reading a file: its bytes after decompression, and memory beyond what the file's size explains.

A file of a few kilobytes can ask for any amount of memory: compressed zeros, constants that an operator makes from a
shape, local functions that call each other.  So what is read is bounded before it is trusted.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path

import psutil

from ranum_falsify.file_content import is_compressed

_MEMORY = 500 * 10**6  # bytes; proofs take twice as much for constants

TOO_MUCH_MEMORY = "needs more memory than reading may take; make its tensors smaller, or allow more with --memory GB"
"""How an error message about something that does not fit ends."""

_FACTOR = 8  # copies of a model while it is read: as bytes, as messages, as arrays, folded
_PORTION = 2**20  # bytes

_is_limited: ContextVar[bool] = ContextVar("_is_limited", default=False)


class OversizeError(Exception):
    """A file holds more than may be read."""


def content_of(path: Path, *, most: int, grow: bool = False) -> bytes:
    """Return what a file holds, decompressed if gzip compressed it.

    Args:
        path: The file.
        most: The number of bytes that it may hold.
        grow: Raise the limit of memory by what it holds, as it is read: it may hold more than the limit.

    Raises:
        OversizeError: It holds more; reading stopped shortly after that number.
        OSError: It cannot be read.
        EOFError: It ends too early.
        zlib.error: It is not a gzip file after all.
    """
    if not is_compressed(path):
        if path.stat().st_size > most:
            raise OversizeError(f"holds more than {most:,} bytes")
        allow_for(path.stat().st_size if grow else 0)
        return path.read_bytes()
    data = bytearray()
    with gzip.open(path) as stream:
        while portion := stream.read(_PORTION):
            allow_for(len(portion) if grow else 0)
            data += portion
            if len(data) > most:
                raise OversizeError(f"decompresses to more than {most:,} bytes")
    return bytes(data)


def limits_memory() -> bool:
    """Tell whether this system enforces what `memory_limit` says."""
    return _data_bytes() is not None


@contextmanager
def memory_limit(memory: int | None = None) -> Iterator[None]:
    """Limit the additional memory that the block may take, where the system can enforce that; else do nothing.

    Code that asks for more gets a `MemoryError`, or whatever error a library raises instead.

    Args:
        memory: Bytes beyond what the process has, and beyond what `allow_for` adds; None for 0.5 GB.
    """
    used = _data_bytes()
    if used is None:
        yield
        return
    import resource  # Windows has none

    _make_threads()
    before = resource.getrlimit(resource.RLIMIT_DATA)
    _set_limit(used + (_MEMORY if memory is None else memory), before[1])
    token = _is_limited.set(True)
    try:
        yield
    finally:
        _is_limited.reset(token)
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _make_threads() -> None:
    """Let PyTorch make its threads: where there is no memory for one, its library ends the process, with status 1."""
    import torch  # takes long, and some that import this module limit nothing

    torch.ones(2**17).exp()


def allow_for(size: int) -> None:
    """Raise the limit of memory by what reading `size` bytes of files takes."""
    if _is_limited.get():
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        # A process that takes more than there is gets killed by the system, without a word.
        _set_limit(soft + min(_FACTOR * size, psutil.virtual_memory().available), hard)


def _set_limit(soft: int, hard: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _data_bytes() -> int | None:
    """Return how much memory counts towards the limit; None if the system does not say or keeps no such limit."""
    if find_spec("resource") is None:
        return None
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    found = [line for line in status.splitlines() if line.startswith("VmData:")]
    return int(found[0].split()[1]) * 1024 if found else None
