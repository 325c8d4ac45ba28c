"""The check of the installed kernels, with what this machine says about the choice of kernels; and the user's cache."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ranum_falsify.config import Runtime
from ranum_falsify.errors import SaveError
from ranum_falsify.saving import cache_folder, save_together
from ranum_falsify.selfcheck import Outcome, measure_here, self_check


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


_SETTINGS = ("DNNL_MAX_CPU_ISA", "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
"""Variables by which users choose kernels, in addition to what PyTorch itself reports about its choice."""


def check_kernels() -> Outcome:
    """Compare the installed kernels with what was measured, once per machine; larger errors widen all bounds."""
    return self_check(cache_folder(), _chosen_by())


def measure_kernels(runtime: Runtime) -> Iterator[tuple[str, float]]:
    """Measure the installed kernels of a runtime, and keep the record in the user's cache; see `measure_here`."""
    folder = cache_folder()
    if folder is None:
        raise SaveError("there is no place to keep a measurement: the user has no home; set XDG_CACHE_HOME")
    yield from measure_here(runtime, folder, _chosen_by())


def _chosen_by() -> dict[str, str]:
    return {name: os.environ[name] for name in _SETTINGS if name in os.environ}
