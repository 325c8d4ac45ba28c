"""Turns of threads at what changes the whole process: loggers, warnings, standard output, classes of PyTorch."""

from __future__ import annotations

import os
import threading

_locks: dict[int, threading.RLock] = {}
"""By process: one that is forked while another thread holds the lock has its own, which is free."""


def turn() -> threading.RLock:
    """Return the lock that a thread holds while it changes what belongs to all; it may take it again."""
    return _locks.setdefault(os.getpid(), threading.RLock())
