"""`python -m ranum_falsify` is the command `ranum-falsify`."""

from __future__ import annotations

from ranum_falsify.cli import run

__all__: list[str] = []

if __name__ == "__main__":
    run()
