"""`python -m ranum_falsify` is the command `ranum-falsify`."""

from __future__ import annotations

import sys

from ranum_falsify.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
