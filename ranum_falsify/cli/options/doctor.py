"""Options of `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ranum_falsify.cli.options.shared import CommonOptions, SelfCheck
from ranum_falsify.option import Switch

__all__ = ["DoctorOptions"]


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(CommonOptions):
    """What `doctor` does: whether it checks the installed kernels, or measures them.

    Attributes:
        measure: Measure the kernels of installed versions that were not measured on this family of processors (about 2
            minutes each, once per machine).
    """

    self_check: SelfCheck = True
    measure: Annotated[bool, Switch(in_files=False)] = False
