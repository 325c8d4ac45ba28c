"""Rules of sums of products: matrices, convolutions, integers."""

__all__: list[str] = []
