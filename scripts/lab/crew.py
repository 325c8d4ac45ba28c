"""Jobs in worker processes: one that crashes or hangs affects no other job, and an interrupt ends them all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Generic, TypeVar

from pebble import ProcessExpired, ProcessFuture, ProcessPool

__all__ = ["Failure", "run_jobs"]

Job = TypeVar("Job")
Outcome = TypeVar("Outcome")

_AHEAD = 2
"""Jobs per process that are drawn before the first of them has ended, so that no process waits for the next."""


@dataclass(frozen=True)
class Failure(Generic[Job]):
    """A job that produced no outcome.

    Attributes:
        job: The job.
        kind: `crash`, `hang` or `error`.
        detail: The exit status, the time limit, or the exception.
    """

    job: Job
    kind: str
    detail: str


_run: Callable[[Any], Any]
"""Runs a job in this worker process."""


def _enter(prepare: Callable[..., Callable[[Any], Any]], arguments: tuple[object, ...]) -> None:
    global _run
    _run = prepare(*arguments)


def _run_here(job: Any) -> Any:
    return _run(job)


def run_jobs(
    jobs: Iterable[Job],
    prepare: Callable[..., Callable[[Job], Outcome]],
    *arguments: object,
    workers: int,
    limit: float,
) -> Iterator[Outcome | Failure[Job]]:
    """Run jobs in processes; yield their outcomes in the jobs' order.

    Args:
        jobs: The jobs, drawn a few at a time as processes become free.
        prepare: A function that the processes can import, called once in each; it returns the function that runs a job.
        arguments: Arguments of `prepare`.
        workers: Number of processes.
        limit: Seconds after which a running job is ended, and its process with it.

    Raises:
        BrokenProcessPool: The processes end before they take a job, for example because `prepare` fails.
    """
    # A forked worker would inherit the locks of this process's threads.
    spawn = get_context("spawn")
    pool = ProcessPool(workers, initializer=_enter, initargs=(prepare, arguments), context=spawn)
    pending: deque[tuple[Job, ProcessFuture[Any]]] = deque()
    try:
        for job in jobs:
            pending.append((job, pool.schedule(_run_here, (job,), timeout=limit)))
            if len(pending) == _AHEAD * workers:
                yield _ended(*pending.popleft(), limit)
        while pending:
            yield _ended(*pending.popleft(), limit)
    finally:
        pool.stop()
        pool.join()


def _ended(job: Job, future: ProcessFuture[Any], limit: float) -> Any:
    try:
        return future.result()
    except ProcessExpired as error:
        return Failure(job, "crash", f"exit status {error.exitcode}")
    except TimeoutError:
        return Failure(job, "hang", f"more than {limit:g} s")
    except BrokenProcessPool:
        raise
    except Exception as error:
        return Failure(job, "error", f"{type(error).__name__}: {error}")
