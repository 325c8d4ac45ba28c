"""From which operands on kernels return exactly the limit of their function, in float32.

`scripts/measure_saturation.py` measured and printed it, and says how; not to be edited by hand.  Every float32 value
of magnitude 0.5 to 1024 was run, all of the larger ones, with ONNX Runtime 1.31.1 and PyTorch 2.13.0;
0.125 is added to what was measured.  Those of correct rounding were computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

__all__ = ["SATURATION"]

SATURATION: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "Sigmoid": {
        "onnxruntime": (-18.125, 18.125),
        "torch": (-88.875, 16.8125),
        "exact": (-104.0, 17.375),
    },
    "Tanh": {
        "onnxruntime": (-9.125, 9.125),
        "torch": (-9.1875, 9.1875),
        "exact": (-9.0625, 9.0625),
    },
    "Exp": {
        "onnxruntime": (-104.125, 88.875),
        "torch": (-104.125, 88.875),
        "exact": (-104.0, 88.75),
    },
    "Erf": {
        "onnxruntime": (-4.0625, 4.0625),
        "torch": (-4.0625, 4.0625),
        "exact": (-3.9375, 3.9375),
    },
    "Softplus": {
        "onnxruntime": (-104.125, inf),
        "torch": (-104.125, inf),
        "exact": (-104.0, inf),
    },
    "Softmax": {
        "onnxruntime": (-104.125, inf),
        "torch": (-104.125, inf),
        "exact": (-104.0, inf),
    },
}
"""By function and runtime: the operand up to which no result lies above the function's infimum, and the one from which
on none lies below its supremum.  For `Softmax` the operand is the distance to the largest element, the supremum aside.
"""
