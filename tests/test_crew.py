"""Jobs in worker processes: all are run, whatever becomes of the processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    from lab import crew

    return crew


@contextmanager
def halving(by: int) -> Iterator[Callable[[int], float]]:
    def run(job: int) -> float:
        if job == 13:
            os._exit(3)
        if job == 17:
            time.sleep(60)
        return job / by

    yield run


def test_jobs_that_crash_or_hang_are_reported_and_the_others_run(crew: ModuleType) -> None:
    found = list(crew.run_jobs([1, 13, 2, 17, 3, 4], halving, 2, workers=2, limit=6.0))
    lost = [outcome for outcome in found if isinstance(outcome, crew.Failure)]
    assert sorted(outcome for outcome in found if outcome not in lost) == [0.5, 1.0, 1.5, 2.0]
    assert sorted((failure.job, failure.kind) for failure in lost) == [(13, "crash"), (17, "hang")]
    assert next(failure for failure in lost if failure.job == 13).detail == "exit status 3"


def test_jobs_are_drawn_when_a_process_is_free(crew: ModuleType) -> None:
    drawn: list[int] = []

    def jobs() -> Iterator[int]:
        for job in range(8):
            drawn.append(job)
            yield job

    outcomes = crew.run_jobs(jobs(), halving, 2, workers=1, limit=60.0)
    assert next(outcomes) == 0.0
    assert len(drawn) <= 2
    outcomes.close()
