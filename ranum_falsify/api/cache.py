"""Cache folders that persist between runs."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import platformdirs

from ranum_falsify.errors import SaveError
from ranum_falsify.saving import save_together


def cache_folder() -> Path | None:
    """Return the folder of this program in the user's cache, which need not exist; None where the user has no home."""
    try:
        return platformdirs.user_cache_path("ranum-falsify", appauthor=False)
    except RuntimeError:
        return None


def keep_inputs(inputs: Mapping[str, np.ndarray]) -> Path | None:
    """Write inputs of a network, by name, which a fault of this program is about, to a file that `numpy.load` reads.

    Returns:
        The file, named by what it holds; None where there is no place for it.
    """
    folder, stream = cache_folder(), io.BytesIO()
    if folder is None:
        return None
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in inputs.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
    path = folder / "departures" / f"{hashlib.sha256(stream.getvalue()).hexdigest()[:16]}.npz"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_together({path: stream.getvalue()})
    except (OSError, SaveError):
        return None
    return path
