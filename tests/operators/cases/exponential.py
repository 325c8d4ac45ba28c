import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

INF = np.inf
POSITIVE = Spread((2, 3), low=0.3, high=3.0)
THIRD = 1 / 3


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def around(value: float, dtype: type) -> np.ndarray:
    """Return the two floats below and the two above the largest float that is at most a value."""
    center = dtype(value)
    if float(center) > value:
        center = np.nextafter(center, dtype(-INF))
    above = np.nextafter(center, dtype(INF))
    return np.array([np.nextafter(center, dtype(-INF)), center, above, np.nextafter(above, dtype(INF))], dtype)


def power(x: Spread | np.ndarray, y: Spread | np.ndarray, name: str, **more: object) -> OperatorCase:
    return OperatorCase(op_type="Pow", inputs=[x, y], name=name, **more)  # type: ignore[arg-type]


CASES = [
    *(OperatorCase(op_type="Log", inputs=[POSITIVE], opset=opset) for opset in (7, 13)),
    *(OperatorCase(op_type="Sqrt", inputs=[POSITIVE], opset=opset) for opset in (7, 13)),
    *(OperatorCase(op_type="Exp", inputs=[Spread((2, 3))], opset=opset) for opset in (7, 13)),
    *(OperatorCase(op_type="Erf", inputs=[Spread((2, 3))], opset=opset) for opset in (9, 13)),
    *(
        OperatorCase(op_type=op_type, inputs=[Spread((7,), dtype, low=0.3)], name=dtype.__name__, gradient=False)
        for op_type in ("Log", "Sqrt", "Exp")
        for dtype in (np.float16, np.float64)
    ),
    *(power(POSITIVE, Spread((3,)), "broadcast", opset=opset) for opset in (7, 12, 13, 15)),
    *(
        power(Spread((2, 3), low=0.3), np.array(y, np.float32), f"constant {y}", constants=frozenset({1}))
        for y in (2.0, 3.0, 0.5, -1.0, -2.0, 0.0, 1.7)
    ),
    power(Spread((3,)), np.full((1, 1), 2.0, np.float32), "constant of higher rank", constants=frozenset({1})),
    power(Spread((3,)), np.array([2.0, 3.0, 4.0], np.float32), "constants", constants=frozenset({1})),
    power(f32(-2, 2, 0, -0.0), np.array([3, -2, 0, 2], np.int64), "float to integer", gradient=False),
    power(np.array([2, 3, 0, 2, 1, -3], np.int32), f32(-1, 2.5, 0, 3, -1, 3), "integer to float", gradient=False),
    power(np.array([2, -3, 7, 1], np.int64), np.array([10, 3, 0, -1], np.int64), "integers", gradient=False),
    power(np.array([2, 3], np.int32), np.array([4, 5], np.int64), "integers of two types", gradient=False),
    power(f32(-INF, -INF, INF, 0, -1, 2), f32(THIRD, -0.5, -1, 0, INF, -INF), "infinite", gradient=False),
    power(np.array([2, 9], np.float16), np.array([0.5, 2], np.float16), "half", gradient=False, oracle="reference"),
    power(np.array([2, 9], np.float64), f32(0.5, 2), "two floats", gradient=False),
]

BORDERS = [
    BorderCase(op_type="Log", inputs=[f32(-INF, INF)], bad=[1, 0], name="infinite"),
    BorderCase(op_type="Log", inputs=[f32(-1, -1e-45, -0.0, 0, 1e-45)], bad=[1, 1, 1, 1, 0]),
    BorderCase(op_type="Sqrt", inputs=[f32(-1, -1e-45, -0.0, 0, 1e-45, 1)], bad=[1, 1, 0, 0, 0, 0]),
    BorderCase(op_type="Sqrt", inputs=[f32(-INF, INF)], bad=[1, 0], name="infinite"),
    *(
        BorderCase(
            op_type="Exp",
            inputs=[around(float(np.log(np.float64(np.finfo(dtype).max))), dtype)],
            bad=[0, 0, 1, 1],
            name=dtype.__name__,
        )
        for dtype in (np.float16, np.float32, np.float64)
    ),
    BorderCase(op_type="Exp", inputs=[f32(INF, -INF, 88)], bad=[0, 0, 0], name="infinite"),
    BorderCase(
        op_type="Pow",
        inputs=[f32(-8, -8, -8, 8, -0.0, 0, 0, 0), f32(THIRD, 3, -3, THIRD, THIRD, -1, 0, -0.5)],
        bad=[1, 0, 0, 0, 0, 1, 0, 1],
    ),
    BorderCase(op_type="Pow", inputs=[f32(1e20, 1e-20, 10), f32(2, -2, 38)], bad=[1, 1, 0], name="overflow"),
    BorderCase(
        op_type="Pow",
        inputs=[f32(-INF, -INF, -1, 0, -2), f32(THIRD, -0.5, INF, -INF, 0.5)],
        bad=[0, 0, 0, 0, 1],
        name="infinite",
    ),
    BorderCase(op_type="Pow", inputs=[f32(0, -2, 0), np.array([-1, 3, 2])], bad=[1, 0, 0], name="integer exponent"),
]
