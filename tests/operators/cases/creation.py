from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tests.operators.harness import OperatorCase, Spread


def constant(name: str, value: Any, opset: int = 21, **changes: Any) -> OperatorCase:
    return OperatorCase(
        op_type="Constant",
        inputs=[],
        attributes={f"value{name}": value},
        opset=opset,
        name=name[1:],
        gradient=False,
        **changes,
    )


def tensor(array: np.ndarray) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(array)


def sequence(name: str, *bounds: Any, opset: int = 21, dynamic: bool = False) -> OperatorCase:
    return OperatorCase(
        op_type="Range",
        inputs=[np.asarray(bound) for bound in bounds],
        opset=opset,
        name=name,
        gradient=False,
        constants=frozenset() if dynamic else None,
        vmap=not dynamic,
    )


CASES = [
    constant("", tensor(np.arange(6, dtype=np.float32).reshape(2, 3)), 7),
    constant("", tensor(np.array(True)), 13),
    # ONNX Runtime's Python interface returns no bfloat16.
    constant("", tensor(np.array([1, 2.5], ml_dtypes.bfloat16)), 13, oracle="reference"),
    constant("_float", 1.5, 12),
    constant("_floats", [1.5, -2.0]),
    constant("_int", 7, 12),
    constant("_ints", [7, -8]),
    OperatorCase(op_type="ConstantOfShape", inputs=[np.array([2, 3])], opset=9, gradient=False),
    OperatorCase(
        op_type="ConstantOfShape",
        inputs=[np.array([2, 0])],
        attributes={"value": tensor(np.array([7], np.int32))},
        name="empty",
        gradient=False,
    ),
    OperatorCase(
        op_type="ConstantOfShape",
        inputs=[np.zeros(0, np.int64)],
        attributes={"value": tensor(np.array([True]))},
        name="scalar",
        gradient=False,
    ),
    OperatorCase(
        op_type="ConstantOfShape",
        inputs=[np.array([2, 3])],
        attributes={"value": tensor(np.array([1.5], np.float16))},
        name="dynamic",
        constants=frozenset(),
        gradient=False,
        vmap=False,
    ),
    OperatorCase(op_type="EyeLike", inputs=[Spread((3, 4))], opset=9, gradient=False),
    OperatorCase(op_type="EyeLike", inputs=[Spread((3, 4))], attributes={"k": 1}, name="above", gradient=False),
    OperatorCase(
        op_type="EyeLike",
        inputs=[Spread((3, 4))],
        attributes={"k": -2, "dtype": onnx.TensorProto.INT64},
        name="int64",
        gradient=False,
    ),
    sequence("int64", 2, 11, 3),
    sequence("down", 10, 3, -2, opset=11),
    sequence("empty", 5, 2, 1),
    sequence("int32", np.int32(0), np.int32(5), np.int32(2)),
    sequence("float32", np.float32(0.25), np.float32(2), np.float32(0.1)),
    sequence("float64", -1.0, 1.0, 0.3),
    sequence("dynamic", 0, 6, 2, dynamic=True),
]
