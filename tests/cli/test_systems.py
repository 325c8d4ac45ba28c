"""Systems that lack what Linux has: no limit of memory, no alarm, fewer signals."""

import json
import platform
import re
import signal
import subprocess
import sys
import time

import pytest

from ranum_falsify.api.timekeeper import Exit, TimeUp, time_limit
from ranum_falsify.selfcheck import list_unmeasured
from tests.cli.test_app import environment
from tests.cli.workshop import LOG, SAFE, Workshop

LACKING = """
import os, signal, sys, psutil, onnxruntime
sys.modules["resource"] = sys.modules["fcntl"] = None
for name in ("SIGALRM", "SIGHUP", "setitimer", "ITIMER_REAL", "SIGPIPE"):
    delattr(signal, name)
for name in ("fork", "killpg", "setsid", "sched_getaffinity"):
    delattr(os, name)
from ranum_falsify.cli import main
"""
NO_PROC = """
from pathlib import Path
from ranum_falsify.selfcheck import family
family._CPUINFO = Path("nowhere")
"""
VERDICTS = 'print("statuses", *(main([sys.argv[1], "-N", "N", model, "-q"]) for model in sys.argv[2:]))'


def on_another_system(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LACKING + code, *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_a_system_without_them_gives_the_same_verdicts(workshop: Workshop) -> None:
    models = [str(workshop.model(text, f"{number}.onnx")) for number, text in enumerate((SAFE, LOG))]
    done = on_another_system(VERDICTS, str(workshop.property()), *models)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("statuses 0 1\n"), done.stdout


@pytest.mark.slow
def test_counterexamples_replay_and_models_are_mended_there(workshop: Workshop) -> None:
    model, found, mended = (str(workshop.folder / name) for name in ("log.onnx", "found.npy", "mended.onnx"))
    workshop.model(LOG, "log.onnx")
    commands = [
        ["check", model, "--box", "-1", "1", "--save-violation", found, "-q"],
        ["replay", found, "--network", "N", model],
        ["fix", str(workshop.property()), "--network", "N", model, "-o", mended],
        [str(workshop.property()), "--network", "N", mended, "-q"],
    ]
    code = NO_PROC + 'import json; print("statuses", *map(main, json.loads(sys.argv[1])))'
    done = on_another_system(code, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("statuses 1 1 0 0\n"), done.stdout + done.stderr


def test_a_suite_there_is_refused_in_one_line_and_a_report_is_none_the_worse(workshop: Workshop) -> None:
    workshop.model(SAFE, "safe.onnx")
    done = on_another_system("sys.exit(main(['suite', sys.argv[1]]))", str(workshop.folder))
    says = "ranum-falsify: suite: needs a system on which processes fork; run it on Linux, or in WSL\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", says)
    done = on_another_system("import ranum_falsify.cli.report, ranum_falsify.cli.suite_compare")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_doctor_says_what_does_not_work_there() -> None:
    done = on_another_system("sys.exit(main(['doctor', '--no-self-check']))")
    assert done.returncode == 0, done.stderr
    line = done.stdout.splitlines()[-1]
    assert line.endswith(
        "lacks what Linux has: memory is not limited while files are read; --timeout does not interrupt a library, but "
        "ends the process; suites do not run"
    )


@pytest.mark.parametrize(("system", "machine"), [("Windows", "AMD64"), ("Darwin", "arm64"), ("Darwin", "x86_64")])
def test_kernels_of_other_systems_were_not_measured(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    said = list_unmeasured()
    for name in ("ONNX Runtime", "PyTorch"):
        start = rf"{name} \S+ was not measured on processors of the family {system.lower()}_{machine.lower()}_"
        assert [notice for notice in said if re.match(start, notice)], said


@pytest.mark.parametrize("seconds", ["1e300", "1e10", "inf"])
def test_a_timeout_may_be_of_any_length(workshop: Workshop, seconds: str) -> None:
    run = workshop.falsify("--timeout", seconds, model=SAFE)
    assert (run.status, run.err) == (0, "")


def test_without_an_alarm_the_exit_ends_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "setitimer")
    called: list[bool] = []
    with time_limit(-0.9, Exit(lambda: called.append(True))):
        time.sleep(0.5)
    assert called == [True]


def test_the_alarm_rings() -> None:
    with pytest.raises(TimeUp), time_limit(0.01):
        time.sleep(5)
