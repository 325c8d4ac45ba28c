from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.operators.harness import OperatorCase, Spread


def cut(
    name: str,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    *,
    shape: tuple[int, ...] = (5, 6),
    dtype: Any = np.int64,
    opset: int = 21,
) -> OperatorCase:
    operands = [None if v is None else np.asarray(v, dtype) for v in (starts, ends, axes, steps)]
    while operands[-1] is None:
        operands.pop()
    return OperatorCase(op_type="Slice", inputs=[Spread(shape), *operands], opset=opset, name=name)


def padded(
    name: str,
    pads: Sequence[int],
    value: Any = None,
    axes: Sequence[int] | None = None,
    *,
    x: Spread | None = None,
    mode: str = "constant",
    opset: int = 21,
) -> OperatorCase:
    x = x or Spread((3, 4))
    operands = [
        np.asarray(pads, np.int64),
        None if value is None else np.asarray(value, x.dtype),
        None if axes is None else np.asarray(axes, np.int64),
    ]
    while operands[-1] is None:
        operands.pop()
    gradient = np.dtype(x.dtype).kind == "f"
    attributes = {"mode": mode}
    return OperatorCase(
        op_type="Pad",
        inputs=[x, *operands],
        attributes=attributes,
        opset=opset,
        name=name,
        # A constant value in another float type than x is no model.
        gradient=gradient and value is None,
    )


BIG = 2**31 - 1
CASES = [
    cut("both", [1, 2], [4, 5]),
    cut("axis", [1], [4], [1]),
    cut("negative-axis", [-3], [-1], [-1]),
    cut("step", [0, 1], [5, 6], [0, 1], [2, 3]),
    cut("reverse", [-1], [-BIG], [1], [-1]),
    cut("reverse-step", [4, 5], [0, -7], [0, 1], [-2, -2]),
    cut("reverse-clamped", [20], [1], [1], [-1]),
    cut("reverse-from-before-the-front", [-100], [-100], [1], [-1]),
    cut("reverse-to-the-largest-number", [3], [BIG], [1], [-2]),
    cut("reverse-by-the-largest-step", [-1], [-(2**63)], [0], [-(2**63)]),
    cut("clamped", [-20, 1], [20, BIG]),
    cut("past-int64", [1], [2**63 - 1], [0]),
    cut("empty", [3], [1], [0]),
    cut("empty-reverse", [1], [3], [0], [-1]),
    cut("int32", [1], [BIG], [1], [2], dtype=np.int32),
    OperatorCase(
        op_type="Slice",
        inputs=[np.array([1, 2**16 - 1, 3], np.uint16), *(np.array([v]) for v in (-1, -9, 0, -1))],
        name="uint16",
        gradient=False,
    ),
    padded("uint64-edge", [1, 0, 2, 3], mode="edge", x=Spread((3, 4), np.uint64, low=0)),
    cut("opset-10", [1], [4], [0], [2], opset=10),
    cut("no-axes-but-steps", [0, 1], [5, 6], None, [2, 1]),
    OperatorCase(
        op_type="Slice",
        inputs=[Spread((5, 6))],
        attributes={"starts": [1, -3], "ends": [BIG, -1], "axes": [0, 1]},
        opset=9,
        name="attributes",
    ),
    OperatorCase(
        op_type="Slice", inputs=[Spread((5, 6))], attributes={"starts": [1], "ends": [-1]}, opset=7, name="no-axes"
    ),
    padded("zero", [1, 0, 2, 3]),
    padded("value", [1, 0, 2, 3], 1.5),
    padded("infinite", [1, 0, 0, 1], -np.inf),
    padded("negative", [-1, 1, 0, -2]),
    padded("axes", [2, 1], 0.5, [-1], opset=18),
    padded("two-axes", [2, 1, 0, 3], None, [1, 0], opset=18),
    padded("int32", [1, 0, 2, 3], 7, x=Spread((3, 4), np.int32)),
    padded("bool", [1, 0, 2, 3], True, x=Spread((3, 4), bool)),
    padded("float16", [1, 0, 2, 3], 0.5, x=Spread((3, 4), np.float16)),
    padded("four", [0, 0, 1, 2, 0, 0, 3, 1], x=Spread((1, 2, 3, 4))),
    padded("reflect", [2, 1, 0, 3], mode="reflect"),
    padded("reflect-4d", [0, 0, 1, 2, 0, 0, 2, 1], mode="reflect", x=Spread((1, 2, 3, 4))),
    padded("edge", [2, 1, 0, 3], mode="edge"),
    padded("edge-negative", [2, -1, -1, 3], mode="edge"),
    padded("wrap", [2, 1, 0, 3], mode="wrap", opset=19),
    padded("opset-11", [2, 1, 0, 3], 2.0, opset=11),
    padded("opset-11-edge", [2, 1, 0, 3], mode="edge", opset=11),
    OperatorCase(
        op_type="Pad", inputs=[Spread((3, 4))], attributes={"pads": [1, 0, 2, 3], "value": 2.5}, opset=7, name="old"
    ),
    OperatorCase(
        op_type="Pad",
        inputs=[Spread((3, 4))],
        attributes={"pads": [1, 0, 2, 3], "mode": "reflect"},
        opset=9,
        name="old-reflect",
    ),
    OperatorCase(op_type="Trilu", inputs=[Spread((2, 3, 4))]),
    OperatorCase(op_type="Trilu", inputs=[Spread((4, 3)), np.array(1)], name="above"),
    OperatorCase(op_type="Trilu", inputs=[Spread((4, 3)), np.array(-1)], attributes={"upper": 0}, name="lower"),
    OperatorCase(op_type="Trilu", inputs=[Spread((4, 3)), np.array(9)], attributes={"upper": 0}, name="all"),
    OperatorCase(op_type="Trilu", inputs=[Spread((3, 3), np.int64), np.array(0)], name="int64", gradient=False),
    OperatorCase(op_type="Compress", inputs=[Spread((3, 4)), np.array([1, 0, 1], bool)], attributes={"axis": 1}),
    OperatorCase(op_type="Compress", inputs=[Spread((3, 4)), np.array([0, 1, 1, 0, 1], bool)], name="flat", opset=9),
    OperatorCase(
        op_type="Compress",
        inputs=[Spread((3, 4)), np.array([0, 1], bool)],
        attributes={"axis": -2},
        name="negative",
        opset=11,
    ),
    OperatorCase(
        op_type="Compress",
        inputs=[Spread((3, 4)), Spread((3,), bool)],
        attributes={"axis": 0},
        name="dynamic",
        constants=frozenset(),
        vmap=False,
    ),
    OperatorCase(op_type="ReverseSequence", inputs=[Spread((5, 3, 2)), np.array([2, 5, 1])], opset=10),
    OperatorCase(
        op_type="ReverseSequence",
        inputs=[Spread((3, 5)), Spread((3,), np.int64, low=1, high=5)],
        attributes={"batch_axis": 0, "time_axis": 1},
        name="batch-first",
    ),
    OperatorCase(
        op_type="CenterCropPad",
        inputs=[Spread((5, 4, 3)), np.array([2, 7, 3])],
        opset=18,
        oracle="reference",
    ),
    OperatorCase(
        op_type="CenterCropPad",
        inputs=[Spread((6, 5)), np.array([8, 3])],
        attributes={"axes": [1, -2]},
        opset=18,
        name="axes",
        oracle="reference",
    ),
]
