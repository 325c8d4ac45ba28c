"""Jobs in worker processes: all are run, whatever becomes of the processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import ModuleType

import psutil
import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    from lab import crew

    return crew


def halving(by: int) -> Callable[[int], float]:
    def run(job: int) -> float:
        if job == 13:
            os._exit(3)
        if job == 17:
            time.sleep(60)
        return job / by

    return run


@pytest.mark.slow
def test_jobs_that_crash_hang_or_raise_are_reported_and_the_others_run(crew: ModuleType) -> None:
    found = list(crew.run_jobs([17, 1, 13, 2, "x", 3, 4], halving, 2, workers=2, limit=2.0))
    lost = [outcome for outcome in found if isinstance(outcome, crew.Failure)]
    assert [(failure.job, failure.kind) for failure in lost] == [(17, "hang"), (13, "crash"), ("x", "error")]
    assert [failure.detail for failure in lost[:2]] == ["more than 2 s", "exit status 3"]
    assert "TypeError" in lost[2].detail
    assert [outcome for outcome in found if outcome not in lost] == [0.5, 1.0, 1.5, 2.0]
    assert found.index(lost[0]) == 0, "outcomes come in the order of the jobs"


def test_jobs_are_drawn_as_processes_become_free(crew: ModuleType) -> None:
    drawn: list[int] = []

    def jobs() -> Iterator[int]:
        for job in range(8):
            drawn.append(job)
            yield job

    outcomes = crew.run_jobs(jobs(), halving, 2, workers=1, limit=60.0)
    assert next(outcomes) == 0.0
    assert len(drawn) <= 2
    outcomes.close()


def test_processes_that_cannot_prepare_are_an_error(crew: ModuleType) -> None:
    with pytest.raises(BrokenProcessPool):
        list(crew.run_jobs([1, 2], halving, workers=1, limit=60.0))


SLEEPING = """
import os, sys, time

sys.path.insert(0, sys.argv[1])
from lab.crew import run_jobs

def sleeping():
    def run(job):
        os.write(1, b"%d\\n" % os.getpid())  # in one piece, beside the others
        time.sleep(60)

    return run

if __name__ == "__main__":
    list(run_jobs([1, 2, 3], sleeping, workers=2, limit=60.0))
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no groups of processes")
def test_an_interrupt_ends_all_processes(tmp_path: Path) -> None:
    script = tmp_path / "sleeping.py"
    script.write_text(SLEEPING)
    command = [sys.executable, str(script), str(SCRIPTS)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        os.killpg(parent.pid, signal.SIGINT)
        parent.communicate(timeout=30)
    assert parent.returncode != 0
    assert not any(map(psutil.pid_exists, workers))
