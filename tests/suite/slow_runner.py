"""A runner for tests that takes long to get ready."""

import time

__all__ = ["warm_up"]


def warm_up() -> None:
    """Take long."""
    time.sleep(300)
