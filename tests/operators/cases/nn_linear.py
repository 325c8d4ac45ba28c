"""Matrix products and dropout."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

LARGEST = np.finfo(np.float32).max


def gemm(
    name: str, a: tuple[int, ...], b: tuple[int, ...], c: Any = None, opset: int = 21, **rest: Any
) -> OperatorCase:
    inputs = [Spread(a), Spread(b)] if c is None else [Spread(a), Spread(b), Spread(c)]
    return OperatorCase(op_type="Gemm", name=name, inputs=inputs, attributes=rest, opset=opset)


def matmul(a: tuple[int, ...], b: tuple[int, ...], dtype: Any = np.float32, **rest: Any) -> OperatorCase:
    name = f"{'x'.join(map(str, a))}-{'x'.join(map(str, b))}-{np.dtype(dtype).name}"
    low = 0 if np.dtype(dtype).kind == "u" else -9
    inputs = [Spread(a, dtype, low, 9), Spread(b, dtype, low, 9)]
    gradient = np.dtype(dtype).kind == "f"
    return OperatorCase(op_type="MatMul", name=name, inputs=inputs, gradient=gradient, **rest)


def dropout(
    name: str, *rest: Any, opset: int, outputs: Any = 2, gradient: bool = True, **attributes: Any
) -> OperatorCase:
    return OperatorCase(
        op_type="Dropout",
        name=name,
        inputs=[Spread((2, 3)), *rest],
        attributes=attributes,
        opset=opset,
        outputs=outputs,
        gradient=gradient,
    )


RATIO, TRAINING = np.float32(0.25), np.array(True)

CASES = [
    gemm("plain", (2, 3), (3, 4), (4,)),
    gemm("no-c", (2, 3), (3, 4), opset=11),
    gemm("transposed", (3, 2), (4, 3), (2, 4), transA=1, transB=1),
    gemm("linear", (2, 3), (4, 3), (4,), transB=1, opset=7),
    gemm("column", (2, 3), (3, 4), (2, 1)),
    gemm("scalar", (2, 3), (3, 4), ()),
    gemm("scaled", (2, 3), (3, 4), (1, 4), alpha=0.5, beta=-2.0),
    gemm("scaled-row", (2, 3), (4, 3), (4,), alpha=0.5, beta=2.0, transB=1),
    gemm("without-c", (2, 3), (4, 3), (4,), beta=0.0, transB=1),
    OperatorCase(
        op_type="Gemm",
        name="integers",
        inputs=[Spread((2, 3), np.int32), Spread((3, 2), np.int32), Spread((2,), np.int32)],
        attributes={"alpha": 2.0},
        gradient=False,
        oracle="reference",
    ),
    matmul((2, 3), (3, 4)),
    matmul((3,), (3,)),
    matmul((3,), (3, 4)),
    matmul((2, 3), (3,)),
    matmul((2, 2, 3), (3,)),
    matmul((3,), (2, 3, 4)),
    matmul((5, 1, 2, 3), (4, 3, 2)),
    matmul((2, 3), (3, 4), np.float64),
    matmul((2, 3), (3, 4), np.float16),
    matmul((2, 3), (3, 4), np.int32),
    matmul((2, 3), (3, 4), np.int64),
    matmul((2, 3), (3, 4), np.uint32),
    OperatorCase(
        op_type="MatMulInteger",
        name="zero-points",
        inputs=[
            Spread((2, 4), np.uint8, 0, 255),
            Spread((4, 3), np.uint8, 0, 255),
            np.array(12, np.uint8),
            np.array(200, np.uint8),
        ],
        gradient=False,
    ),
    OperatorCase(
        op_type="MatMulInteger",
        name="per-column",
        inputs=[
            Spread((2, 4), np.uint8, 0, 255),
            Spread((4, 3), np.int8, -128, 127),
            None,
            np.array([1, -3, 5], np.int8),
        ],
        constants=frozenset({3}),
        gradient=False,
    ),
    OperatorCase(
        op_type="MatMulInteger",
        name="plain",
        inputs=[Spread((2, 2, 4), np.uint8, 0, 255), Spread((4, 3), np.int8, -128, 127)],
        gradient=False,
    ),
    dropout("old", opset=7, outputs=1),
    dropout("mask", opset=10, ratio=0.3),
    dropout("inference", RATIO, opset=13),
    dropout("not-training", RATIO, np.array(False), opset=22),
    dropout("training", RATIO, TRAINING, opset=13, gradient=False),
    dropout("keeps-all", np.float32(0), TRAINING, opset=13),
]

BORDERS = [
    BorderCase(
        op_type="MatMul",
        name="overflow",
        inputs=[np.array([[1.0], [1.1]], np.float32), np.array([[LARGEST, 1.0]], np.float32)],
        bad=[[False, False], [True, False]],
    ),
    BorderCase(
        op_type="MatMul",
        name="cancelled-infinity",
        inputs=[np.array([[np.inf, np.inf]], np.float32), np.array([[1.0], [-1.0]], np.float32)],
        bad=True,
    ),
    BorderCase(
        op_type="Gemm",
        name="overflow",
        inputs=[np.array([[LARGEST]], np.float32), np.array([[1.0]], np.float32), np.array([1e32], np.float32)],
        bad=True,
    ),
    BorderCase(
        op_type="Gemm",
        name="largest",
        inputs=[np.array([[LARGEST]], np.float32), np.array([[1.0]], np.float32), np.array([1.0], np.float32)],
        bad=False,
    ),
]
