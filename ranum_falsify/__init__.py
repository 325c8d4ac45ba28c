"""Falsify numeric validity properties of neural networks given as ONNX.

Importing this package imports DNNV, made to work beside current libraries; see
`ranum_falsify.upstream`.
"""

import os

# ONNX Runtime 1.31 tells its makers how it is used, and keeps a database for it, unless this is set when it is
# loaded; child processes inherit it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

__version__ = "0.1.0"
__all__ = ["__version__", "upstream"]

from ranum_falsify.errors import UpstreamMissingError

try:
    from ranum_falsify import upstream
except UpstreamMissingError:
    # The command line has to start in order to say this in one line.  Everything that needs DNNV imports
    # `upstream` first, and raises the error again.
    pass
