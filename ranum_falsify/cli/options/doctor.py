"""Options of `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ranum_falsify.cli.options.shared import CommonOptions
from ranum_falsify.option import Option

__all__ = ["DoctorOptions"]


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(CommonOptions):
    """Show what proofs depend on here: the processor, the libraries and what was measured of their kernels.

    Attributes:
        self_check: Check the installed kernels against the measurements.
        measure: Measure the kernels of installed versions that were not measured on this family of processors (about 2
            minutes each, once per machine).
    """

    self_check: Annotated[bool, Option(off="--no-self-check")] = True
    measure: Annotated[bool, Option(in_files=False)] = False
