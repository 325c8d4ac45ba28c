"""Memory that is free in the C library's heap, and goes back to the system before it becomes too much."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress

import psutil

_LOOK = 32 << 20
"""Bytes of tensors that are made from one look at the memory to the next."""

_ROOM = 256 << 20
"""Bytes by which memory may grow before what is free of it goes back: fresh pages take time, too."""


class _Heap:
    """Gives back what is free between tensors that stay, where the C library can do that (glibc).

    It keeps such memory, which is in pieces that are too small for large tensors: a process comes to hold several times
    what its tensors take.
    """

    def __init__(self) -> None:
        self._made, self._held = 0, 0
        self._trim: Callable[[int], object] | None = None
        with suppress(AttributeError, OSError, TypeError):  # the last is that of Windows
            self._trim = ctypes.CDLL(None).malloc_trim

    def note(self, made: int) -> None:
        """Take note of tensors that were made, in bytes."""
        self._made += made
        if self._made < _LOOK or self._trim is None:
            return
        self._made, held = 0, psutil.Process().memory_info().rss
        if held > self._held + _ROOM:
            self._trim(0)
            self._held = psutil.Process().memory_info().rss
        else:
            self._held = min(self._held, held)


heap = _Heap()
