"""Systems that lack what Linux has: no limit of memory, no alarm, fewer signals."""

import signal
import subprocess
import sys
import time

import pytest

from ranum_falsify.api.timekeeper import TimeUp, time_limit
from tests.cli.test_app import environment
from tests.cli.workshop import LOG, SAFE, Workshop

LACKING = """
import os, signal, sys, psutil, onnxruntime
sys.modules["resource"] = None
for name in ("SIGALRM", "SIGHUP", "setitimer", "ITIMER_REAL", "SIGPIPE"):
    delattr(signal, name)
for name in ("fork", "killpg", "setsid", "sched_getaffinity"):
    delattr(os, name)
from ranum_falsify.cli import main
print("statuses", *(main([sys.argv[1], "-N", "N", model, "-q"]) for model in sys.argv[2:]))
"""


def test_a_system_without_them_gives_the_same_verdicts(workshop: Workshop) -> None:
    models = [str(workshop.model(text, f"{number}.onnx")) for number, text in enumerate((SAFE, LOG))]
    command = [sys.executable, "-c", LACKING, str(workshop.property()), *models]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("statuses 0 1\n"), done.stdout


@pytest.mark.parametrize("seconds", ["1e300", "1e10", "inf"])
def test_a_timeout_may_be_of_any_length(workshop: Workshop, seconds: str) -> None:
    run = workshop.falsify("--timeout", seconds, model=SAFE)
    assert (run.status, run.err) == (0, "")


def test_without_an_alarm_overdue_ends_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "setitimer")
    called: list[bool] = []
    with time_limit(-0.9, overdue=lambda: called.append(True)):
        time.sleep(0.5)
    assert called == [True]


def test_the_alarm_rings() -> None:
    with pytest.raises(TimeUp), time_limit(0.01):
        time.sleep(5)
