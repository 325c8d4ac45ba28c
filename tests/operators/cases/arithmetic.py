import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

INF, NAN = np.inf, np.nan
POSITIVE = Spread((2, 3), low=0.5)
INTEGERS = np.array([7, -7, 7, -7, 0, 5, -128])
DIVISORS = np.array([2, 2, -2, -2, 3, -9, 5])

LARGE = np.array([2**64 - 1, 2**64 - 1, 2**63, 2**63 + 5, 7, 2**63 - 1, 2**64 - 2], np.uint64)
DIVISORS_OF_LARGE = np.array([3, 2**64 - 1, 1, 2**63, 2**63, 2, 2**64 - 1], np.uint64)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def integers(op_type: str, dtype: type, *, fmod: int | None = None) -> OperatorCase:
    a, b = (INTEGERS, DIVISORS) if np.issubdtype(dtype, np.signedinteger) else (abs(INTEGERS), abs(DIVISORS))
    return OperatorCase(
        op_type=op_type,
        inputs=[a.astype(dtype), b.astype(dtype)],
        attributes={} if fmod is None else {"fmod": fmod},
        name=f"{dtype.__name__}{'' if fmod is None else f'-fmod{fmod}'}",
        gradient=False,
    )


CASES = [
    *(
        OperatorCase(op_type=op_type, inputs=[Spread((2, 3)), POSITIVE], opset=opset)
        for op_type in ("Add", "Sub", "Mul", "Div")
        for opset in (7, 13, 14)
    ),
    *(
        OperatorCase(op_type=op_type, inputs=[Spread((2, 1, 3)), Spread((4, 1), low=0.5)], name="broadcast")
        for op_type in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Sum", "Mean")
    ),
    *(
        OperatorCase(
            op_type=op_type,
            inputs=[Spread((5,), np.float16), Spread((), np.float16, low=0.5)],
            name="half",
            gradient=False,
        )
        for op_type in ("Add", "Sub", "Mul", "Div")
    ),
    *(
        integers(op_type, dtype)
        for op_type in ("Add", "Sub", "Mul", "Div")
        for dtype in (np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64)
    ),
    *(
        integers("Mod", dtype, fmod=fmod)
        for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
        for fmod in (0, 1)
    ),
    *(
        OperatorCase(op_type=op_type, inputs=[LARGE, DIVISORS_OF_LARGE], name="beyond int64", gradient=False)
        for op_type in ("Div", "Mod", "Min", "Max", "Mul", "Sub")
    ),
    *(
        OperatorCase(op_type=op_type, inputs=[LARGE], name="beyond int64", gradient=False)
        for op_type in ("Abs", "Sign")
    ),
    OperatorCase(
        op_type="Mod",
        inputs=[f32(5.3, -5.3, 5.3, -5.3, INF), f32(2, 2, -2, -2, 2)],
        attributes={"fmod": 1},
        name="signs",
        gradient=False,
    ),
    OperatorCase(op_type="Mod", inputs=[Spread((4, 3)), Spread((3,), low=2.5, high=4.0)], attributes={"fmod": 1}),
    OperatorCase(op_type="Reciprocal", inputs=[POSITIVE], opset=13),
    OperatorCase(op_type="Reciprocal", inputs=[Spread((3,), np.float16, low=0.5)], name="half", gradient=False),
    *(
        OperatorCase(op_type=op_type, inputs=[Spread((2, 3))], opset=opset, name="float")
        for op_type, opset in (("Abs", 7), ("Abs", 13), ("Neg", 7), ("Neg", 13))
    ),
    OperatorCase(op_type="Sign", inputs=[f32(-2, -0.0, 0, 3, INF, -INF)], opset=9, gradient=False),
    *(
        OperatorCase(op_type=op_type, inputs=[Spread((6,), dtype, low=-9, high=9)], name=dtype.__name__, gradient=False)
        for op_type in ("Abs", "Neg", "Sign")
        for dtype in (np.int8, np.int32, np.int64, np.float64)
    ),
    *(
        OperatorCase(op_type=op_type, inputs=[np.array([0, 5, 2**31], dtype)], name=dtype.__name__, gradient=False)
        for op_type in ("Abs", "Sign")
        for dtype in (np.uint32, np.uint64)
    ),
    *(
        OperatorCase(op_type=op_type, inputs=[Spread((2, 3))] * count, opset=opset, name=f"of {count}")
        for op_type in ("Min", "Max", "Sum", "Mean")
        for count, opset in ((1, 8), (3, 13))
    ),
    *(
        OperatorCase(
            op_type=op_type,
            inputs=[Spread((4,), dtype, low=0, high=99), Spread((4,), dtype, low=0, high=99)],
            name=dtype.__name__,
            gradient=False,
        )
        for op_type in ("Min", "Max")
        for dtype in (np.int32, np.int64, np.uint32, np.uint64, np.float16, np.float64)
    ),
    *(
        OperatorCase(op_type=op_type, inputs=[f32(NAN, 1, NAN), f32(1, NAN, NAN)], name="NaN", gradient=False)
        for op_type in ("Min", "Max")
    ),
]

BORDERS = [
    BorderCase(op_type="Div", inputs=[f32(1, 0, -1, 1, 1, 0), f32(0, 0, -0.0, 1e-45, 1, 1)], bad=[1, 1, 1, 1, 0, 0]),
    BorderCase(op_type="Div", inputs=[f32(INF, -INF, 1), f32(0, 0, INF)], bad=[0, 0, 0], name="infinite dividend"),
    BorderCase(op_type="Div", inputs=[f32(INF, INF, 0), f32(INF, 2, 0)], bad=[1, 0, 1], name="infinity by infinity"),
    BorderCase(op_type="Div", inputs=[f32(3e38, 3e38), f32(0.5, 1)], bad=[1, 0], name="overflow"),
    BorderCase(
        op_type="Div",
        inputs=[np.array([6e4, 6e4], np.float16), np.array([0.5, 1], np.float16)],
        bad=[1, 0],
        name="half",
    ),
    BorderCase(op_type="Reciprocal", inputs=[f32(0, -0.0, 2.0**-128, 2.0**-127, 1)], bad=[1, 1, 1, 0, 0]),
    BorderCase(op_type="Reciprocal", inputs=[f32(INF, -INF)], bad=[0, 0], name="infinite"),
    BorderCase(op_type="Mod", inputs=[f32(1, 0, 5), f32(0, 0, 2)], bad=[1, 1, 0], attributes={"fmod": 1}),
    BorderCase(op_type="Mod", inputs=[f32(INF, 1), f32(2, INF)], bad=[1, 0], attributes={"fmod": 1}, name="infinite"),
    *(
        BorderCase(op_type=op_type, inputs=[f32(3e38, -3e38, 1), f32(second, -second, 1)], bad=[1, 1, 0])
        for op_type, second in (("Add", 3e38), ("Sub", -3e38), ("Mul", 2.0), ("Sum", 3e38), ("Mean", 3e38))
    ),
    *(
        BorderCase(op_type=op_type, inputs=[f32(INF, 1), f32(second, 1)], bad=[1, 0], name="NaN of infinities")
        for op_type, second in (("Add", -INF), ("Sub", INF), ("Mul", 0.0), ("Sum", -INF), ("Mean", -INF))
    ),
    BorderCase(op_type="Add", inputs=[f32(INF, 1), f32(INF, 1)], bad=[0, 0], name="infinity alone"),
]
