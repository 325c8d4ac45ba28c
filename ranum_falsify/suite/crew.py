"""Crews that answer tasks: workers of this machine, or of a cluster, which needs packages of its own."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import wait
from typing import Any, Literal, Protocol, Self

from ranum_falsify.errors import SuiteError, UsageError
from ranum_falsify.suite.worker import Answered, Task, Worker, WorkerDeathError


class Crew(Protocol):
    """Workers; a context manager, whose exit ends them and what they work on."""

    def __enter__(self) -> Self:
        """Start the workers."""

    def __exit__(self, *_: object) -> None:
        """End the workers."""

    @property
    def capacity(self) -> int:
        """How many tasks they work on at a time, which may change."""

    def submit(self, task: Task) -> None:
        """Have a task answered."""

    def collect(self, patience: float) -> Sequence[tuple[Task, Answered]]:
        """Wait for answers.

        Args:
            patience: Seconds to wait; there may be none by then.

        Raises:
            RanumFalsifyError: There are no workers, and will be none.
        """


LOST = Answered(status="error", error="its worker was killed", lost=True)
"""The answer to a task whose worker died."""

_MOST_STARTS = 3


class LocalCrew:
    """Workers of this machine; one that dies is replaced.

    Args:
        runner: Name of the module that answers tasks.
        jobs: How many workers there are.
    """

    def __init__(self, runner: str, jobs: int) -> None:
        self._runner = runner
        self._jobs = jobs
        self._workers: dict[Worker, Task | None] = {}
        self._waiting: deque[Task] = deque()
        self._failures = 0

    def __enter__(self) -> Self:
        """Start the workers."""
        for _ in range(self._jobs):
            self._workers[Worker(self._runner)] = None
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()

    @property
    def capacity(self) -> int:
        """How many workers there are."""
        return self._jobs

    @property
    def pids(self) -> Sequence[int]:
        """The numbers of their processes."""
        return [worker.pid for worker in self._workers]

    def submit(self, task: Task) -> None:
        """Have a task answered by the first worker that is idle."""
        self._waiting.append(task)
        self._hand_out()

    def collect(self, patience: float) -> Sequence[tuple[Task, Answered]]:
        """Wait for answers.

        Args:
            patience: Seconds to wait; there may be none by then.

        Raises:
            SuiteError: Workers cannot be started.
        """
        by_connection = {worker.connection: worker for worker in self._workers}
        ready = wait(list(by_connection), patience)
        found = [pair for connection in ready for pair in self._receive(by_connection[connection])]  # type: ignore[index]
        self._hand_out()
        return found

    def _hand_out(self) -> None:
        for worker, task in self._workers.items():
            if worker.is_ready and task is None and self._waiting:
                self._workers[worker] = self._waiting.popleft()
                worker.send(self._workers[worker])  # type: ignore[arg-type]

    def _receive(self, worker: Worker) -> Iterator[tuple[Task, Answered]]:
        task = self._workers[worker]
        try:
            answered = worker.receive()
        except WorkerDeathError:
            self._replace(worker)
            if task is not None:
                yield task, LOST
            return
        self._failures = 0
        if answered is not None and task is None:
            raise SuiteError(f"workers do not start: {answered.error}")
        self._workers[worker] = None
        if answered is not None and task is not None:
            yield task, answered

    def _replace(self, worker: Worker) -> None:
        """Start another worker in place of one that died."""
        del self._workers[worker]
        worker.close()
        self._failures += 1
        if self._failures > _MOST_STARTS * self._jobs:
            raise SuiteError("workers die before they do anything; see whether there is memory for them")
        self._workers[Worker(self._runner)] = None


Kind = Literal["local", "slurm", "kubernetes"]

_CLUSTERS = {"slurm": ("dask_jobqueue", "SLURMCluster"), "kubernetes": ("dask_kubernetes.operator", "KubeCluster")}
"""Module and class of the clusters that are not on this machine; Dask's configuration has their settings."""


def make_crew(runner: str, jobs: int, *, kind: Kind | None = None, scheduler: str | None = None) -> Crew:
    """Return workers, not started yet: those of this machine, unless a cluster is named.

    Args:
        runner: Name of the module that answers tasks.
        jobs: How many workers there are, but for a cluster that is there.
        kind: The cluster to start.
        scheduler: The address of one that is there.

    Raises:
        UsageError: A package is missing.
    """
    if kind is None and scheduler is None:
        return LocalCrew(runner, jobs)
    dask = _load("ranum_falsify.suite.dask_crew")
    if scheduler is not None:
        opener = partial(dask.connect, scheduler)
    elif kind == "local":
        opener = partial(dask.local_cluster, jobs)
    else:
        module, name = _CLUSTERS[str(kind)]
        opener = partial(dask.scaled_cluster, getattr(_load(module), name), jobs)
    crew: Crew = dask.DaskCrew(runner, opener)
    return crew


def _load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is None or error.name.startswith("ranum_falsify"):
            raise
        package = error.name.partition(".")[0].replace("_", "-")
        raise UsageError(f"clusters need {package}; run: pip install {package}") from error
