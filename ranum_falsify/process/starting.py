"""What keeps starts and ends short: libraries bring in, and leave behind, hundreds of thousands of objects."""

from __future__ import annotations

import atexit
import gc
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


@cache
def shorten_end() -> None:
    """Keep the collector from looking at all objects again when the interpreter ends: the exporter brings in a million.

    They are freed all the same, but for what refers to itself, which the end of the process frees.
    """
    atexit.register(gc.freeze)
