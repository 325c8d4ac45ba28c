"""What keeps starts and ends short: libraries bring in, and leave behind, hundreds of thousands of objects."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["end_process", "pause_collector"]


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
    os._exit(status)
