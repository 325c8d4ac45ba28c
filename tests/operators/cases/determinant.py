"""Determinants."""

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

CASES = [
    OperatorCase(op_type="Det", name=str(size), inputs=[Spread((2, size, size))], opset=opset, tolerance=(1e-4, 1e-4))
    for size, opset in ((1, 11), (2, 11), (3, 22), (5, 22))
]

BORDERS = [
    BorderCase(op_type="Det", name=name, inputs=[np.diag([1e20, size]).astype(np.float32)], bad=bad)
    for name, size, bad in (("fits", 1e18, False), ("overflows", 1e19, True))
]
