"""The child process that answers requests, with workers written here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from ranum_falsify.process.child import _MOST_IDLE, Child, ChildDeathError, SharedChild, SpareChild

WORKER = """
import os, sys, time
from dataclasses import dataclass

@dataclass
class Kept:
    values: "list[object]"

def service():
    kept = Kept([])
    def answer(command, argument):
        if command == "exit":
            os._exit(argument)
        if command == "sleep":
            time.sleep(argument)
        if command == "fill":
            return len(b"x" * argument)
        if command == "modules":
            return sorted({name.partition(".")[0] for name in sys.modules})
        print("noise")
        os.write(1, b"more noise")
        kept.values.append(argument)
        return kept.values if command == "keep" else {}[command]
    return answer
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    child = Child(path)
    yield child
    child.close()


def test_requests_are_answered_in_order(child: Child) -> None:
    child.send("keep", 1)
    child.send("keep", b"x" * 2**20)
    assert child.receive(timeout=60) == ("ok", [1])
    assert child.receive(timeout=60) == ("ok", [1, b"x" * 2**20])
    assert child.ask("keep", None, timeout=60)[1][2] is None


def test_an_exception_is_an_answer(child: Child) -> None:
    assert child.ask("nothing", 0, timeout=60) == ("error", "'nothing'")
    assert child.ask("keep", 1, timeout=60) == ("ok", [0, 1])


def test_too_much_memory_is_death_not_an_answer(child: Child) -> None:
    assert child.ask("fill", 2**20, timeout=60, memory=2**27) == ("ok", 2**20)
    with pytest.raises(ChildDeathError) as died:
        child.ask("fill", 2**30, timeout=60, memory=2**27)
    assert died.value.full and not died.value.late


def test_it_imports_nothing_of_the_package(child: Child) -> None:
    kind, modules = child.ask("modules", None, timeout=60)
    assert kind == "ok"
    assert not {"torch", "numpy", "dnnv", "ranum_falsify"} & set(modules)


def test_death_is_told_from_running_out_of_time(child: Child, tmp_path: Path) -> None:
    with pytest.raises(ChildDeathError) as died:
        child.ask("exit", 7, timeout=60)
    assert (died.value.status, died.value.late) == (7, False)
    slow = Child(tmp_path / "worker.py")
    with pytest.raises(ChildDeathError) as late:
        slow.ask("sleep", 60, timeout=0.1)
    assert late.value.late
    with pytest.raises(ProcessLookupError):
        os.kill(slow.pid, 0)


def test_a_worker_that_cannot_start_is_a_death(tmp_path: Path) -> None:
    with pytest.raises(ChildDeathError):
        Child(tmp_path / "none.py").ask("keep", 1, timeout=60)


def test_its_folder_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    child = Child(tmp_path / "worker.py")
    (child.folder / "model.onnx").write_text("large")
    child.close()
    assert not child.folder.exists()


