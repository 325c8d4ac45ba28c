"""Rules of operators by their mathematics: from bounds of the operands to bounds of the result."""

__all__: list[str] = []
