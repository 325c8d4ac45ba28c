"""What rules are made of."""

__all__: list[str] = []
