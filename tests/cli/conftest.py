"""Fixtures of the tests of the command line."""

import math
from pathlib import Path

import pytest

from tests.cli.workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A folder with property and model files, and the command in this process.

    Where other work delays the command, it does not say how far it has got.
    """
    monkeypatch.setattr("ranum_falsify.results.progress._SILENCE", math.inf)
    return Workshop(tmp_path, capsys)
