"""The script that runs in the child process of `ranum_falsify.process.child`: it answers requests with a worker.

Run as a script with the path of a worker and that of a temporary folder, this module serves requests until its standard
input ends: then, even in the middle of an answer, the folder is deleted and the process ends. A message, in either
direction, is eight bytes of length (big endian) and a pickle of that length. The request is
``(command, argument)``; the answer is ``("ok", result)`` or ``("error", text)``. The worker is a stand-alone script,
or the folder of a package that imports relatively, with a function `service`, which returns the function that answers
a command and its argument.

Neither imports this package, which would take seconds.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, NoReturn

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


def _service(path: Path) -> Service:
    """Import a worker by its path and return the function that answers its commands."""
    file, folders = (path / "__init__.py", [str(path)]) if path.is_dir() else (path, None)
    spec = importlib.util.spec_from_file_location(path.stem, file, submodule_search_locations=folders)
    assert spec is not None and spec.loader is not None
    worker = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = worker  # its dataclasses and relative imports look it up here
    spec.loader.exec_module(worker)
    service: Service = worker.service()
    return service


def _main() -> None:
    # A signal that ends a service, or a session, may reach all its processes; the parent decides what it means.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    worker, folder = sys.argv[1:]
    requests: SimpleQueue[bytes] = SimpleQueue()
    # A separate stream: a thread that waits for standard input would keep the interpreter from ending.
    stream = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    threading.Thread(target=_take_in, args=(stream, requests, folder), daemon=True).start()
    # Whatever a library prints must not end up between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        serve(_service(Path(worker)), requests, answers)
    finally:
        _end(folder)  # the worker could not start, or nobody reads its answers


if __name__ == "__main__":
    _main()
