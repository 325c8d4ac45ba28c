"""The end of the process: by signals, after cleaning up; and when its command is done."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ranum_falsify.cli.streams import settle

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


def end_process(status: int) -> None:
    """End this process as `sys.exit` does, without taking its modules apart, which takes PyTorch long.

    What is registered to run at the end runs. Does nothing where more than this is wanted: while another thread works,
    in an interactive session, or for whoever measures the process from inside it.
    """
    threads = [thread for thread in threading.enumerate() if not thread.daemon]
    monitored = hasattr(sys, "monitoring") and any(map(sys.monitoring.get_tool, range(6)))
    watched = sys.getprofile() is not None or sys.gettrace() is not None or monitored
    if sys.flags.interactive or sys.flags.inspect or watched or threads != [threading.main_thread()]:
        return
    atexit._run_exitfuncs()
    settle()
    os._exit(status)
