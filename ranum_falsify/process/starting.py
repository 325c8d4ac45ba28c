"""What belongs to the whole process: the garbage collector, and turns of threads at loggers, warnings and output."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def pause_collector() -> Iterator[None]:
    """Keep the garbage collector from looking, again and again, at all of a large structure that is being built.

    That is a third of the time that a long VNN-LIB query takes, a quarter of that of PyTorch's exporter, and a tenth of
    that of its import.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def pause_for_imports() -> Iterator[None]:
    """Pause the collector, and count as old what was made meanwhile: modules stay, and are not looked at again.

    Where the process has frozen objects of its own, they stay frozen, and what was made is young.
    """
    with pause_collector():
        yield
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()


@cache
def shorten_end() -> None:
    """Keep the collector from looking at all objects again when the interpreter ends: the exporter brings in a million.

    They are freed all the same, but for what refers to itself, which the end of the process frees.
    """
    atexit.register(_freeze)


def _freeze() -> None:
    # The bindings of Triton, which CUDA builds of PyTorch bring, print a page about objects that are left.
    if "triton" not in sys.modules:
        gc.freeze()


_locks: dict[int, threading.RLock] = {}
"""By process: one that is forked while another thread holds the lock has its own, which is free."""


def turn() -> threading.RLock:
    """Return the lock that a thread holds while it changes what belongs to all; it may take it again."""
    return _locks.setdefault(os.getpid(), threading.RLock())
