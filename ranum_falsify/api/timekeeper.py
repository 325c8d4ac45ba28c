"""`--timeout` where nothing looks at the clock: an alarm, and a second one for libraries that do not return in time."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_PATIENCE = 1.0  # seconds for what a library began
_AGAIN = (
    0.5  # seconds until the next ring: Python drops what is raised in a `__del__` or a callback of a weak reference
)
_SOON = 0.02  # seconds until the next ring, where one would leave half of a module in `sys.modules`
_LEAST = 1e-6  # seconds; 0 would switch an alarm off
_LONGEST = 1e8  # seconds; where `time_t` has 32 bits, 2e9 are too many


class TimeUp(KeyboardInterrupt):
    """The timeout has passed; like Ctrl-C, it ends whatever is running."""


class Exit:
    """The way out of a process that is busy inside of a library, where no alarm is heard.

    Args:
        leave: Ends the process; called in a thread of its own.
        seconds: Time from now on before which it is not called, whatever share of it a block may take; None for none.
    """

    def __init__(self, leave: Callable[[], None], seconds: float | None = None) -> None:
        self.leave = leave
        self._end = -math.inf if seconds is None else time.monotonic() + seconds

    def until(self, seconds: float) -> float:
        """Return in how many seconds to leave a block that may take as many as given."""
        return max(seconds, self._end - time.monotonic()) + _PATIENCE


@contextmanager
def time_limit(seconds: float | None, exit: Exit | None = None) -> Iterator[None]:
    """Raise `TimeUp` in the block once its time is up; does nothing outside the main thread, which alone gets signals.

    Where the system has no alarm, as Windows, `exit` alone ends what takes too long.

    Args:
        seconds: Time for the block, None for no limit; longer than the system can wait is none either.
        exit: Taken where the block goes on for another second.
    """
    if seconds is None or seconds > _LONGEST or threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = None if exit is None else threading.Timer(exit.until(seconds), exit.leave)
    if watch is not None:
        watch.daemon = True
        watch.start()
    try:
        with _alarm(seconds):
            yield
    finally:
        if watch is not None:
            watch.cancel()


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    if not hasattr(signal, "setitimer"):
        yield
        return
    outer, began = signal.getitimer(signal.ITIMER_REAL)[0], time.monotonic()
    before = signal.signal(signal.SIGALRM, _ring)
    _set(min(seconds, outer or seconds))
    try:
        with _ringing_again():
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer:  # that of a block around this one goes on
            _set(outer - (time.monotonic() - began))


@contextmanager
def _ringing_again() -> Iterator[None]:
    """Let an alarm ring again that Python drops, as it does in a `__del__` and in callbacks of weak references."""
    hook = sys.unraisablehook

    def ring_again(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is TimeUp:
            _set(_AGAIN)
        else:
            hook(dropped)

    sys.unraisablehook = ring_again
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _set(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, max(seconds, _LEAST))


def _ring(number: int, frame: FrameType | None) -> None:
    if _is_importing(frame):
        _set(_SOON)  # `_PATIENCE` bounds how often
    else:
        raise TimeUp


def _is_importing(frame: FrameType | None) -> bool:
    """Tell whether a module is being imported: what imports it again would find what is there of it, and no more."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
