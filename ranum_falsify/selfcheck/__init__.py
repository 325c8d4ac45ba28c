"""The kernels installed on this machine, compared with the records."""

from ranum_falsify.selfcheck.family import family_here, processor
from ranum_falsify.selfcheck.outcome import (
    LIBRARIES,
    Outcome,
    list_unmeasured,
    measure_here,
    release_of,
    self_check,
    unmeasured,
)

__all__ = [
    "LIBRARIES",
    "Outcome",
    "family_here",
    "list_unmeasured",
    "measure_here",
    "processor",
    "release_of",
    "self_check",
    "unmeasured",
]
