"""The child process that answers requests, with workers written here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ranum_falsify.network.child import Child, ChildDeathError

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