def test_signals_are_the_parents_to_judge(child: Child) -> None:
    assert child.ask("keep", 1, timeout=60) == ("ok", [1])
    assert os.getpgid(child.pid) != os.getpgid(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(child.pid, number)
    assert child.ask("keep", 2, timeout=60) == ("ok", [1, 2])


@pytest.mark.slow
def test_it_ends_with_a_parent_that_is_killed_and_deletes_its_folder(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    spec = importlib.util.find_spec("ranum_falsify.process.child")
    assert spec is not None and spec.origin is not None
    code = f"""
import runpy, time
from pathlib import Path
child = runpy.run_path({spec.origin!r})["Child"](Path({str(tmp_path / "worker.py")!r}))
child.send("sleep", 60)
print(child.pid, child.folder, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        assert Path(folder).is_dir()
        parent.kill()
    deadline = time.monotonic() + 30
    while Path(folder).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(folder).exists()
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(int(pid), 0)
            time.sleep(0.05)


def in_fork(do: Callable[[], bool]) -> bool:
    """Whether something is so in a forked process."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if do() else 1
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_forked_process_borrows_a_child(tmp_path: Path) -> None:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    shared = SharedChild(path)
    shared.lend()
    with shared.use() as lent:
        pass

    def borrow() -> bool:
        shared.borrow()
        with shared.use() as child:
            return child is lent and lent.ask("keep", 1, timeout=60) == ("ok", [1])

    assert in_fork(borrow)
    assert lent.ask("keep", 2, timeout=60) == ("ok", [1, 2])

    def run_out_of_time() -> bool:
        shared.borrow()
        with pytest.raises(ChildDeathError) as death, shared.use() as child:
            child.ask("sleep", 60, timeout=0.2)
        return death.value.late

    assert in_fork(run_out_of_time)
    shared.lend()
    with shared.use() as other:
        assert other is not lent and other.ask("keep", 1, timeout=60) == ("ok", [1])
    shared.forget()


def test_a_shared_child_that_an_interruption_ended_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    shared = SharedChild(path)

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt), shared.use() as child:
            child.ask("sleep", 60, timeout=60)
        with shared.use() as child:
            assert child.ask("keep", 1, timeout=60) == ("ok", [1])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        shared.forget()


def test_threads_that_use_a_shared_child_at_the_same_time_have_one_each(tmp_path: Path) -> None:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    shared, all_there = SharedChild(path), threading.Barrier(_MOST_IDLE + 1)

    def use(number: int) -> tuple[int, object]:
        with shared.use() as child:
            all_there.wait(timeout=60)
            return child.pid, child.ask("keep", number, timeout=60)

    with ThreadPoolExecutor(_MOST_IDLE + 1) as pool:
        found = list(pool.map(use, range(_MOST_IDLE + 1)))
    assert len({pid for pid, _ in found}) == _MOST_IDLE + 1
    assert [answer for _, answer in found] == [("ok", [number]) for number in range(_MOST_IDLE + 1)]
    with ExitStack() as stack:
        kept = [stack.enter_context(shared.use()).pid for _ in range(_MOST_IDLE)]
        assert set(kept) < {pid for pid, _ in found}
        assert stack.enter_context(shared.use()).pid not in {pid for pid, _ in found}
    shared.forget()


@pytest.mark.parametrize("what", ["process", "folder"])
def test_a_shared_child_that_is_not_usable_is_replaced(what: str, tmp_path: Path) -> None:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    shared = SharedChild(path)
    with shared.use() as child:
        if what == "process":
            os.kill(child.pid, signal.SIGKILL)
            child._process.wait()
        else:
            shutil.rmtree(child.folder)
    with shared.use() as other:
        assert child.is_closed and other.ask("keep", 1, timeout=60) == ("ok", [1])
    shared.forget()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_forked_process_that_exits_leaves_folder_and_child_of_its_parent_alone(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    spec = importlib.util.find_spec("ranum_falsify.process.child")
    assert spec is not None and spec.origin is not None
    code = f"""
import os, runpy, sys
from pathlib import Path
shared = runpy.run_path({spec.origin!r})["SharedChild"](Path({str(tmp_path / "worker.py")!r}))
with shared.use() as child:
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert child.folder.is_dir() and child.ask("keep", 1, timeout=60) == ("ok", [1])
with shared.use() as again:
    assert again is child
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[SpareChild]:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    spare = SpareChild(path)
    yield spare
    spare.take().close()


def test_a_child_that_is_left_is_taken_again_without_its_files(spare: SpareChild) -> None:
    child = spare.take()
    (child.folder / "sub").mkdir()
    (child.folder / "file").touch()
    child.ask("keep", 1, timeout=60)
    spare.leave(child)
    assert spare.take() is child and not list(child.folder.iterdir())
    assert child.ask("keep", 2, timeout=60) == ("ok", [1, 2])
    other = spare.take()
    assert other is not child
    spare.leave(child)
    spare.leave(other)
    assert other.is_closed and not child.is_closed


@pytest.mark.parametrize("what", ["process", "folder", "memory"])
def test_a_child_that_is_not_as_good_as_new_is_not_taken(
    what: str, spare: SpareChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = spare.take()
    if what == "memory":
        monkeypatch.setattr("ranum_falsify.process.child._LARGEST_SPARE", 2**20)
        child.ask("keep", 1, timeout=60)
    spare.leave(child)
    if what == "process":
        os.kill(child.pid, signal.SIGKILL)
        child._process.wait()
    if what == "folder":
        shutil.rmtree(child.folder)
    other = spare.take()
    assert other is not child and child.is_closed
    other.close()


def test_a_forked_process_leaves_the_child_of_its_parent_alone(spare: SpareChild) -> None:
    child = spare.take()
    spare.leave(child)
    forked = os.fork()
    if not forked:
        other = spare.take()
        other.close()
        os._exit(other is child)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert spare.take() is child
    child.close()
