from collections.abc import Iterator

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

INF = np.inf
ROWS = [[-INF, -INF, -INF], [-INF, 0, -INF], [INF, 0, 1], [INF, -INF, 0], [3e38, 3e38, 3e38], [-3e38, -3e38, -3e38]]


def along(op_type: str) -> Iterator[OperatorCase]:
    smooth = op_type != "Hardmax"
    for opset in (7, 11, 13):
        for axis in (None, 0, 1, 2) if opset < 11 else (None, 0, 1, 2, -1, -2):
            yield OperatorCase(
                op_type=op_type,
                inputs=[Spread((2, 3, 4))],
                attributes={} if axis is None else {"axis": axis},
                opset=opset,
                name=f"axis {axis}",
                gradient=smooth,
            )
    yield OperatorCase(
        op_type=op_type,
        inputs=[Spread((2, 3), np.float64)],
        name="double",
        gradient=False,
        oracle="onnxruntime" if smooth else "reference",
    )


CASES = [
    *along("Softmax"),
    *along("LogSoftmax"),
    *along("Hardmax"),
    OperatorCase(op_type="Hardmax", inputs=[np.array([[3, 1, 3], [0, 0, 0]], np.float32)], name="ties", gradient=False),
    OperatorCase(
        op_type="Softmax", inputs=[np.array([[1e4, -1e4], [-INF, 0], [-88, 0]], np.float32)], name="far", gradient=False
    ),
    OperatorCase(op_type="Softmax", inputs=[Spread((2, 3), np.float16)], name="half", gradient=False),
]

BORDERS = [
    *(
        BorderCase(
            op_type=op_type,
            inputs=[np.array(ROWS, np.float32)],
            bad=np.repeat([[1], [0], [1], [1], [0], [0]], 3, axis=1),
            name="infinite rows",
        )
        for op_type in ("Softmax", "LogSoftmax")
    ),
    BorderCase(
        op_type="Softmax",
        inputs=[np.array(ROWS, np.float32).T.copy()],
        attributes={"axis": 0},
        bad=np.repeat([[1, 0, 1, 1, 0, 0]], 3, axis=0),
        name="columns",
    ),
    # As one row of six, a row of -Inf is no violation.
    BorderCase(
        op_type="Softmax", inputs=[np.array([[[-INF, -INF], [0, 1]]], np.float32)], opset=11, bad=False, name="flat"
    ),
    BorderCase(
        op_type="Softmax",
        inputs=[np.array([[[-INF, -INF], [-INF, -INF]]], np.float32)],
        opset=11,
        bad=True,
        name="flat",
    ),
    BorderCase(op_type="Softmax", inputs=[np.array([[1e38, -1e38]], np.float32)], bad=False),
    BorderCase(
        op_type="LogSoftmax",
        inputs=[np.array([[3e38, -3e38], [1, 2]], np.float32)],
        bad=[[0, 1], [0, 0]],
        name="overflow",
    ),
]
