from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread


def where(shape: tuple[int, ...], size: int, dtype: Any = np.int64) -> Spread:
    """Return drawn indices from both ends of an axis."""
    return Spread(shape, dtype, low=-size, high=size - 1)


def updates(reduction: str, opset: int = 18) -> list[OperatorCase]:
    attributes = {} if opset < 16 else {"reduction": reduction}
    # Without a reduction, two updates of one element have no order; the indices differ.
    elements = np.array([[1, -1, 0, 2], [0, 0, 2, -2]]) if reduction == "none" else where((3, 4), 3)
    rows = np.array([[1], [-2], [0]])[:2] if reduction == "none" else where((5, 1), 3)
    if reduction == "none":
        rows = np.array([[1], [-1]])
    count = 2 if reduction == "none" else 5
    height = 2 if reduction == "none" else 3
    return [
        OperatorCase(
            op_type="ScatterElements",
            inputs=[Spread((3, 4)), elements, Spread((height, 4))],
            attributes=attributes,
            opset=opset,
            name=reduction,
        ),
        OperatorCase(
            op_type="ScatterND",
            inputs=[Spread((3, 4)), rows, Spread((count, 4))],
            attributes=attributes,
            opset=opset,
            name=reduction,
        ),
    ]


CASES = [
    OperatorCase(op_type="Gather", inputs=[Spread((4, 3)), np.array([0, -1, 2, 0])]),
    OperatorCase(op_type="Gather", inputs=[Spread((4, 3)), np.array(-2)], attributes={"axis": 1}, name="scalar"),
    OperatorCase(op_type="Gather", inputs=[Spread((4, 3)), np.array([[0, 1]])], attributes={"axis": -1}, name="matrix"),
    OperatorCase(op_type="Gather", inputs=[Spread((4, 3)), where((2, 2), 4)], name="drawn"),
    OperatorCase(
        op_type="Gather",
        inputs=[Spread((4, 3), np.int64), where((2,), 4, np.int32)],
        opset=7,
        name="int",
        gradient=False,
    ),
    OperatorCase(
        op_type="Gather",
        inputs=[np.arange(12, dtype=np.float32).reshape(4, 3), where((5,), 4)],
        constants=frozenset({0}),
        name="embedding",
        gradient=False,
    ),
    OperatorCase(op_type="GatherElements", inputs=[Spread((4, 3)), where((2, 3), 4)]),
    OperatorCase(
        op_type="GatherElements",
        inputs=[Spread((4, 3)), where((4, 5), 3, np.int32)],
        attributes={"axis": -1},
        opset=11,
        name="axis",
    ),
    OperatorCase(op_type="GatherND", inputs=[Spread((2, 3, 4)), where((5, 2), 2)]),
    OperatorCase(op_type="GatherND", inputs=[Spread((2, 3, 4)), where((5, 3), 2)], name="elements"),
    OperatorCase(op_type="GatherND", inputs=[Spread((2, 3, 4)), where((2, 2, 1), 2)], opset=11, name="rows"),
    OperatorCase(
        op_type="GatherND",
        inputs=[Spread((2, 3, 4)), where((2, 5, 1), 3)],
        attributes={"batch_dims": 1},
        opset=12,
        name="batch",
    ),
    OperatorCase(
        op_type="GatherND",
        inputs=[Spread((2, 3, 4, 2)), where((2, 3, 1), 4)],
        attributes={"batch_dims": 2},
        name="two-batch",
    ),
    *(case for reduction in ("none", "add", "mul", "max", "min") for case in updates(reduction)),
    *updates("none", opset=11),
    OperatorCase(
        op_type="ScatterElements",
        inputs=[Spread((3, 4), np.int64), where((3, 2), 4), Spread((3, 2), np.int64)],
        attributes={"axis": 1, "reduction": "add"},
        opset=16,
        name="int64",
        gradient=False,
    ),
    OperatorCase(
        op_type="ScatterElements",
        inputs=[Spread((3, 4), np.float16), np.array([[1, -1]]), Spread((1, 2), np.float16)],
        attributes={"axis": -1},
        name="float16",
        gradient=False,
    ),
    OperatorCase(
        op_type="ScatterND",
        inputs=[Spread((2, 3, 4)), np.array([[0, 1], [1, -1]]), Spread((2, 4))],
        opset=13,
        name="pairs",
    ),
    OperatorCase(op_type="Scatter", inputs=[Spread((3, 4)), np.array([[0, 2, -1, 1]]), Spread((1, 4))], opset=9),
    OperatorCase(
        op_type="Scatter",
        inputs=[Spread((3, 4)), np.array([[0, 3]]), Spread((1, 2))],
        attributes={"axis": 1},
        opset=10,
        name="axis",
    ),
    OperatorCase(
        op_type="OneHot", inputs=[where((2, 3), 5), np.array(5), np.array([0.5, 2], np.float32)], gradient=False
    ),
    OperatorCase(
        op_type="OneHot",
        inputs=[Spread((4,), np.int64, low=-9, high=9), np.array([4]), np.array([0, 1], np.int64)],
        attributes={"axis": 0},
        name="beyond",
        gradient=False,
    ),
    OperatorCase(
        op_type="OneHot",
        inputs=[np.array([[0, 2], [1, -1]], np.float32), np.array(3.0, np.float32), Spread((2,))],
        attributes={"axis": -2},
        opset=9,
        name="floats",
        gradient=False,
    ),
    OperatorCase(
        op_type="NonZero",
        inputs=[np.array([[1, 0, 2], [0, 0, -1]], np.float32)],
        gradient=False,
        vmap=False,
    ),
    OperatorCase(op_type="NonZero", inputs=[Spread((3, 2, 2), bool)], opset=9, name="bool", gradient=False, vmap=False),
    OperatorCase(op_type="NonZero", inputs=[np.array(2, np.float32)], name="number", gradient=False, vmap=False),
    OperatorCase(
        op_type="Unique", inputs=[np.array([2, 1, 1, 3, 4, 3], np.float32)], outputs=4, gradient=False, vmap=False
    ),
    OperatorCase(
        op_type="Unique",
        inputs=[np.array([2, 1, 1, 3, 4, 3], np.float32)],
        attributes={"sorted": 0},
        outputs=4,
        name="unsorted",
        gradient=False,
        vmap=False,
    ),
    OperatorCase(
        op_type="Unique",
        inputs=[np.array([[1, 0, 0], [1, 0, 0], [2, 3, 4]], np.float32)],
        attributes={"axis": 0},
        outputs=("y", "", "inverse", ""),
        name="rows",
        vmap=False,
        gradient=False,
    ),
    *(
        OperatorCase(
            op_type="MaxUnpool",
            name=name,
            inputs=[Spread((1, 2, 2, 2)), np.array([[[[0, 3], [9, 11]], [[17, 18], [28, 31]]]]), *rest],
            attributes={"kernel_shape": [2, 2], "strides": [2, 2]},
            opset=opset,
        )
        for name, opset, rest in (("plain", 11, []), ("older", 9, []), ("shape", 22, [np.array([1, 2, 4, 4])]))
    ),
    *(
        OperatorCase(
            op_type="TensorScatter",
            name=name,
            inputs=[Spread((2, 3, 5, 2)), Spread((2, 3, 2, 2)), *rest],
            attributes=attributes,
            opset=24,
        )
        for name, rest, attributes in (
            ("start", [], {}),
            ("linear", [np.array([1, 3])], {}),
            ("circular", [np.array([4, 2])], {"mode": "circular"}),
        )
    ),
    OperatorCase(
        op_type="TensorScatter",
        name="axis",
        inputs=[Spread((2, 5), np.int32), Spread((2, 3), np.int32), np.array([2, 0])],
        attributes={"axis": 1},
        opset=24,
        gradient=False,
    ),
]

TOP = np.finfo(np.float32).max
BORDERS = [
    BorderCase(
        op_type="ScatterElements",
        inputs=[np.array([TOP, 0], np.float32), np.array([0, 1]), np.array([TOP, TOP], np.float32)],
        attributes={"reduction": "add"},
        bad=[True, False],
    ),
    BorderCase(
        op_type="ScatterND",
        inputs=[np.array([TOP, 1], np.float32), np.array([[0], [1]]), np.array([2, TOP], np.float32)],
        attributes={"reduction": "mul"},
        bad=[True, False],
    ),
]
