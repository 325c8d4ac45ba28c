"""Fixtures of the tests of rewrites."""

from collections.abc import Iterator

import pytest

from tests.rewrite.transform_kit import temporary_passes


@pytest.fixture(autouse=True)
def no_pass_stays() -> Iterator[None]:
    """Passes that a test registers are gone after it."""
    with temporary_passes():
        yield
