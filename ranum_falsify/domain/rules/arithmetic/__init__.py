"""Rules of sums, products, quotients, remainders and extremes, element by element."""

__all__: list[str] = []
