"""Searches in these tests are small."""

import pytest


@pytest.fixture(autouse=True)
def _on_one_thread(one_thread: None) -> None:
    """Every test of the search runs torch on one thread."""
