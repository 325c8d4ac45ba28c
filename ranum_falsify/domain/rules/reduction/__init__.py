"""Rules of reductions along axes: sums, products, extremes."""

__all__: list[str] = []
