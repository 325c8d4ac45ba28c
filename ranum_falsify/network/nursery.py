"""Child processes forked from one that has imported their worker: they start in milliseconds, not in half a second.

The nursery is a process of its own, which runs no model: a child that is forked there is as good as one that was
started. It takes messages, which are pickles, from a socket, and answers each, in order:

- ``("fork", (temporary folder, working folder))`` with the child's two pipes: the number of the process;
- ``("wait", number)`` and ``("poll", number)``: its exit status, None while it runs.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ranum_falsify.network.child import ChildProcess, launch

__all__ = ["Nursery"]

_FORKS = sys.platform == "linux" and hasattr(os, "fork")
"""Whether a process that has imported libraries may be forked: elsewhere, they have threads that do not survive it."""
_PATIENCE = 60.0
"""Seconds after which a nursery that does not answer is taken for dead."""


class Nursery:
    """Starts the processes of children that have one worker.

    The first that a process asks for is started: many commands need no other. For the second, the nursery is.

    Args:
        worker: See :class:`ranum_falsify.network.child.Child`.
    """

    def __init__(self, worker: Path) -> None:
        self._worker = worker
        self._forks: _Forks | None = None
        self._owner = 0

    def start(self, worker: Path, folder: Path) -> ChildProcess:
        """Start the process of a child; does not wait for it."""
        assert worker == self._worker
        if not _FORKS or self._owner != os.getpid():
            self._forks, self._owner = None, os.getpid()  # a forked process leaves the nursery of its parent alone
            return launch(worker, folder)
        if self._forks is None or not self._forks.is_alive:
            self._forks = _Forks(worker)
        return _ForkedProcess(self._forks, folder)


class _Forks:
    """The process that forks children, and what it has answered."""

    def __init__(self, worker: Path) -> None:
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = launch(worker, stdin=other.fileno(), stdout=subprocess.DEVNULL)
        self._control.settimeout(_PATIENCE)
        self._lock = threading.Lock()
        self._count = 0
        self._answers: list[Any] = []
        self._is_dead = False
        atexit.register(self._end, os.getpid())

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self._is_dead and self._process.poll() is None

    def send(self, command: str, argument: Any, files: tuple[int, ...] = ()) -> int:
        """Send a message; return its position, by which `answer` finds the answer."""
        with self._lock:
            try:
                socket.send_fds(self._control, [pickle.dumps((command, argument))], files)
            except OSError:
                self._die()
            self._count += 1
            return self._count - 1

    def answer(self, position: int) -> Any:
        """Wait for the answer to a message; None if the process died before it gave one."""
        if position >= len(self._answers):
            with self._lock:
                while position >= len(self._answers) and not self._is_dead:
                    self._receive()
        return self._answers[position] if position < len(self._answers) else None

    def _receive(self) -> None:
        try:
            message = self._control.recv(2**10)
        except OSError:
            message = b""
        if message:
            self._answers.append(pickle.loads(message))
        else:
            self._die()

    def _die(self) -> None:
        self._is_dead = True
        self._control.close()
        self._process.kill()
        self._process.wait()

    def _end(self, owner: int) -> None:
        if owner == os.getpid() and not self._is_dead:
            self._die()


class _ForkedProcess:
    """A process that was forked elsewhere; it has what `Child` needs of `subprocess.Popen`.

    Attributes:
        stdin: Where its requests go.
        stdout: Where its answers come from.
    """

    def __init__(self, forks: _Forks, folder: Path) -> None:
        (requests, sent), (received, answers) = os.pipe(), os.pipe()
        self.stdin: IO[bytes] = os.fdopen(sent, "wb")
        self.stdout: IO[bytes] = os.fdopen(received, "rb")
        home = None
        with suppress(OSError):
            home = os.getcwd()
        self._forks = forks
        self._position = forks.send("fork", (str(folder), home), (requests, answers))
        self._status: int | None = None
        for file in (requests, answers):
            os.close(file)

    @property
    def pid(self) -> int:
        """Number of the process, -1 if it never was."""
        number: int | None = self._forks.answer(self._position)
        return -1 if number is None else number

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""
        return self._ask("poll")

    def wait(self) -> int:
        """Wait for its end, and return its exit status; that of a process that was killed if nobody knows it."""
        status = self._ask("wait")
        return -signal.SIGKILL if status is None else status

    def kill(self) -> None:
        """End it, unless it has ended; the nursery keeps its number until it was waited for."""
        if self._status is None and (number := self.pid) > 0:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def _ask(self, command: str) -> int | None:
        if self._status is None and (number := self.pid) > 0:
            self._status = self._forks.answer(self._forks.send(command, number))
        return self._status
