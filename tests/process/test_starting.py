"""What keeps starts and ends short."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from ranum_falsify.process.starting import pause_collector, pause_for_imports


def output_of(code: str) -> list[str]:
    """Return what a program prints, word by word."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_the_collector_goes_on_after_an_error() -> None:
    with pytest.raises(KeyError), pause_collector():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_what_is_imported_is_old_at_once_and_garbage_of_it_is_found() -> None:
    class Node:
        def __init__(self) -> None:
            self.itself = self

    with pause_for_imports():
        kept, lost = Node(), weakref.ref(Node())
    assert any(kept is one for one in gc.get_objects(generation=2)) and lost() is not None
    gc.collect()
    assert lost() is None


def test_what_a_process_has_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with pause_for_imports():
            pass
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()


@pytest.mark.slow
def test_the_collector_waits_while_the_package_is_imported() -> None:
    code = """
import gc, ranum_falsify
def count():  # without those of what is young, of which one may follow
    return sum(one['collections'] for one in gc.get_stats()[1:])
before = count()
ranum_falsify.check
print(count() - before)
"""
    assert output_of(code) == ["0"]


@pytest.mark.slow
def test_at_the_end_the_collector_does_not_look_at_the_exporter_again() -> None:
    code = """
import atexit, gc, sys, torch
atexit.register(lambda: print((gc.get_freeze_count() > 10_000) is ("triton" not in sys.modules)))
from ranum_falsify.api.exporting import export
from ranum_falsify.errors import ModuleError
try:
    export(torch.nn.Identity(), (1,))
except ModuleError:
    print(gc.get_freeze_count())
"""
    assert output_of(code) == ["0", "True"]


@pytest.mark.slow
def test_a_script_that_checks_a_module_ends_in_silence(repository: Path, tmp_path: Path) -> None:
    readme = (repository / "README.md").read_text()
    (tmp_path / "dice.py").write_text(readme.partition('title="dice.py"\n')[2].partition("```")[0])
    done = subprocess.run([sys.executable, "dice.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("violated") and done.stderr == ""


def test_threads_of_pytorch_wait_no_longer_than_they_work_for_unless_users_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    code = "import ranum_falsify, os; print(os.environ['GOMP_SPINCOUNT'])"
    assert output_of(code) == ["500"]
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert output_of(code) == ["7"]
