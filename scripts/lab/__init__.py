"""Code that the scripts share: measurements, worker processes, mutated files, runtimes' kernels, generated networks."""

__all__: list[str] = []
