"""What rows are made of."""

__all__: list[str] = []
