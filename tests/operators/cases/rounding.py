import numpy as np

from tests.operators.harness import OperatorCase

VALUES = [-2.5, -1.5, -0.5, -0.3, -0.0, 0.0, 0.5, 1.5, 2.5, 2.7, 8388609.0, np.inf, -np.inf, np.nan]

CASES = [
    OperatorCase(op_type=op_type, inputs=[np.array(VALUES, dtype)], opset=opset, name=dtype.__name__, gradient=False)
    for op_type, opset in (("Ceil", 7), ("Ceil", 13), ("Floor", 7), ("Floor", 13), ("Round", 11), ("Round", 22))
    for dtype in (np.float32, np.float64)
]
