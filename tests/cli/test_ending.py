"""Signals that end the command: nothing is left of it, neither files nor processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ranum_falsify import __version__
from ranum_falsify.cli.app import end_by_signals
from tests.cli.test_app import COMMAND, SLOW, environment
from tests.cli.workshop import Workshop


def until(is_so: Callable[[], bool]) -> bool:
    """Wait for what comes soon; return whether it came."""
    deadline = time.monotonic() + 30
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_so()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_nothing_is_left(workshop: Workshop, number: signal.Signals) -> None:
    nodes = "t0 = Tanh(x)\n" + "\n".join(f"m{i} = MatMul(t{i}, w)\nt{i + 1} = Tanh(m{i})" for i in range(60))
    model = workshop.model(SLOW % nodes)
    scratch = workshop.folder / "scratch"
    scratch.mkdir()
    command = [*COMMAND, str(workshop.property()), "-N", "N", str(model), "--n_starts=-1", "-v", "--no-prove"]
    given = {**environment(), "TMPDIR": str(scratch)}
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None and run.stderr.readline().startswith("search")
        children = psutil.Process(run.pid).children(recursive=True)
        assert children and list(scratch.iterdir())
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (143 if number is signal.SIGTERM else -9, "") and "Traceback" not in err
    assert until(lambda: not list(scratch.iterdir())), list(scratch.iterdir())
    assert until(lambda: not any(child.is_running() for child in children))


class TestHandlers:
    @pytest.fixture(autouse=True)
    def _as_in_a_terminal(self) -> Iterator[None]:
        """`nohup` and shells that start the tests in the background have some signals ignored."""
        before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
        yield
        for number, handler in before.items():
            signal.signal(number, handler)

    def test_they_raise_and_are_taken_back(self) -> None:
        with pytest.raises(SystemExit) as end, end_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(30)
        assert end.value.code == 129
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL is signal.getsignal(signal.SIGTERM)

    def test_a_wish_that_is_told_twice_is_one(self) -> None:
        cleaned = False
        with pytest.raises(SystemExit), end_by_signals():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(30)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.05)
                cleaned = True
        assert cleaned

    def test_an_ignored_signal_stays_ignored(self) -> None:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with end_by_signals():
                os.kill(os.getpid(), signal.SIGHUP)
                time.sleep(0.05)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGHUP, before)


def test_a_file_being_written_goes_too(tmp_path: Path) -> None:
    code = f"""
import time
from pathlib import Path
from ranum_falsify import __version__
from ranum_falsify.cli.app import end_by_signals
from ranum_falsify.saving import save_together

def write(stream):
    stream.write(b"half")
    stream.flush()
    time.sleep(60)

with end_by_signals():
    save_together({{Path({str(tmp_path / "cex.npy")!r}): write}})
"""
    with subprocess.Popen([sys.executable, "-c", code], env=environment()) as run:
        assert until(lambda: bool(list(tmp_path.iterdir())))
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 143
    assert list(tmp_path.iterdir()) == []


def end_of(code: str) -> tuple[str, str, int]:
    """Return the output, the errors and the exit status of a program."""
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    return run.stdout, run.stderr, run.returncode


class TestEndProcess:
    @pytest.mark.parametrize(
        ("before", "shown"),
        [
            ("", "registered\n"),
            ("import threading; threading.Timer(0.2, print, ['worked']).start(); ", "on\nworked\nregistered\n"),
            ("sys.setprofile(lambda *_: None); ", "on\nregistered\n"),
        ],
        ids=["at-once", "a-thread-works", "measured"],
    )
    def test_what_is_registered_runs_and_threads_finish(self, before: str, shown: str) -> None:
        code = (
            "import atexit, sys; from ranum_falsify.cli.app import end_process; "
            f"atexit.register(print, 'registered'); {before}end_process(3); print('on', flush=True); sys.exit(3)"
        )
        assert end_of(code) == (shown, "", 3)

    def test_a_command_does_not_take_its_modules_apart(self) -> None:
        code = (
            "import sys; from ranum_falsify.cli import run; sys.argv[1:] = ['--version']\n"
            "class Kept:\n    def __del__(self):\n        print('taken apart')\n"
            "kept = Kept()\nrun()"
        )
        assert end_of(code) == (f"ranum-falsify {__version__}\n", "", 0)
