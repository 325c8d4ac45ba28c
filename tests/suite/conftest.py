"""Fixtures of the tests of suites."""

from tests.cli.conftest import workshop

__all__ = ["workshop"]
