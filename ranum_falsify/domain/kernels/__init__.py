"""Errors of each runtime's kernels, against the functions that they approximate."""

from ranum_falsify.domain.kernels.envelopes import (
    EXACT,
    Envelope,
    envelope,
    find_envelope,
    sums_in_half,
    updates_statistics,
)
from ranum_falsify.domain.kernels.records import Record, families, measured_versions, use_here, use_measured

__all__ = [
    "EXACT",
    "Envelope",
    "Record",
    "envelope",
    "families",
    "find_envelope",
    "measured_versions",
    "sums_in_half",
    "updates_statistics",
    "use_here",
    "use_measured",
]
