"""Options of `doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from ranum_falsify.cli.options.shared import CommonOptions, SelfCheck

__all__ = ["DoctorOptions"]


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(CommonOptions):
    """What `doctor` does: whether it checks the installed kernels."""

    self_check: SelfCheck = True
