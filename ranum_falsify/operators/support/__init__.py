"""Building blocks of rows."""

__all__: list[str] = []
