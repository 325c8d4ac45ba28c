from typing import Any

import ml_dtypes
import numpy as np

from tests.operators.harness import OperatorCase, Spread

INT64 = np.int64


def one(op_type: str, x: Spread, *statics: Any, name: str = "", opset: int = 21, outputs: int = 1, **attributes: Any):  # type: ignore[no-untyped-def]
    operands = [None if s is None else np.asarray(s, INT64) for s in statics]
    gradient = np.dtype(x.dtype).kind == "f"
    return OperatorCase(
        op_type=op_type,
        inputs=[x, *operands],
        attributes=attributes,
        opset=opset,
        name=name,
        outputs=outputs,
        gradient=gradient,
    )


def sizes(op_type: str, name: str, opset: int, **attributes: Any) -> OperatorCase:
    # Shape and Size are folded where the input's shape is known: there is nothing to differentiate.
    return OperatorCase(
        op_type=op_type, inputs=[Spread((2, 3, 4))], attributes=attributes, opset=opset, name=name, gradient=False
    )


X = Spread((2, 3, 4))
CASES = [
    one("Identity", X),
    one("Identity", Spread((2, 3), bool), name="bool"),
    OperatorCase(
        op_type="Identity",
        inputs=[Spread((2, 3), ml_dtypes.bfloat16)],
        name="bfloat16",
        oracle="reference",
        gradient=False,
    ),
    one("Reshape", X, [4, -1]),
    one("Reshape", X, [0, -1], name="copied"),
    one("Reshape", X, [-1], opset=7, name="old"),
    one("Reshape", X, [0, 0, 2, 2], name="two-copied"),
    OperatorCase(
        op_type="Reshape",
        inputs=[np.zeros((0, 3, 4), np.float32), np.array([3, 4, 0])],
        attributes={"allowzero": 1},
        name="allowzero",
        # A model's input has no size of 0: files say so where they mean an unknown size.
        constants=frozenset({0, 1}),
        gradient=False,
    ),
    one("Reshape", Spread((1,)), np.zeros(0), name="to-scalar"),
    one("Reshape", Spread((2, 6), np.int32), [3, 4], name="int32"),
    one("Flatten", X),
    one("Flatten", X, axis=0, name="0"),
    one("Flatten", X, axis=2, opset=7, name="2"),
    one("Flatten", X, axis=3, name="3"),
    one("Flatten", X, axis=-1, name="negative"),
    one("Squeeze", Spread((1, 3, 1, 4))),
    one("Squeeze", Spread((1, 3, 1, 4)), [-2], name="negative"),
    one("Squeeze", Spread((1, 3, 1, 4)), [0, 2], name="two"),
    one("Squeeze", Spread((1, 3, 1, 4)), axes=[0], opset=11, name="attribute"),
    one("Unsqueeze", Spread((2, 3)), [0]),
    one("Unsqueeze", Spread((2, 3)), [3, 0, -3], name="unordered"),
    one("Unsqueeze", Spread((2, 3)), axes=[0, 3], opset=11, name="attribute"),
    one("Transpose", X),
    one("Transpose", X, perm=[1, 0, 2], name="perm"),
    one("Transpose", X, perm=[0, 2, 1], name="behind"),
    one("Transpose", X, perm=[2, 0, 1], opset=7, name="old"),
    one("Transpose", Spread((2, 3), np.uint8, low=0), name="uint8"),
    one("Expand", Spread((3, 1)), [2, 3, 4]),
    one("Expand", Spread((3, 4)), [1, 1], name="ones"),
    one("Expand", Spread((3, 1)), [4], opset=8, name="shorter"),
    one("Tile", Spread((2, 3)), [2, 3]),
    one("Tile", Spread((2, 3)), [1, 2], opset=7, name="old"),
    one("Tile", Spread((2, 3)), [2, 0], name="empty"),
    OperatorCase(op_type="Concat", inputs=[Spread((2, 3)), Spread((2, 1)), Spread((2, 2))], attributes={"axis": 1}),
    OperatorCase(op_type="Concat", inputs=[Spread((2, 3)), Spread((1, 3))], attributes={"axis": -2}, name="negative"),
    OperatorCase(op_type="Concat", inputs=[Spread((2, 3))], attributes={"axis": 0}, opset=7, name="single"),
    OperatorCase(
        op_type="Concat",
        inputs=[Spread((2,), INT64), Spread((3,), INT64)],
        attributes={"axis": 0},
        name="int64",
        gradient=False,
    ),
    one("Split", Spread((2, 6)), [2, 1, 3], axis=1, outputs=3),
    one("Split", Spread((6, 2)), outputs=3, opset=13, name="equal"),
    one("Split", Spread((2, 6)), axis=-1, split=[4, 2], outputs=2, opset=11, name="attribute"),
    one("Split", Spread((2, 6)), axis=1, outputs=2, opset=7, name="old-equal"),
    one("Split", Spread((2, 6)), [4, 2], axis=-1, outputs=2, opset=13, name="negative"),
    one("Split", Spread((7, 2)), num_outputs=3, outputs=3, opset=18, name="uneven"),
    one("Split", Spread((2, 8)), num_outputs=4, axis=1, outputs=4, opset=18, name="even"),
    one("Split", Spread((6,)), [6, 0], outputs=2, name="empty-part"),
    sizes("Shape", "", 21),
    sizes("Shape", "old", 7),
    sizes("Shape", "start", 15, start=1),
    sizes("Shape", "end", 15, end=-1),
    sizes("Shape", "both", 21, start=-2, end=2),
    sizes("Shape", "clamped", 21, start=-7, end=9),
    sizes("Shape", "empty", 21, start=2, end=1),
    sizes("Size", "", 21),
    sizes("Size", "old", 7),
    one("DepthToSpace", Spread((1, 8, 2, 3)), blocksize=2),
    one("DepthToSpace", Spread((2, 8, 2, 3)), blocksize=2, mode="CRD", name="crd"),
    one("DepthToSpace", Spread((1, 9, 2, 3)), blocksize=3, opset=7, name="old"),
    one("SpaceToDepth", Spread((1, 2, 4, 6)), blocksize=2),
    one("SpaceToDepth", Spread((2, 2, 3, 6)), blocksize=3, opset=7, name="old"),
]
