"""How far kernels stray, measured: the functions to any precision, the operands that are run, the errors found."""
