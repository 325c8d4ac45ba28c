"""The parts of `measure_kernels.py`: functions, runtimes, the record of errors."""
