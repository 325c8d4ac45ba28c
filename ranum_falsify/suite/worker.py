"""A worker: a process that answers one task after the other, and stays warm in between."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
from multiprocessing.connection import Connection

from ranum_falsify.suite.task import Answered, Task

_START = "import sys; sys.path[:] = {path!r}; from ranum_falsify.suite.server import main; main({number}, {runner!r})"


class WorkerDeathError(Exception):
    """A worker's process ended."""


class Worker:
    """A worker's process; it ends with this one.

    Args:
        runner: Name of the module that answers tasks.

    Attributes:
        connection: Is ready to be read when the answer is there, or the process has ended.
        is_ready: Whether it takes a task.
    """

    def __init__(self, runner: str) -> None:
        mine, other = socket.socketpair()
        with other:
            code = _START.format(path=[path for path in sys.path if path], number=other.fileno(), runner=runner)
            # Not in the process group of a terminal: signals are for this process to handle.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        self.connection = Connection(mine.detach())
        self.is_ready = False

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def send(self, task: Task) -> None:
        """Give it a task; `receive` returns the answer."""
        self.is_ready = False
        try:
            self.connection.send(task)
        except OSError:
            return  # it is dead, as `receive` will find

    def receive(self) -> Answered | None:
        """Wait for the answer, or for None, which says that the process has started.

        Raises:
            WorkerDeathError: The process has ended.
        """
        try:
            data = self.connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise WorkerDeathError from error
        self.is_ready = True
        if not data:
            return None
        answered: Answered = pickle.loads(data)
        return answered

    def close(self) -> None:
        """End the process, and the child that answers a task."""
        self.connection.close()
        self._process.kill()
        self._process.wait()
