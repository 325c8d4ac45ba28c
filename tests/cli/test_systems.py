"""Systems that lack what Linux has: no limit of memory, no alarm, fewer signals."""

import json
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ranum_falsify.api.timekeeper import Exit, TimeUp, time_limit
from ranum_falsify.selfcheck import list_unmeasured
from tests.cli.test_app import environment
from tests.cli.workshop import LOG, SAFE, Workshop

# Python reads this before all else, in children too. What PyTorch and psutil import needs what it finds here.
LACKING = """
import asyncio, contextlib, os, random, signal, subprocess, sys, warnings
import psutil, onnxruntime
with contextlib.suppress(ImportError):
    import cuda.pathfinder

def without(of, *names):
    for name in names:
        delattr(of, name)

def without_proc():
    sys.addaudithook(lambda event, found: event == "open" and hide(str(found[0])))

def hide(path):
    if path.startswith("/proc") and f"{os.sep}ranum_falsify{os.sep}" in caller():
        raise FileNotFoundError(path)

def caller():
    frame = sys._getframe()
    while frame and (frame.f_code.co_filename == __file__ or "pathlib" in frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename if frame else ""

def forbid(event, found):
    path = str(found[1] if event == "os.rename" else found[0])
    if event in ("open", "os.mkdir", "os.rename") and set(path) & set('<>:"|?*'):
        raise OSError(f"no file can have the name {path}")

SWITCHES = {
    "modules": lambda: sys.modules.update(dict.fromkeys(("resource", "fcntl", "pwd", "grp", "termios"))),
    "signals": lambda: without(signal, "SIGALRM", "SIGHUP", "SIGPIPE", "setitimer", "getitimer", "ITIMER_REAL"),
    "processes": lambda: without(os, "fork", "killpg", "setsid", "getpgid", "sched_getaffinity", "sysconf", "uname"),
    "proc": without_proc,
    "names": lambda: sys.addaudithook(forbid),
    "encoding": lambda: warnings.filterwarnings("error", category=EncodingWarning, module="ranum_falsify"),
}
for name in os.environ["LACKING"].split():
    SWITCHES[name]()
"""
SWITCHES = ("modules", "signals", "processes", "proc", "names", "encoding")
MAIN = "import sys; from ranum_falsify.cli import main; "


def on_another_system(
    folder: Path, code: str, *arguments: str, lacking: str = " ".join(SWITCHES)
) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(LACKING)
    command = [sys.executable, "-W", "ignore::EncodingWarning", "-c", MAIN + code, *arguments]
    of = {**environment(folder), "LACKING": lacking, "PYTHONWARNDEFAULTENCODING": "1", "XDG_CACHE_HOME": str(folder)}
    return subprocess.run(command, env=of, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("lacking", [*SWITCHES, " ".join(SWITCHES)])
def test_models_are_checked_and_mended_and_counterexamples_replayed_there(workshop: Workshop, lacking: str) -> None:
    model, found, mended = (str(workshop.folder / name) for name in ("log.onnx", "found.npy", "mended.onnx"))
    workshop.model(LOG, "log.onnx")
    commands = [
        ["check", model, "--box", "-1", "1", "--save-violation", found, "-q"],
        ["replay", found, "--network", "N", model],
        ["fix", str(workshop.property()), "--network", "N", model, "-o", mended],
        [str(workshop.property()), "--network", "N", mended, "-q"],
    ]
    code = 'import json; print("statuses", *map(main, json.loads(sys.argv[1])))'
    done = on_another_system(workshop.folder, code, json.dumps(commands), lacking=lacking)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("statuses 1 1 0 0\n"), done.stdout


def test_a_suite_there_is_refused_in_one_line_and_a_report_is_none_the_worse(workshop: Workshop) -> None:
    workshop.model(SAFE, "safe.onnx")
    done = on_another_system(workshop.folder, "sys.exit(main(['suite', sys.argv[1]]))", str(workshop.folder))
    says = "ranum-falsify: suite: needs a system on which processes fork; run it on Linux, or in WSL\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", says)
    done = on_another_system(workshop.folder, "import ranum_falsify.cli.report, ranum_falsify.cli.suite")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_doctor_says_what_does_not_work_there(tmp_path: Path) -> None:
    done = on_another_system(tmp_path, "sys.exit(main(['doctor', '--no-self-check']))")
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
