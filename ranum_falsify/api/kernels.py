"""The check of the installed kernels, with what this machine says about the choice of kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ranum_falsify.api.cache import cache_folder
from ranum_falsify.config import Runtime
from ranum_falsify.errors import SaveError
from ranum_falsify.selfcheck import Outcome, measure_here, self_check

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
