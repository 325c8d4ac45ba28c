"""Falsify numeric validity properties of neural networks given as ONNX.

Importing this package imports DNNV, made to work beside current libraries; see
`ranum_falsify.upstream`.
"""

from ranum_falsify import upstream

__all__ = ["upstream"]
