"""Operators of ONNX Runtime's that are ONNX's, or one of its own, under another name."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread


def case(op_type: str, name: str, inputs: list[Any], **rest: Any) -> OperatorCase:
    return OperatorCase(op_type=op_type, name=name, inputs=inputs, domain="com.microsoft", **rest)


def pads(*widths: int) -> np.ndarray:
    return np.array(widths, np.int64)


PLANE = Spread((2, 3, 4))
IMAGE, GRID = Spread((1, 2, 4, 3)), Spread((1, 3, 2, 2), low=-1.5, high=1.5)
CASES = [
    case("Trilu", "upper", [PLANE]),
    case("Trilu", "lower", [PLANE, np.array([1], np.int64)], attributes={"upper": 0}),
    case("Trilu", "double", [Spread((3, 3), np.float64), np.array(-1, np.int64)]),
    case("Pad", "value", [Spread((2, 3)), pads(1, 0, 0, 2), np.array(7, np.float32)]),
    case("Pad", "a batch of one", [Spread((1, 2, 3)), pads(0, 0, 1, 0, 1, 2)]),
    case("Pad", "cropped", [Spread((2, 3)), pads(-1, 1, 0, 0)]),
    *(
        case("Pad", mode, [Spread((3, 4)), pads(1, 2, 1, 0)], attributes={"mode": mode})
        for mode in ("reflect", "edge", "wrap")
    ),
    *(case("ExpandDims", f"axis {axis}", [PLANE, np.array(axis, np.int32)]) for axis in (-4, -1, 0, 2)),
    case("ExpandDims", "integers", [Spread((3,), np.int64), np.array([1], np.int32)], gradient=False),
    *(
        case("Range", np.dtype(dtype).name, [np.array(v, dtype) for v in (1, 9, 3)], gradient=False)
        for dtype in (np.float32, np.float64, np.int16, np.int32, np.int64)
    ),
    case("Range", "step of 1", [np.array(v, np.float32) for v in (-0.5, 3)], gradient=False),
    case("Range", "many", [np.array(v, np.float32) for v in (0.1, 90, 0.1)], gradient=False),
    case("GatherND", "elements", [PLANE, np.array([[0, 1, 3], [-1, -2, 0]])]),
    case("GatherND", "slices", [PLANE, np.array([[1], [0]], np.int32)]),
    *(
        case(
            "GridSample",
            f"{mode} {padding}",
            [IMAGE, GRID],
            attributes={"mode": mode, "padding_mode": padding, "align_corners": aligned},
            gradient=mode != "nearest",
        )
        for mode, padding, aligned in [
            ("bilinear", "zeros", 0),
            ("bilinear", "reflection", 1),
            ("nearest", "border", 0),
            ("bicubic", "zeros", 1),
        ]
    ),
    case("TransposeMatMul", "", [PLANE, Spread((4, 2))]),
    case(
        "TransposeMatMul",
        "turned",
        [Spread((2, 4, 3)), Spread((5, 4))],
        attributes={"transA": 1, "transB": 1, "alpha": -0.5},
    ),
    case("TransposeMatMul", "beside a vector", [PLANE, Spread((3,))], attributes={"transA": 1}),
    case("Unique", "", [np.array([2, 1, 1, 3, -0.0, 3, 0], np.float32)], outputs=3, gradient=False, vmap=False),
]

BORDERS = [
    BorderCase(
        op_type="TransposeMatMul",
        name=name,
        inputs=[np.full((1, 1), 2e19, np.float32), np.full((1, 1), other, np.float32)],
        bad=bad,
        domain="com.microsoft",
    )
    for name, other, bad in (("fits", 1.5e19, False), ("overflows", 3e19, True))
]
