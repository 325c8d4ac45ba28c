"""The kernels that are installed on this machine, held against the records."""
