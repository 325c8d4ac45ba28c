import numpy as np

from tests.operators.harness import OperatorCase, Spread

SPECIAL = np.array([np.inf, -np.inf, np.nan, 0, 1e38], np.float32)
TYPES = (np.float32, np.float64, np.int32, np.int64)

CASES = [
    *(
        OperatorCase(
            op_type=op_type,
            inputs=[Spread((3, 4), dtype, low=-2, high=2), Spread((4,), dtype, low=-2, high=2)],
            opset=opset,
            name=dtype.__name__,
            gradient=False,
        )
        for op_type, opset in (
            ("Equal", 11),
            ("Equal", 19),
            ("Greater", 9),
            ("Greater", 13),
            ("Less", 9),
            ("Less", 13),
            ("GreaterOrEqual", 12),
            ("GreaterOrEqual", 16),
            ("LessOrEqual", 12),
            ("LessOrEqual", 16),
        )
        for dtype in TYPES
    ),
    *(
        OperatorCase(op_type=op_type, inputs=[SPECIAL, SPECIAL[::-1].copy()], name="special", gradient=False)
        for op_type in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
    ),
    *(
        OperatorCase(
            op_type=op_type,
            inputs=[np.array([0, 1, 200], dtype), np.array([1, 1, 3], dtype)],
            name=dtype.__name__,
            gradient=False,
            oracle="reference",
        )
        for op_type in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
        for dtype in (np.uint8, np.uint16, np.uint32, np.uint64)
    ),
    *(
        OperatorCase(
            op_type=op_type,
            inputs=[np.array([2**63, 1, 2**64 - 1], np.uint64), np.array([1, 2**63, 2**64 - 1], np.uint64)],
            name="beyond int64",
            gradient=False,
            oracle="reference",
        )
        for op_type in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
    ),
    OperatorCase(op_type="Equal", inputs=[Spread((5,), np.bool_), Spread((5,), np.bool_)], name="bool", gradient=False),
    *(
        OperatorCase(
            op_type="IsInf",
            inputs=[SPECIAL.astype(dtype)],
            attributes={"detect_negative": negative, "detect_positive": positive},
            opset=opset,
            name=f"{dtype.__name__}-{negative}{positive}",
            gradient=False,
        )
        for dtype, opset in ((np.float32, 10), (np.float64, 20))
        for negative in (0, 1)
        for positive in (0, 1)
    ),
    *(
        OperatorCase(op_type="IsNaN", inputs=[SPECIAL.astype(dtype)], opset=opset, name=dtype.__name__, gradient=False)
        for dtype, opset in ((np.float32, 9), (np.float16, 13), (np.float64, 20))
    ),
]
