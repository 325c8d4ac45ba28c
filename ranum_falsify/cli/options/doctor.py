"""Options of `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ranum_falsify.cli.options.shared import CommonOptions
from ranum_falsify.option_marks import Option


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(CommonOptions):
    """Show what proofs rest on here: processor, libraries, and the measurements of their kernels.

    Attributes:
        self_check: Compare the installed kernels with their measurements.
        measure: Measure the kernels of installed versions that have no measurements on this family of processors (about
            2 minutes each, once per machine).
    """

    self_check: Annotated[bool, Option(off="--no-self-check")] = True
    measure: Annotated[bool, Option(in_files=False)] = False
