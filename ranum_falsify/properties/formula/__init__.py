"""Formulas over terms, and the circuits that evaluate them on batches."""

__all__: list[str] = []
