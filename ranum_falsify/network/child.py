"""A child process that answers requests; code that may crash, or never end, runs there."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Child", "ChildDeathError"]

_SERVER = Path(__file__).with_name("child_server.py")


class ChildDeathError(Exception):
    """A child process ended before it answered.

    Attributes:
        status: Its exit status.
        late: Whether it was ended because it ran out of time.
    """

    def __init__(self, status: int, *, late: bool) -> None:
        super().__init__(f"exit status {status}")
        self.status = status
        self.late = late


class Child:
    """One child process, which answers requests in order; not for use from several threads at once.

    It imports nothing from this package, so it starts as fast as the worker's own imports allow. It has a temporary
    folder: `close` deletes it, and if this process dies first, however it does, the child deletes it.
    It is in none of the caller's process groups, because signals are for the caller to handle.

    Args:
        worker: A stand-alone script, or the folder of a stand-alone package that imports relatively; its function
            `service` returns the function that answers a command with its argument. An exception there is an answer
            too.
    """

    def __init__(self, worker: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ranum-falsify-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_SERVER), str(worker), self._folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def folder(self) -> Path:
        """Its temporary folder."""
        return Path(self._folder.name)

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

    def ask(self, command: str, argument: Any, *, timeout: float) -> tuple[str, Any]:
        """Send a request and wait for its answer, as `receive` does."""
        with self._limit(timeout):
            self.send(command, argument)
            return self._answer()

    def close(self) -> None:
        """End the process, and delete its folder."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # unsent bytes, which no longer matter
        self._folder.cleanup()

    @contextmanager
    def _limit(self, timeout: float) -> Iterator[None]:
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(timeout, stop)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (EOFError, OSError) as error:
            status = self._process.wait()
            self.close()
            raise ChildDeathError(status, late=late.is_set()) from error
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()

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
