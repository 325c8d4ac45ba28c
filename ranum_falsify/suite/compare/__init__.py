"""Compare the results of two runs, or of two tools."""

__all__: list[str] = []
