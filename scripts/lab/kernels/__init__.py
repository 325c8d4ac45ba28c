"""What `measure_kernels.py` is made of: the functions, the runtimes, the record of errors."""
