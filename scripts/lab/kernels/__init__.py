"""The parts of `measure_kernels.py` and `measure_release.py`: families of processors, and records as files."""
