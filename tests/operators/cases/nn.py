import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

CASES = [
    OperatorCase(op_type="Log", inputs=[Spread((2, 3), low=0.5)]),
    OperatorCase(op_type="Split", inputs=[Spread((2, 6)), np.array([2, 1, 3])], attributes={"axis": 1}, outputs=3),
]

BORDERS = [
    BorderCase(op_type="Log", inputs=[np.array([-1, 0, 1e-45, 1], np.float32)], bad=[1, 1, 0, 0]),
]
