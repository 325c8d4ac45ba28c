"""What keeps starts and ends short."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from ranum_falsify.process.starting import pause_collector


def output_of(code: str) -> list[str]:
    """Return what a program prints, word by word."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_the_collector_goes_on_after_an_error() -> None:
    with pytest.raises(KeyError), pause_collector():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


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
import atexit, gc, torch
atexit.register(lambda: print(gc.get_freeze_count() > 10_000))
from ranum_falsify.api.exporting import export
from ranum_falsify.errors import ModuleError
try:
    export(torch.nn.Identity(), (1,))
except ModuleError:
    print(gc.get_freeze_count())
"""
    assert output_of(code) == ["0", "True"]
