"""The script that runs in the child process of `ranum_falsify.network.child`: it answers requests with a worker.

Run as a script with the path of a worker and that of a temporary folder, this module serves requests until its standard
input ends: then, even in the middle of an answer, the folder is deleted and the process ends. A message, in either
direction, is eight bytes of length (big endian) and a pickle of that length. The request is
``(command, argument)``; the answer is ``("ok", result)`` or ``("error", text)``. The worker is a stand-alone script,
or the folder of a package that imports relatively, with a function `service`, which returns the function that answers
a command and its argument.

Run with the path of a worker alone, it imports the worker and forks such a child for each request that comes by the
socket at standard input, as `ranum_falsify.network.nursery` describes, until that ends.

Neither imports this package, which would take seconds.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any, BinaryIO, NoReturn

__all__ = ["serve"]

Service = Callable[[str, Any], Any]


def serve(service: Service, requests: SimpleQueue[bytes], answers: BinaryIO) -> NoReturn:
    """Answer requests; an exception becomes an ``error`` answer."""
    while True:
        command, argument = pickle.loads(requests.get())
        try:
            answer = ("ok", service(command, argument))
        except Exception as error:
            answer = ("error", str(error) or type(error).__name__)
        data = pickle.dumps(answer, protocol=5)
        answers.write(struct.pack(">Q", len(data)))
        answers.write(data)
        answers.flush()


def _take_in(stream: BinaryIO, requests: SimpleQueue[bytes], folder: str) -> None:
    """Read requests until the stream ends, because the parent died or closed it."""
    while len(head := stream.read(8)) == 8:
        requests.put(stream.read(struct.unpack(">Q", head)[0]))
    _end(folder)


def _end(folder: str) -> NoReturn:
    """Delete the folder, into which another thread may still write, and end the process."""
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            break
        time.sleep(0.01)
    os._exit(1)


def _import(path: Path) -> ModuleType:
    """Import a worker by its path."""
    file, folders = (path / "__init__.py", [str(path)]) if path.is_dir() else (path, None)
    spec = importlib.util.spec_from_file_location(path.stem, file, submodule_search_locations=folders)
    assert spec is not None and spec.loader is not None
    worker = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = worker  # its dataclasses and relative imports look it up here
    spec.loader.exec_module(worker)
    return worker


def _breed(path: Path) -> None:
    """Import a worker, and fork children until the socket at standard input ends."""
    worker, control = _import(path), socket.socket(fileno=sys.stdin.fileno())
    # From 3.12 on, Python warns of forks beside threads; those of NumPy are made for it.
    warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
    while message := (received := socket.recv_fds(control, 2**16, 2))[0]:
        command, argument = pickle.loads(message)
        answer: int | None
        if command == "fork":
            answer = os.fork()
            if answer == 0:
                control.detach()  # the number of its file is one of the child's from here on
                _be_born(worker, *argument, *received[1])
            for file in received[1]:
                os.close(file)
        else:
            answer = _status_of(argument, os.WNOHANG if command == "poll" else 0)
        control.send(pickle.dumps(answer))


def _status_of(child: int, options: int) -> int | None:
    """Wait for a child, and return its exit status; None if it runs, or was waited for before."""
    try:
        pid, status = os.waitpid(child, options)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if pid else None


def _be_born(worker: ModuleType, folder: str, home: str | None, requests: int, answers: int) -> NoReturn:
    """Serve in a process that was just forked, as one that was started would: in a group of its own, and at home."""
    os.setpgid(0, 0)
    for standard, file in enumerate((requests, answers)):
        os.dup2(file, standard)
        os.close(file)
    if home is not None:
        with suppress(OSError):  # it is gone since
            os.chdir(home)
    _serve_in(folder, lambda: worker)


def _serve_in(folder: str, find_worker: Callable[[], ModuleType]) -> NoReturn:
    """Answer the requests at standard input by a worker."""
    requests: SimpleQueue[bytes] = SimpleQueue()
    # A separate stream: a thread that waits for standard input would keep the interpreter from ending.
    stream = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    threading.Thread(target=_take_in, args=(stream, requests, folder), daemon=True).start()
    # Whatever a library prints must not end up between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        serve(find_worker().service(), requests, answers)
    finally:
        _end(folder)  # the worker could not start, or nobody reads its answers


def _main() -> None:
    # A signal that ends a service, or a session, may reach all its processes; the parent decides what it means.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    path, *folders = sys.argv[1:]
    if folders:
        _serve_in(folders[0], lambda: _import(Path(path)))
    _breed(Path(path))


if __name__ == "__main__":
    _main()
