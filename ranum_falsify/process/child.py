"""A child process that answers requests; code that may crash, or never end, runs there."""

from __future__ import annotations

import atexit
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

_SERVER = Path(__file__).with_name("child_server.py")
_GLANCE = 0.005
"""Seconds between two looks at a child's memory; a process fills some ten megabytes in that time."""
_LARGEST_SPARE = 2**29
"""Bytes of memory; a child that holds more is not kept."""
_MOST_IDLE = 4
"""Children with one worker that wait for the next use, where threads used more of them at the same time."""


class ChildDeathError(Exception):
    """A child process ended before it answered.

    Attributes:
        status: Its exit status.
        late: Whether it was ended because it ran out of time.
        full: Whether it was ended because it took too much memory.
    """

    def __init__(self, status: int, *, late: bool = False, full: bool = False) -> None:
        super().__init__(f"exit status {status}")
        self.status = status
        self.late = late
        self.full = full


class Child:
    """One child process, which answers requests in order; not for use from several threads at once.

    It imports nothing from this package, so it starts as fast as the worker's own imports allow. It has a temporary
    folder: `close` deletes it, and if this process dies first, however it does, the child deletes it.
    It is in none of the caller's process groups, because signals are for the caller to handle.

    Args:
        worker: A stand-alone script, or the folder of a stand-alone package that imports relatively; its function
            `service` returns the function that answers a command with its argument. An exception is an
            answer too.

    Attributes:
        folder: Its temporary folder.
        is_closed: Whether it was ended here.
    """

    def __init__(self, worker: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ranum-falsify-"))
        self._owner = os.getpid()
        self._clean = weakref.finalize(self, _delete, self.folder, self._owner)
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_SERVER), str(worker), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        self.is_closed = False

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether its process goes on, and its folder is there: others may end the one and delete the other."""
        return not self.is_closed and self._is_alive() and self.folder.is_dir()

    @property
    def is_small(self) -> bool:
        """Whether it holds little memory."""
        return self._resident() <= _LARGEST_SPARE

    def clear(self) -> None:
        """Delete what is in its temporary folder."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def send(self, command: str, argument: Any) -> None:
        """Send a request whose answer `receive` returns later; does not wait for it."""
        assert self._process.stdin is not None
        data = pickle.dumps((command, argument), protocol=5)
        try:
            self._process.stdin.write(struct.pack(">Q", len(data)))
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError:
            return  # it is dead; whoever waits for the answer finds out

    def receive(self, *, timeout: float) -> tuple[str, Any]:
        """Wait for the next answer: `ok` and the result, or `error` and the exception's text.

        Any other interruption of the wait ends the child; its answer would be mistaken for that to the next request.

        Raises:
            ChildDeathError: The child died, or did not answer within `timeout` seconds and was ended.
        """
        with self._limit(timeout):
            return self._answer()

    def ask(self, command: str, argument: Any, *, timeout: float, memory: int | None = None) -> tuple[str, Any]:
        """Send a request and wait for its answer, as `receive` does.

        Args:
            command: What to do.
            argument: With what.
            timeout: Seconds after which the child is ended.
            memory: Bytes of resident memory beyond which it is ended. It gets what it asks for until then: a library
                that is refused memory may leave work undone without a word, or put the blame on what it works on.

        Raises:
            ChildDeathError: The child died, or was ended.
        """
        with self._limit(timeout, memory):
            self.send(command, argument)
            return self._answer()

    def close(self) -> None:
        """End the process, and delete its folder."""
        self.is_closed = True
        self._kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # unsent bytes, which no longer matter
        self._clean.detach()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def _limit(self, timeout: float, memory: int | None = None) -> Iterator[None]:
        done, late, full = threading.Event(), threading.Event(), threading.Event()

        def watch() -> None:
            end = time.monotonic() + timeout
            while not done.wait(max(0.0, end - time.monotonic()) if memory is None else _GLANCE):
                if time.monotonic() >= end:
                    late.set()
                elif memory is not None and self._resident() > memory:
                    full.set()
                else:
                    continue
                self._kill()
                return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        except (EOFError, OSError) as error:
            status = self._process.wait()
            self.close()
            raise ChildDeathError(status, late=late.is_set(), full=full.is_set()) from error
        except BaseException:
            self.close()
            raise
        finally:
            done.set()

    def _is_alive(self) -> bool:
        if self._owner == os.getpid():
            return self._process.poll() is None
        try:  # to a forked process, the children of its parent seem to have ended
            return bool(psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False

    def _kill(self) -> None:
        if self._owner == os.getpid():
            self._process.kill()
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _resident(self) -> int:
        """Return how many bytes of memory the child holds."""
        try:
            return int(psutil.Process(self._process.pid).memory_info().rss)
        except psutil.Error:  # it is dead, as whoever waits for the answer will find
            return 0

    def _answer(self) -> tuple[str, Any]:
        size: int = struct.unpack(">Q", self._read(8))[0]
        answer: tuple[str, Any] = pickle.loads(self._read(size))
        return answer

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise EOFError
        return data


def _delete(folder: Path, owner: int) -> None:
    """Delete the folder of a child that was not closed, unless this is a fork of the process that it belongs to."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


class SharedChild:
    """A child with some worker for all that a process asks of it, one use after the other; see :class:`Child`.

    Threads that use it at the same time have a child each.  No lock is held meanwhile: one that another thread held
    while this one forks would never be free in the forked process.  That has children of its own, and leaves those of
    its parent alone.
    """

    def __init__(self, worker: Path) -> None:
        self._worker = worker
        self._idle: dict[int, list[Child]] = {}  # by process; the methods of lists that are called here are atomic
        atexit.register(self.forget)

    @contextmanager
    def use(self) -> Iterator[Child]:
        """Have a child to oneself in the block, with its folder: the one that was used last, or else a new one."""
        idle = self._idle.setdefault(os.getpid(), [])
        child = _take(idle) or Child(self._worker)
        try:
            yield child
        finally:
            if not child.is_closed:
                idle.append(child)
                self._drop(idle, _MOST_IDLE)

    def lend(self) -> None:
        """Have a child ready for a process that is forked next; until that ends, this one leaves it alone."""
        with self.use():
            pass

    def borrow(self) -> None:
        """Use what the parent of this forked process has lent."""
        self._idle[os.getpid()] = list(self._idle.get(os.getppid(), ()))

    def forget(self) -> None:
        """End the children that are not in use; the next one that is used is new."""
        self._drop(self._idle.get(os.getpid(), []), 0)

    def _drop(self, idle: list[Child], most: int) -> None:
        while len(idle) > most and (child := _pop(idle)) is not None:
            child.close()


def _take(idle: list[Child]) -> Child | None:
    """Remove the last child that is usable, and end those that are not."""
    while (child := _pop(idle)) is not None and not child.is_usable:
        child.close()
    return child


def _pop(idle: list[Child]) -> Child | None:
    try:
        return idle.pop()
    except IndexError:  # another thread may have been faster
        return None


class SpareChild:
    """A child that was used before and waits to be used again, so that the next user need not wait for its start.

    There is one at most in a process. A forked process has its own.
    """

    def __init__(self, worker: Path) -> None:
        self._worker = worker
        self._waiting: dict[int, Child] = {}

    def take(self) -> Child:
        """Return the child that waits, if it is as good as a new one, or else a new one."""
        child = self._waiting.pop(os.getpid(), None)
        if child is not None:
            if child.is_usable:
                return child
            child.close()
        return Child(self._worker)

    def leave(self, child: Child) -> None:
        """Keep a child that has answered all its requests and forgotten what they were about, or end it."""
        try:
            child.clear()
        except OSError:
            child.close()
            return
        if not child.is_small or self._waiting.setdefault(os.getpid(), child) is not child:
            child.close()
