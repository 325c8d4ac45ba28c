"""What runs in the child process of `ranum_falsify.network.child`: a worker's answers to requests.

Run as a script with the path of a worker, this module serves requests until its standard input ends. A message, in
either direction, is eight bytes of length (big endian) and a pickle of that length. The request is
``(command, argument)``; the answer is ``("ok", result)`` or ``("error", text)``. The worker is a stand-alone script,
or the folder of a package that imports relatively, with a function `service`, which returns the function that answers
a command and its argument.

Neither imports this package, which would take seconds.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["serve"]

Service = Callable[[str, Any], Any]


def serve(service: Service, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until they end; an exception becomes an ``error`` answer."""
    while len(head := requests.read(8)) == 8:
        command, argument = pickle.loads(requests.read(struct.unpack(">Q", head)[0]))
        try:
            answer = ("ok", service(command, argument))
        except Exception as error:
            answer = ("error", str(error) or type(error).__name__)
        data = pickle.dumps(answer, protocol=5)
        answers.write(struct.pack(">Q", len(data)))
        answers.write(data)
        answers.flush()


def _service(path: Path) -> Service:
    """Import a worker by its path, and return what answers its commands."""
    file, folders = (path / "__init__.py", [str(path)]) if path.is_dir() else (path, None)
    spec = importlib.util.spec_from_file_location(path.stem, file, submodule_search_locations=folders)
    assert spec is not None and spec.loader is not None
    worker = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = worker  # where its dataclasses and its relative imports look
    spec.loader.exec_module(worker)
    service: Service = worker.service()
    return service


def _main() -> None:
    # Ctrl-C reaches the whole process group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever a library prints must not end up between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(_service(Path(sys.argv[1])), sys.stdin.buffer, answers)


if __name__ == "__main__":
    _main()
