"""Falsify numeric validity properties of neural networks given as ONNX.

Importing this package imports DNNV, made to work beside current libraries; see
`ranum_falsify.upstream`.
"""

__version__ = "0.1.0"
__all__ = ["__version__", "upstream"]

from ranum_falsify import upstream
