from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tests.operators.harness import BorderCase, OperatorCase, Spread

FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
TYPES: list[Any] = [bool, *INTEGERS, *FLOATS]

VALUES = np.array(
    [
        *(0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 3.7, -3.7, 127.9, 128, 255.6, 256, 300.5, -129, -300, 32768, 40000),
        *(65504, 65519.9, 65520, 70000, -70000, 2147483520, 2147483648, 3e9, 4294967296, 9.2e18, 1e19, -1e19, 1e30),
        *(1e39, 1e300, np.inf, -np.inf, np.nan, 1e-8, 6e-8, 1e-46, 1.0001, 1.00390625, np.pi),
    ]
)
WHOLE = np.array(
    [0, 1, -1, 2, 127, 128, 255, 256, -129, 32767, 65535, 65536, 2**24 + 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
)


def values(dtype: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return (VALUES if dtype in FLOATS else WHOLE).astype(dtype)


def number(dtype: Any) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def fitting(x: np.ndarray, target: Any) -> np.ndarray:
    """Return floats with 0 for those that an integer type does not have, which kernels turn into any of its numbers."""
    if target not in INTEGERS:
        return x
    limits, wide = np.iinfo(target), x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        fits = (np.trunc(wide) >= limits.min) & (np.trunc(wide) < float(limits.max) + 1)
    return np.where(fits, x, 0).astype(x.dtype)


def pair(source: Any, target: Any) -> OperatorCase:
    name = f"{np.dtype(source).name}-to-{np.dtype(target).name}"
    # ONNX Runtime's Python interface neither takes nor returns bfloat16.
    given = source is ml_dtypes.bfloat16
    return OperatorCase(
        op_type="Cast",
        inputs=[fitting(values(source), target) if source in FLOATS else values(source)],
        attributes={"to": number(target)},
        name=name,
        gradient=False,
        vmap=False,
        constants=frozenset({0}) if given else None,
        tolerance=(0, 0),
        oracle="reference" if target is ml_dtypes.bfloat16 else "onnxruntime",
    )


CASES = [
    *(pair(source, target) for source, target in product(TYPES, TYPES)),
    OperatorCase(op_type="Cast", inputs=[Spread((2, 3))], attributes={"to": onnx.TensorProto.DOUBLE}, opset=7),
    OperatorCase(op_type="Cast", inputs=[Spread((2, 3), np.float64)], attributes={"to": onnx.TensorProto.DOUBLE}),
    OperatorCase(
        op_type="Cast", inputs=[Spread((2, 3))], attributes={"to": onnx.TensorProto.INT32}, opset=9, gradient=False
    ),
    OperatorCase(op_type="CastLike", inputs=[Spread((2, 3)), Spread((1,), np.float64)], opset=15),
    OperatorCase(op_type="CastLike", inputs=[Spread((2, 3)), Spread((1,), np.int32)], opset=19, gradient=False),
    OperatorCase(op_type="CastLike", inputs=[Spread((2, 3)), Spread((2, 2), bool)], gradient=False),
    *(
        OperatorCase(
            op_type="BitCast",
            name=f"{np.dtype(source).name} to {np.dtype(target).name}",
            inputs=[Spread((2, 3), source, low=0, high=100)],
            attributes={"to": number(target)},
            opset=26,
            gradient=False,
        )
        for source, target in (
            (np.float32, np.int32),
            (np.int32, np.float32),
            (np.int64, np.float64),
            (np.uint8, np.int8),
            (np.float64, np.int64),
        )
    ),
]

BORDERS = [
    BorderCase(
        op_type="Cast",
        inputs=[np.array([65504, 65519, 65519.996, 65520, -65520, 1e10, np.inf], np.float32)[:-1]],
        attributes={"to": onnx.TensorProto.FLOAT16},
        bad=[False, False, False, True, True, True],
        name="float16",
    ),
    BorderCase(
        op_type="Cast",
        inputs=[np.array([1e38, 3.4028235e38, 3.5e38, -1e300], np.float64)],
        attributes={"to": onnx.TensorProto.FLOAT},
        bad=[False, False, True, True],
        name="float32",
    ),
    BorderCase(
        op_type="Cast",
        inputs=[np.array([65519, 65520], np.int64)],
        attributes={"to": onnx.TensorProto.FLOAT16},
        bad=[False, True],
        name="integer",
    ),
    BorderCase(
        op_type="Cast",
        inputs=[np.array([1e30, -1e30], np.float32)],
        attributes={"to": onnx.TensorProto.INT32},
        bad=[False, False],
        name="to-integer",
    ),
]
