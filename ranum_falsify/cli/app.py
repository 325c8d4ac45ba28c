"""The entry point: which command runs, and how every way of failing ends.

Exit statuses: 0 holds, 1 violated, 2 usage or input error, 3 unknown.  Other ends are as shells report signals:
interruption outside the search is 130, SIGTERM 143, SIGHUP 129, and an output that was closed before there was a
verdict 141.
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import NoReturn

from ranum_falsify.cli.commands import ERROR_STATUS, PROGRAM, load_function
from ranum_falsify.cli.files import check_paths
from ranum_falsify.cli.front import find_command, make_parser, parse
from ranum_falsify.cli.output import complain, discard, open_streams, say_safely, settle
from ranum_falsify.errors import OUT_OF_MEMORY, RanumFalsifyError, is_out_of_memory
from ranum_falsify.escaping import escape
from ranum_falsify.process.starting import pause_for_imports

_INTERRUPTED, _CLOSED = 130, 141
_LONGEST = 1000  # characters of an error's line
_ENDABLE = ("check", "falsify")
"""Commands that may end the process where a library does not return in time."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; those of the process if None.

    Returns:
        The exit status.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = any(map(_asks_to_debug, arguments))
    open_streams()
    try:
        with end_by_signals(), say_safely():
            if not (debug or sys.warnoptions):
                # Libraries warn about their own future; a user can do nothing about it.
                warnings.simplefilter("ignore")
            status = _command(arguments, owns_process=argv is None)()
            sys.stdout.flush()
            return status
    except SystemExit as end:  # --help and --version
        return end.code if isinstance(end.code, int) else ERROR_STATUS
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        discard(sys.stdout)
        return _CLOSED
    except Exception as error:
        return _fail(error, debug, arguments)
    finally:
        settle()


def run() -> NoReturn:
    """Run the command of this process, and end it."""
    status = main()
    end_process(status)
    sys.exit(status)


def _asks_to_debug(word: str) -> bool:
    return len(word) > len("--") and "--debug".startswith(word)


def _command(arguments: list[str], *, owns_process: bool) -> Callable[[], int]:
    """Return the command that the arguments ask for, its module imported."""
    command = parse(arguments)
    check_paths(command.options)
    with pause_for_imports():
        import ranum_falsify.upstream  # noqa: F401 - raises where DNNV or DNNF is missing

        function = load_function(command.name)
    owned = {"owns_process": owns_process} if command.name in _ENDABLE else {}
    return partial(function, command.options, **owned)


def _fail(error: Exception, debug: bool, arguments: Sequence[str]) -> int:
    if debug:
        complain("".join(traceback.format_exception(error)).rstrip().split("\n"))
    complain([f"{PROGRAM}: {_one_line(_explain(error, arguments))}"])
    return ERROR_STATUS


_SHORTAGES = {
    "--jobs": "out of memory; use fewer workers (--jobs)",
    "--n_starts": OUT_OF_MEMORY,
    "--samples": "out of memory; compare on fewer inputs (--samples)",
}
"""What helps where memory ends, by an option that a command has."""
_SHORTAGE = "out of memory; use a machine with more memory"


def _explain(error: Exception, arguments: Sequence[str]) -> str:
    if isinstance(error, RanumFalsifyError):
        return str(error)
    if is_out_of_memory(error):
        flags = make_parser(find_command(arguments)[0]).flags
        return next((text for flag, text in _SHORTAGES.items() if flag in flags), _SHORTAGE)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = error.filename or "the output"
        return f"{where}: no space left; free some space, or write elsewhere"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror.lower()}; check the path and its permissions"
    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"internal error ({detail}); please report it; --debug shows the traceback"


def _one_line(text: str) -> str:
    line = escape(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


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
