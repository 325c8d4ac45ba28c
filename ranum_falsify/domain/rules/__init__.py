"""Rules of operators by their mathematics: what bounds of the operands say of the result."""

__all__: list[str] = []
