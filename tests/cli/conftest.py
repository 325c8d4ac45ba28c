"""Fixtures of the tests of the command line."""

from pathlib import Path

import pytest

from tests.cli.workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Workshop:
    """A folder with property and model files, and the command in this process."""
    return Workshop(tmp_path, capsys)
