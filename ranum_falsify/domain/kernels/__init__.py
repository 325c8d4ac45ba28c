"""How far the kernels of each runtime stray from the functions that they approximate."""

from ranum_falsify.domain.kernels.envelopes import EXACT, Envelope, envelope, find_envelope
from ranum_falsify.domain.kernels.records import Record, families, use_here

__all__ = ["EXACT", "Envelope", "Record", "envelope", "families", "find_envelope", "use_here"]
