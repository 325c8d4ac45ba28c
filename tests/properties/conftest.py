"""Files of properties for the tests that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """A function that writes a property file."""

    def write_file(text: str | bytes, name: str = "p.py") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_file
