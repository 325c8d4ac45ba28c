"""Verification of a pass: structure, samples, and no new invalid input."""

__all__: list[str] = []
