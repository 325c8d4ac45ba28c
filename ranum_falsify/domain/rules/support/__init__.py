"""Building blocks of rules."""

__all__: list[str] = []
