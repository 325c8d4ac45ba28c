"""Workers of this machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from typing import Self

from ranum_falsify.errors import SuiteError
from ranum_falsify.suite.task import Answered, Task
from ranum_falsify.suite.worker import Worker, WorkerDeathError

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
