"""What the scripts share: measurements, worker processes, mutated files, runtimes' kernels and made networks."""

__all__: list[str] = []
