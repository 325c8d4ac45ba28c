"""Reports: results as text and JSON, and counterexamples on disk."""

__all__: list[str] = []
