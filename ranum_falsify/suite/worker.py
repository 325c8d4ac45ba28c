"""A worker: a process that answers one task after the other, and stays warm in between.

It imports once what answers instances, and forks a child for each.  The child is ended when its time is up, when it and
its own children take too much memory, and when the worker ends, as it does when the one that started it closes the
connection or dies.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn, Protocol, cast

import psutil

from ranum_falsify.errors import RanumFalsifyError, is_out_of_memory
from ranum_falsify.suite.planning import Bundle
from ranum_falsify.suite.record import Instance, Status

_LEAST_GRACE, _GRACE = 5.0, 0.1


@dataclass(frozen=True, kw_only=True)
class Task:
    """An instance, and what its process may use.

    Attributes:
        instance: The question.
        stem: Begin of the names of the files of its counterexample.
        folder: The working folder of the suite, which the paths in the instance are seen from.
        bundles: The files that the instance reads, by their paths in it.
        places: Where files are on this machine, by their path in the instance; those that are left out are there.
        memory: Bytes of memory that its processes may hold together; None for no limit.
        processors: Threads of the libraries.
    """

    instance: Instance
    stem: str
    folder: str = ""
    bundles: Mapping[str, Bundle] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    memory: int | None = None
    processors: int = 1

    @property
    def deadline(self) -> float | None:
        """Seconds after which its process is ended: who keeps to the instance's own time limit ends well before."""
        limit = self.instance.timeout
        return None if limit is None else limit + max(_LEAST_GRACE, _GRACE * limit)


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What came of a task.

    Attributes:
        status: The outcome.
        preparation: Seconds to read the models and the property.
        seconds: Seconds from then to the outcome.
        error: What went wrong, in one line.
        files: Files of the counterexample by what they are, as a record has them.
        contents: What they and all that they name hold, by path below the folder of the results.
        report: The report of the main command.
        lost: Whether its process was ended from outside, so that another run may come to an answer.
    """

    status: Status
    preparation: float = 0.0
    seconds: float = 0.0
    error: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)
    report: Mapping[str, Any] | None = None
    lost: bool = False


_START = "import sys; sys.path[:] = {path!r}; from ranum_falsify.suite.worker import main; main({number}, {runner!r})"


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


_GLANCE = 0.2
"""Seconds between two looks at the memory of a child."""


class Runner(Protocol):
    """The module that answers instances."""

    def warm_up(self) -> None:
        """Do once what all instances need; afterwards the process has no threads but its main one."""

    def prepare(self, *, clean: bool) -> None:
        """Do what must be done before each instance, given whether the process of the last one ended by itself."""

    def answer(self, task: Task) -> Answered:
        """Answer an instance, in a process of its own."""


def main(number: int, runner: str) -> None:
    """Serve tasks until the connection ends."""
    _be_quiet()
    connection = Connection(number)
    try:
        with _ending_with(connection):
            module = cast(Runner, importlib.import_module(runner))
            module.warm_up()
    except Exception as error:
        connection.send_bytes(pickle.dumps(Answered(status="error", error=_describe(error))))
        return
    connection.send_bytes(b"")  # ready
    clean = True
    while True:
        module.prepare(clean=clean)
        try:
            task = connection.recv()
        except EOFError:
            return
        answer, clean = _run(module, task, connection)
        connection.send_bytes(answer)


@contextmanager
def _ending_with(connection: Connection) -> Iterator[None]:
    """End this process when the connection does, while the block runs, which may take long; no thread is left of it."""
    over, mine = _pipe()

    def watch() -> None:
        if connection in wait([connection, over]):
            os._exit(1)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        mine.close()
        thread.join()
        over.close()


def _be_quiet() -> None:
    """Leave signals and the terminal to the process that started this one."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)


def _run(module: Runner, task: Task, connection: Connection) -> tuple[bytes, bool]:
    """Return the answer to a task, as its child sends it, or as its end says; and whether the child sent it."""
    began = time.monotonic()
    child = _Child(module, task, connection)
    reason = _watch(child, task, connection, began)
    answer = child.end()
    if answer is not None:
        return answer, True
    seconds = time.monotonic() - began
    if reason is None:
        return pickle.dumps(_explain(child.status, seconds)), False
    status, text = reason
    return pickle.dumps(Answered(status=status, seconds=seconds, error=text)), False  # type: ignore[arg-type]


def _watch(child: _Child, task: Task, connection: Connection, began: float) -> tuple[str, str] | None:
    """Wait for the end of a child; return why it must be ended, as a status and an error, if it must."""
    while True:
        left = None if task.deadline is None else began + task.deadline - time.monotonic()
        pause = left if task.memory is None else _GLANCE if left is None else min(left, _GLANCE)
        ready = wait([child.connection, connection], None if pause is None else max(pause, 0.0))
        if connection in ready:  # nothing is sent meanwhile: whoever started this process is gone
            child.kill()
            sys.exit()
        if ready:
            return None
        if left is not None and left <= 0:
            return "timeout", ""
        if task.memory is not None and (held := child.resident()) > task.memory:
            gigabytes = task.memory / 2**30
            return "error", (
                f"out of memory: took {held / 2**30:.2f} GB, more than {gigabytes:g}; --instance-memory gives more"
            )


def _explain(status: int, seconds: float) -> Answered:
    """Return what the end of a child means that sent no answer."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGKILL:
        text = "was killed, by the system where it had no memory left; --jobs or --instance-memory take less"
        return Answered(status="error", seconds=seconds, error=text, lost=True)
    how = signal.Signals(number).name if number else f"exit status {os.waitstatus_to_exitcode(status)}"
    return Answered(status="error", seconds=seconds, error=f"crashed ({how}); please report it")


class _Child:
    """A forked process that answers one task."""

    def __init__(self, module: Runner, task: Task, parents: Connection) -> None:
        self.connection, other = _pipe()
        self.status = 0
        self.pid = os.fork()
        if self.pid == 0:
            self.connection.close()
            parents.close()
            _answer(module, task, other)
        other.close()

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> bytes | None:
        """End it, unless it sent an answer, which is returned; wait for its end."""
        answer = None
        if self.connection.poll():
            try:
                answer = self.connection.recv_bytes()
            except (EOFError, OSError):
                answer = None
        else:
            self.kill()
        self.connection.close()
        _, self.status = os.waitpid(self.pid, 0)
        return answer

    def resident(self) -> int:
        """Return how many bytes of memory it and its children hold."""
        held = 0
        try:
            process = psutil.Process(self.pid)
            for each in (process, *process.children(recursive=True)):
                held += int(each.memory_info().rss)
        except psutil.Error:  # one of them has just ended
            return held
        return held


def _pipe() -> tuple[Connection, Connection]:
    one, other = socket.socketpair()
    return Connection(one.detach()), Connection(other.detach())


def _answer(module: Runner, task: Task, connection: Connection) -> NoReturn:
    """Answer a task, and end the process."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, args=(connection,), daemon=True).start()
    began = time.monotonic()
    try:
        answered = module.answer(task)
    except BaseException as error:
        answered = Answered(status="error", seconds=time.monotonic() - began, error=_describe(error))
    connection.send_bytes(pickle.dumps(answered))
    os._exit(0)


def _describe(error: BaseException) -> str:
    """Return an error as one line."""
    text = str(error)
    if not isinstance(error, RanumFalsifyError):
        is_full = is_out_of_memory(error)
        text = "out of memory" if is_full else f"internal error ({type(error).__name__}: {error}); please report it"
    return " ".join(text.split())


def _end_with_parent(connection: Connection) -> None:
    """End this process when the one that forked it has ended."""
    wait([connection])
    os._exit(1)
