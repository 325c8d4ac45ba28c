"""Rules of classical models: trees, support vectors, and the scores that they give."""

__all__: list[str] = []
