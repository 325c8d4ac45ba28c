"""Run a suite: hand out instances, and write down what they come to."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ranum_falsify.errors import SaveError, reason_of
from ranum_falsify.saving import save_together
from ranum_falsify.suite.crew import Crew
from ranum_falsify.suite.planning import Planned, stem_of
from ranum_falsify.suite.record import InstanceRecord, Status
from ranum_falsify.suite.results import ResultsFile
from ranum_falsify.suite.worker import Answered, Task

_MOST_RUNS = 3
_PATIENCE = 1.0  # seconds


@dataclass(frozen=True, kw_only=True)
class InstanceLimits:
    """What instances may use.

    Attributes:
        memory: Bytes of memory for the processes of an instance; None for no limit.
        processors: Threads for each, where its options do not say.
        until: When the suite ends, as `time.monotonic` counts; None for when all is done.
    """

    memory: int | None = None
    processors: int = 1
    until: float | None = None


@dataclass
class SuiteStanding:
    """How far a suite has got.

    Attributes:
        total: How many instances there are.
        former: How many of them were done before.
        counts: How many came to which outcome, those done before included.
        running: Ids of those that run.
        seconds_left: About how long the others take; None where nobody knows.
    """

    total: int
    former: int = 0
    counts: Counter[Status] = field(default_factory=Counter)
    running: Sequence[str] = ()
    seconds_left: float | None = None

    @property
    def done(self) -> int:
        """How many are done."""
        return self.counts.total()


@dataclass(kw_only=True)
class SuiteRun:
    """Has instances answered, and appends what they come to.

    Attributes:
        planned: The instances that are not done yet.
        crew: Who answers them.
        results: Where records go.
        folder: Where the files of counterexamples go, beside the results.
        limits: What instances may use.
        standing: Is kept up to date.
        show: Called with it now and then, and with each record that was written.
        former: Seconds that instances took before, by id.
    """

    planned: Sequence[Planned]
    crew: Crew
    results: ResultsFile
    folder: Path
    limits: InstanceLimits
    standing: SuiteStanding
    show: Callable[[SuiteStanding, InstanceRecord | None], None]
    former: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin."""
        self._waiting, self._running = deque(self.planned), dict[str, Planned]()
        self._runs: Counter[str] = Counter()
        self._began = time.monotonic()
        # Of those that are not done: how many took nobody knows how long before, and how long the others took.
        self._unknown = sum(one.instance.id not in self.former for one in self.planned)
        self._seconds = sum(self.former.get(one.instance.id, 0.0) for one in self.planned)

    def run(self) -> None:
        """Run until all is done, or time is up.

        Raises:
            RanumFalsifyError: Results cannot be written, or there are no workers.
        """
        until = self.limits.until
        while self._waiting or self._running:
            if until is not None and time.monotonic() >= until:
                return
            self._hand_out()
            self.show(self.standing, None)
            left = _PATIENCE if until is None else min(_PATIENCE, max(0.0, until - time.monotonic()))
            for task, answered in self.crew.collect(left):
                record = self._write(task, answered)
                if record is not None:
                    self._hand_out()
                    self.show(self.standing, record)

    def _hand_out(self) -> None:
        """Start as many as there are workers."""
        while self._waiting and len(self._running) < self.crew.capacity:
            planned = self._waiting.popleft()
            self._running[planned.instance.id] = planned
            self._runs[planned.instance.id] += 1
            self.crew.submit(
                Task(
                    instance=planned.instance,
                    stem=stem_of(planned, self.folder.name),
                    folder=str(Path.cwd()),
                    bundles=planned.bundles,
                    memory=self.limits.memory,
                    processors=self.limits.processors,
                )
            )
        self.standing.running = tuple(self._running)
        self.standing.seconds_left = self._estimate()

    def _write(self, task: Task, answered: Answered) -> InstanceRecord | None:
        """Write down an answer; where a worker died, have the instance run again instead, at most twice."""
        name = task.instance.id
        planned = self._running.pop(name)
        if answered.lost and self._runs[name] < _MOST_RUNS:
            self._waiting.appendleft(planned)
            return None
        record = InstanceRecord(
            instance=planned.instance,
            fingerprint=planned.fingerprint,
            runs=self._runs.pop(name),
            **{key: getattr(answered, key) for key in ("status", "preparation", "seconds", "error", "files", "report")},
        )
        _save(answered.contents, self.folder.parent)
        self.results.append(record)
        self.standing.counts[record.status] += 1
        self._unknown -= name not in self.former
        self._seconds -= self.former.get(name, 0.0)
        return record

    def _estimate(self) -> float | None:
        """Return about how many seconds are left: as many as took before, or as the others have taken."""
        left = len(self._waiting) + len(self._running)
        if self._unknown == 0:
            return self._seconds / max(self.crew.capacity, 1)
        done = self.standing.done - self.standing.former
        return (time.monotonic() - self._began) / done * left if done else None


def _save(contents: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of a counterexample."""
    paths = {folder / name: data for name, data in contents.items()}
    for parent in {path.parent for path in paths}:
        try:
            parent.mkdir(exist_ok=True)
        except OSError as error:
            raise SaveError(f"{parent}: cannot be created ({reason_of(error)}); choose another folder") from error
    if paths:
        save_together(paths)
