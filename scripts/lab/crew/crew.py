"""Runs jobs in a crew of processes; one that crashes or no longer answers is replaced."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

__all__ = ["Failure", "run_jobs"]

Job = TypeVar("Job")
Outcome = TypeVar("Outcome")

Preparation = Callable[..., AbstractContextManager[Callable[[Job], Outcome]]]
"""`prepare(*arguments)`: a context, entered once per process, that gives what runs a job."""


@dataclass(frozen=True)
class Failure(Generic[Job]):
    """A job that gave no outcome.

    Attributes:
        job: The job.
        kind: `crash` or `hang`.
        detail: The exit status, or how long it took.
        seconds: Since the job was given.
    """

    job: Job
    kind: str
    detail: str
    seconds: float


def _serve(connection: Connection, prepare: Preparation[Job, Outcome], arguments: tuple[object, ...]) -> None:
    with prepare(*arguments) as run:
        while True:
            try:
                job = connection.recv()
            except EOFError:
                return
            connection.send(run(job))


class _Worker(Generic[Job, Outcome]):
    def __init__(self, prepare: Preparation[Job, Outcome], arguments: tuple[object, ...], limit: float) -> None:
        self._prepare, self._arguments, self._limit = prepare, arguments, limit
        self._job: tuple[Job] | None = None
        self._start()

    def _start(self) -> None:
        # A forked child would inherit the threads' locks of whatever has been imported here.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        given = (theirs, self._prepare, self._arguments)
        self._process = context.Process(target=_serve, args=given, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def is_busy(self) -> bool:
        return self._job is not None

    def give(self, job: Job) -> None:
        self._job, self._since = (job,), time.monotonic()
        self.connection.send(job)

    def take(self, *, ready: bool) -> Outcome | Failure[Job] | None:
        """Return what became of the job that was given, None if it is still at work."""
        assert self._job is not None
        (job,), late = self._job, time.monotonic() - self._since > self._limit
        if ready:
            try:
                outcome: Outcome = self.connection.recv()
                self._job = None
                return outcome
            except (EOFError, OSError):
                self._process.join()
                kind, detail = "crash", f"exit status {self._process.exitcode}"
        elif late:
            kind, detail = "hang", f"more than {self._limit:g} s"
        else:
            return None
        self._job = None
        self.stop()
        self._start()
        return Failure(job, kind, detail, time.monotonic() - self._since)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()


def run_jobs(
    jobs: Iterable[Job], prepare: Preparation[Job, Outcome], *arguments: object, workers: int, limit: float
) -> Iterator[Outcome | Failure[Job]]:
    """Run jobs in processes; yield what became of them as they end.

    Args:
        jobs: Drawn one at a time, when a process is free.
        prepare: A function that the processes can import.
        arguments: Its arguments.
        workers: Number of processes.
        limit: Seconds after which a job counts as hanging.
    """
    pending = iter(jobs)
    crew = [_Worker(prepare, arguments, limit) for _ in range(workers)]
    try:
        while True:
            for worker, job in zip([worker for worker in crew if not worker.is_busy], pending, strict=False):
                worker.give(job)
            busy = [worker for worker in crew if worker.is_busy]
            if not busy:
                return
            ready = wait([worker.connection for worker in busy], timeout=1.0)
            for worker in busy:
                if (outcome := worker.take(ready=worker.connection in ready)) is not None:
                    yield outcome
    finally:
        for worker in crew:
            worker.stop()
