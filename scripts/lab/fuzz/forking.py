"""The command in a fork of a process that has imported everything: 20 ms, where a new interpreter takes two seconds.

Forking is safe here, because that process never has a second thread: torch is imported and told to use one thread, but
computes nothing; ONNX Runtime runs only in processes that the command starts.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import resource
import select
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ran", "import_all", "run_forked"]

_ADDRESSES = 64 * 2**30  # bytes, so that a fault cannot take the machine down


@dataclass(frozen=True)
class Ran:
    """How a run of the command ended.

    Attributes:
        status: Its exit status, or minus the number of the signal that ended it; None if it was ended because it hung.
        errors: What it wrote to standard error.
        seconds: How long it took.
        peak: The most memory that it held, or a child of it, in bytes.
    """

    status: int | None
    errors: str
    seconds: float
    peak: int


def import_all() -> None:
    """Import everything that the command imports, once."""
    import torch

    import ranum_falsify.api.run
    import ranum_falsify.cli.confirm
    import ranum_falsify.cli.falsify
    import ranum_falsify.cli.replay
    import ranum_falsify.decide
    import ranum_falsify.network.precision
    import ranum_falsify.operators
    import ranum_falsify.properties.problem.reduce
    import ranum_falsify.selfcheck  # noqa: F401

    torch.set_num_threads(1)
    _warm_up()
    gc.collect()
    gc.freeze()  # a collection would touch, and so copy, all pages


def _warm_up() -> None:
    """Run the command once, for the modules that it imports late and for values that they compute once."""
    from ranum_falsify.cli import main

    networks = Path(__file__).resolve().parents[3] / "networks"
    properties = networks.parent / "properties"
    arguments = [str(properties / "no_invalid_input_box.py"), "-N", "N", str(networks / "l2_normalise.onnx")]
    with contextlib.redirect_stdout(io.StringIO()):
        status = main([*arguments, "--list-operators"])
    assert status == 0, "the command works"
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join()


def run_forked(arguments: list[str], folder: Path, *, limit: float) -> Ran:
    """Run the command in a fork of this process.

    Args:
        arguments: Its arguments.
        folder: Its working directory.
        limit: Seconds after which it is ended.
    """
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would inherit the locks of other threads"
    with tempfile.TemporaryFile() as errors:
        sys.stdout.flush()
        sys.stderr.flush()
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _run(arguments, folder, errors.fileno())
        handle = os.pidfd_open(child)
        ended = bool(select.select([handle], [], [], limit)[0])
        os.close(handle)
        if not ended:
            os.kill(child, signal.SIGKILL)
        _, code, usage = os.wait4(child, 0)
        seconds = time.monotonic() - began
        try:
            os.killpg(child, signal.SIGKILL)  # processes that it left behind
        except ProcessLookupError:
            pass
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(code) if ended else None
    return Ran(status, text, seconds, usage.ru_maxrss * 1024)


def _run(arguments: list[str], folder: Path, errors: int) -> None:
    status = 70
    try:
        atexit._clear()  # which is for the parent to do when it ends
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setpgid(0, 0)
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(errors, 2)
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
        from ranum_falsify.cli import main

        # As the program itself does, which ends its process if a library does not return in time.
        sys.argv[1:] = arguments
        status = main()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)
