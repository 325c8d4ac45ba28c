"""The version, which pages, proofs and counterexamples name."""

from __future__ import annotations

__version__ = "1.0.0"
