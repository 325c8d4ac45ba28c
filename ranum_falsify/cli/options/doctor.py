"""Arguments of `doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ranum_falsify.cli.options.shared import add_self_check, make_parser

__all__ = ["DoctorOptions", "parse_doctor"]


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """What `doctor` does: whether it checks the installed kernels."""

    self_check: bool = True


def parse_doctor(arguments: Sequence[str]) -> DoctorOptions:
    """Return what `doctor` is asked for.

    Raises:
        UsageError: There is no such option.
    """
    parser = make_parser(
        "doctor",
        "Show what proofs depend on here: the processor, the libraries and what was measured of their kernels.",
    )
    add_self_check(parser)
    return DoctorOptions(self_check=parser.parse_args(arguments).self_check)
