"""Falsify numeric validity properties of neural networks given as ONNX.

Importing this package imports DNNV, made to work beside current libraries; see
`ranum_falsify.upstream`.
"""

__version__ = "0.1.0"
__all__ = ["__version__", "upstream"]

from ranum_falsify.errors import UpstreamMissingError

try:
    from ranum_falsify import upstream
except UpstreamMissingError:
    # The command line has to start in order to say this in one line.  Everything that needs DNNV imports
    # `upstream` first, and raises the error again.
    pass
