import numpy as np

from tests.operators.cases.exponential import around
from tests.operators.harness import BorderCase, OperatorCase, Spread

INF = np.inf
INSIDE = Spread((2, 3), low=-0.9, high=0.9)
RANGES = {
    "Sin": Spread((2, 3), low=-20, high=20),
    "Cos": Spread((2, 3), low=-20, high=20),
    "Tan": Spread((2, 3), low=-1.4, high=1.4),
    "Asin": INSIDE,
    "Acos": INSIDE,
    "Atan": Spread((2, 3), low=-20, high=20),
    "Sinh": Spread((2, 3)),
    "Cosh": Spread((2, 3)),
    "Tanh": Spread((2, 3)),
    "Asinh": Spread((2, 3), low=-20, high=20),
    "Acosh": Spread((2, 3), low=1.1, high=20),
    "Atanh": INSIDE,
}
OLDEST = {"Sinh": 9, "Cosh": 9, "Asinh": 9, "Acosh": 9, "Atanh": 9}
ONE = np.float32(1)
NEAR_ONE = np.array([np.nextafter(ONE, np.float32(0)), ONE, np.nextafter(ONE, np.float32(2))], np.float32)
HYPERBOLIC = {
    dtype: around(float(np.log(np.float64(np.finfo(dtype).max)) + np.log(2.0)), dtype)
    for dtype in (np.float16, np.float32)
}

CASES = [
    *(
        OperatorCase(op_type=op_type, inputs=[values], opset=opset)
        for op_type, values in RANGES.items()
        for opset in (OLDEST.get(op_type, 7), 22)
    ),
    OperatorCase(op_type="Tanh", inputs=[np.array([-30, 30, INF, -INF], np.float32)], name="ends", gradient=False),
]

BORDERS = [
    *(
        BorderCase(op_type=op_type, inputs=[np.array([INF, -INF, 1e30, 0], np.float32)], bad=[1, 1, 0, 0])
        for op_type in ("Sin", "Cos", "Tan")
    ),
    # The floats nearest to poles of the tangent, among them the worst of all float32.
    BorderCase(
        op_type="Tan",
        inputs=[np.array([np.pi / 2, -np.pi / 2, 3 * np.pi / 2, 1.6367e14, 16367173e12], np.float32)],
        bad=[0, 0, 0, 0, 0],
        name="poles",
    ),
    BorderCase(op_type="Tan", inputs=[np.array([177.5, -177.5, 177.0], np.float16)], bad=[1, 1, 0], name="half"),
    *(
        BorderCase(op_type=op_type, inputs=[sign * NEAR_ONE], bad=bad, name=f"at {sign}")
        for op_type, bad in (("Asin", [0, 0, 1]), ("Acos", [0, 0, 1]), ("Atanh", [0, 1, 1]))
        for sign in (np.float32(1), np.float32(-1))
    ),
    BorderCase(op_type="Acosh", inputs=[NEAR_ONE], bad=[1, 0, 0]),
    *(
        BorderCase(op_type=op_type, inputs=[np.array([INF, -INF], np.float32)], bad=[1, 1], name="infinite")
        for op_type in ("Asin", "Acos", "Atanh")
    ),
    BorderCase(op_type="Acosh", inputs=[np.array([INF, -INF], np.float32)], bad=[0, 1], name="infinite"),
    BorderCase(op_type="Acosh", inputs=[np.array([-INF, -1, 0], np.float32)], bad=[1, 1, 1], name="below"),
    *(
        BorderCase(op_type=op_type, inputs=[dtype(sign) * limit], bad=[0, 0, 1, 1], name=f"{dtype.__name__}-{sign}")
        for op_type in ("Sinh", "Cosh")
        for dtype, limit in HYPERBOLIC.items()
        for sign in (1, -1)
    ),
    *(
        BorderCase(op_type=op_type, inputs=[np.array([INF, -INF], np.float32)], bad=[0, 0], name="infinite")
        for op_type in ("Sinh", "Cosh", "Tanh", "Atan", "Asinh")
    ),
]
