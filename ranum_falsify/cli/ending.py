"""Signals that end the process, after cleaning up."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["end_by_signals"]

_NAMES = ("SIGTERM", "SIGHUP")
_ONCE = 1.0  # seconds within which signals count as one: `timeout` sends two


@contextmanager
def end_by_signals() -> Iterator[None]:
    """While the context is open, a signal to end raises `SystemExit`, so that everything is cleaned up.

    The exit status is the one that shells report for the signal. A signal that the caller ignores, as `nohup` does, or
    that has a handler, is left alone.
    """
    last = -_ONCE

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if time.monotonic() - last >= _ONCE:
            last = time.monotonic()
            raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    mine = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)
