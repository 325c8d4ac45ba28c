"""How far the kernels of each runtime stray from the functions that they approximate."""

from ranum_falsify.domain.kernels.envelopes import EXACT, VERSIONS, Envelope, envelope

__all__ = ["EXACT", "VERSIONS", "Envelope", "envelope"]
