"""Workers of a cluster, on Dask."""

__all__: list[str] = []
