"""`python -m ranum_falsify` is the command `ranum-falsify`."""

from __future__ import annotations

from ranum_falsify.cli import run

if __name__ == "__main__":
    run()
