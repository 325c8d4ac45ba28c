"""The check of the installed kernels, with what this machine says about the choice of kernels."""

from __future__ import annotations

import os

from ranum_falsify.api.cache import cache_folder
from ranum_falsify.selfcheck import Outcome, self_check

__all__ = ["check_kernels"]

_SETTINGS = ("DNNL_MAX_CPU_ISA", "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
"""Variables by which users choose kernels, in addition to what PyTorch itself reports about its choice."""


def check_kernels() -> Outcome:
    """Compare the installed kernels with what was measured, once per machine; larger errors widen all bounds."""
    return self_check(cache_folder(), {name: os.environ[name] for name in _SETTINGS if name in os.environ})
