"""Children that a nursery forks, beside what tests/network/test_child.py says of children of either kind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from ranum_falsify.network.child import Child, ChildDeathError
from ranum_falsify.network.nursery import Nursery
from tests.network.test_child import WORKER, in_fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")

COUNTED = """
import os

IMPORTED = os.getpid()

def service():
    return lambda command, argument: (IMPORTED, os.getpid(), os.getcwd())
"""


@pytest.fixture
def nursery(tmp_path: Path) -> SimpleNamespace:
    """A nursery whose children have a worker of the tests, and what makes one."""
    path = tmp_path / "worker.py"
    path.write_text(COUNTED)
    nursery = Nursery(path)
    return SimpleNamespace(path=path, make=lambda: Child(path, start=nursery.start))


@contextmanager
def closing(*children: Child) -> Iterator[None]:
    with ExitStack() as stack:
        for child in children:
            stack.callback(child.close)
        yield


def ask(child: Child) -> tuple[int, int, str]:
    kind, answer = child.ask("look", None, timeout=60)
    assert kind == "ok" and answer[1] == child.pid
    found: tuple[int, int, str] = answer
    return found


def test_the_worker_is_imported_once_for_all_children_but_the_first(
    nursery: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = nursery.make(), nursery.make()
    monkeypatch.chdir(tmp_path)
    third = nursery.make()
    with closing(first, second, third):
        assert ask(first)[0] == first.pid
        assert ask(second)[0] == ask(third)[0] != second.pid
        assert len({first.pid, second.pid, third.pid, ask(second)[0], os.getpid()}) == 5
        assert ask(third)[2] == str(tmp_path) != ask(second)[2]


def test_a_nursery_that_was_killed_is_replaced_and_its_children_live_on(nursery: SimpleNamespace) -> None:
    first, second = nursery.make(), nursery.make()
    with closing(first, second):
        killed = ask(second)[0]
        os.kill(killed, signal.SIGKILL)
        psutil.Process(killed).wait(timeout=60)
        assert ask(second)[0] == killed
        third = nursery.make()
        with closing(third):
            assert ask(third)[0] not in (killed, third.pid)
    assert not psutil.pid_exists(third.pid)


def test_a_forked_process_has_a_nursery_of_its_own(nursery: SimpleNamespace) -> None:
    first, second = nursery.make(), nursery.make()
    with closing(first, second):
        ours = ask(second)[0]

        def elsewhere() -> bool:
            children = [nursery.make(), nursery.make()]
            with closing(*children):
                return ask(children[0])[0] == children[0].pid and ask(children[1])[0] not in (ours, children[1].pid)

        assert in_fork(elsewhere)
        assert ask(second)[0] == ours


def test_a_worker_that_cannot_start_is_a_death(tmp_path: Path) -> None:
    nursery = Nursery(tmp_path / "none.py")
    for _ in range(3):
        child = Child(tmp_path / "none.py", start=nursery.start)
        with pytest.raises(ChildDeathError):
            child.ask("keep", 1, timeout=60)
        assert not child.folder.exists()


@pytest.mark.parametrize("end", [lambda child: child.close(), lambda child: os.kill(child.pid, signal.SIGKILL)])
def test_the_end_of_one_child_is_that_of_no_other(tmp_path: Path, end: Callable[[Child], None]) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    nursery = Nursery(tmp_path / "worker.py")
    children = [Child(tmp_path / "worker.py", start=nursery.start) for _ in range(4)]
    with closing(*children):
        for number, child in enumerate(children):
            assert child.ask("keep", number, timeout=60) == ("ok", [number])
        end(children[1])
        children[2].ask("keep", 5, timeout=60)
        assert children[3].ask("keep", 6, timeout=60) == ("ok", [3, 6])
        assert children[2].is_alive and children[0].is_alive
    assert not any(child.is_alive or child.folder.exists() for child in children)
