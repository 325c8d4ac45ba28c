"""Where things are kept from one run to the next."""

from __future__ import annotations

from pathlib import Path

import platformdirs

__all__ = ["cache_folder"]


def cache_folder() -> Path | None:
    """Return the folder of this program in the user's cache, which need not exist; None where the user has no home."""
    try:
        return platformdirs.user_cache_path("ranum-falsify", appauthor=False)
    except RuntimeError:
        return None
