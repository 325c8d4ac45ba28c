"""Convolutions and pools."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

IMAGE = Spread((2, 4, 6, 5))
LARGEST = np.finfo(np.float32).max


def conv(
    name: str,
    x: Any = IMAGE,
    w: tuple[int, ...] = (6, 4, 3, 2),
    *,
    op_type: str = "Conv",
    bias: bool = False,
    opset: int = 21,
    **attributes: Any,
) -> OperatorCase:
    gradient = attributes.pop("gradient", True)
    channels = w[0] if op_type == "Conv" else w[1] * attributes.get("group", 1)
    inputs = [x, Spread(w), Spread((channels,))] if bias else [x, Spread(w)]
    return OperatorCase(
        op_type=op_type, name=name, inputs=inputs, attributes=attributes, opset=opset, gradient=gradient
    )


def transposed(name: str, x: Any = IMAGE, w: tuple[int, ...] = (4, 3, 3, 2), **rest: Any) -> OperatorCase:
    return conv(name, x, w, op_type="ConvTranspose", **rest)


def pool(op_type: str, name: str, x: Any = IMAGE, *, opset: int = 21, outputs: int = 1, **rest: Any) -> OperatorCase:
    gradient = rest.pop("gradient", True)
    return OperatorCase(
        op_type=op_type, name=name, inputs=[x], attributes=rest, opset=opset, outputs=outputs, gradient=gradient
    )


CONVOLUTIONS = [
    conv("plain"),
    conv("bias", bias=True, opset=7),
    conv("1d", Spread((2, 3, 9)), (2, 3, 4), strides=[2], pads=[1, 1], bias=True),
    conv("3d", Spread((1, 2, 4, 5, 4)), (3, 2, 2, 3, 2), pads=[1, 1, 0, 1, 1, 0]),
    conv("asymmetric", pads=[0, 2, 1, 1], strides=[2, 1]),
    conv("dilated", dilations=[2, 3], pads=[2, 2, 2, 2]),
    conv("grouped", w=(6, 2, 3, 2), group=2, bias=True),
    conv("depthwise", w=(8, 1, 3, 3), group=4, kernel_shape=[3, 3]),
    conv("valid", auto_pad="VALID", strides=[2, 2]),
    conv("same-upper", auto_pad="SAME_UPPER", strides=[2, 3]),
    conv("same-lower", auto_pad="SAME_LOWER", strides=[2, 3], opset=11),
    conv("same-even", w=(2, 4, 4, 2), auto_pad="SAME_UPPER"),
    conv("without channels", Spread((1, 0, 5)), (2, 0, 3), bias=True, gradient=False),
    transposed("plain"),
    transposed("bias", bias=True, strides=[2, 3], opset=7),
    transposed("1d", Spread((2, 3, 5)), (3, 2, 4), strides=[2], pads=[1, 1], output_padding=[1], bias=True),
    transposed("3d", Spread((1, 2, 3, 2, 3)), (2, 3, 2, 3, 2), strides=[2, 1, 2]),
    transposed("asymmetric", pads=[0, 1, 2, 0], strides=[2, 2], bias=True),
    transposed("padded", pads=[1, 1, 1, 1], strides=[2, 2], output_padding=[1, 0]),
    transposed("dilated", dilations=[2, 3], pads=[1, 0, 1, 0]),
    transposed("grouped", w=(4, 2, 3, 2), group=2, bias=True),
    transposed("output-shape", strides=[3, 2], output_shape=[17, 10], bias=True),
    transposed("output-shape-cut", strides=[3, 2], output_shape=[15, 9]),
    transposed("output-shape-upper", strides=[3, 2], output_shape=[15, 9], auto_pad="SAME_UPPER"),
    transposed("same-upper", strides=[2, 2], auto_pad="SAME_UPPER"),
    transposed("same-lower", strides=[2, 2], auto_pad="SAME_LOWER"),
    transposed("same-cut", strides=[4, 5], auto_pad="SAME_UPPER"),
    transposed("output-shape-beyond", strides=[4, 5], output_shape=[16, 16]),
    transposed("valid", strides=[2, 2], auto_pad="VALID", output_padding=[1, 1]),
]

WINDOWS: list[tuple[str, dict[str, Any]]] = [
    ("plain", {"kernel_shape": [2, 3]}),
    ("padded", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ("asymmetric", {"kernel_shape": [3, 3], "pads": [0, 2, 1, 0], "strides": [2, 1]}),
    ("wide-pads", {"kernel_shape": [3, 3], "pads": [2, 2, 2, 2]}),
    ("same-upper", {"kernel_shape": [2, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("same-lower", {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER", "strides": [1, 2]}),
    ("valid", {"kernel_shape": [4, 2], "auto_pad": "VALID", "strides": [3, 2]}),
]
CEILED: list[tuple[str, dict[str, Any]]] = [
    ("ceil", {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("ceil-padded", {"kernel_shape": [3, 3], "strides": [3, 4], "pads": [1, 0, 1, 2], "ceil_mode": 1}),
    ("ceil-dropped", {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [0, 1, 1, 1], "ceil_mode": 1}),
]
DILATED: list[tuple[str, dict[str, Any]]] = [
    ("dilated", {"kernel_shape": [2, 2], "dilations": [3, 2], "pads": [1, 1, 1, 1]}),
    ("dilated-ceil", {"kernel_shape": [2, 3], "dilations": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
]

POOLS = [
    *(pool("MaxPool", name, opset=12, **given) for name, given in WINDOWS + CEILED + DILATED),
    *(pool("MaxPool", f"indices-{name}", outputs=2, **given) for name, given in WINDOWS + CEILED + DILATED),
    pool("MaxPool", "column-major", outputs=2, kernel_shape=[2, 2], pads=[1, 0, 0, 1], storage_order=1),
    pool("MaxPool", "negative", Spread((1, 1, 4), low=-9, high=-5), kernel_shape=[3], pads=[1, 1]),
    pool("MaxPool", "negative-wide", Spread((1, 1, 4), low=-9, high=-5), kernel_shape=[3], pads=[2, 1], opset=8),
    pool("MaxPool", "1d", Spread((2, 3, 7)), kernel_shape=[3], strides=[2], outputs=2),
    pool("MaxPool", "3d", Spread((1, 2, 4, 4, 5)), kernel_shape=[2, 2, 3], outputs=2),
    pool("MaxPool", "int8", Spread((1, 2, 5), np.int8, -128, 127), kernel_shape=[2], pads=[1, 0], gradient=False),
    pool("MaxPool", "uint8", Spread((1, 2, 5), np.uint8, 0, 255), kernel_shape=[2], gradient=False),
    *(pool("AveragePool", name, opset=11, **given) for name, given in WINDOWS + CEILED),
    *(pool("AveragePool", f"count-{name}", count_include_pad=1, **given) for name, given in WINDOWS + CEILED),
    *(pool("AveragePool", name, opset=19, **given) for name, given in DILATED),
    *(pool("AveragePool", f"count-{name}", opset=19, count_include_pad=1, **given) for name, given in DILATED),
    pool("AveragePool", "1d", Spread((2, 3, 7)), kernel_shape=[3], opset=7, pads=[1, 1]),
    pool("AveragePool", "3d", Spread((1, 2, 4, 4, 5)), kernel_shape=[2, 2, 3]),
    *(pool("LpPool", name, opset=11, **given) for name, given in WINDOWS),
    *(pool("LpPool", name, opset=18, p=3, **given) for name, given in CEILED + DILATED),
    pool("LpPool", "p1", kernel_shape=[2, 2], p=1),
    pool("GlobalAveragePool", "2d"),
    pool("GlobalAveragePool", "1d", Spread((2, 3, 7))),
    pool("GlobalMaxPool", "2d"),
    pool("GlobalMaxPool", "3d", Spread((1, 2, 2, 3, 2))),
    pool("GlobalLpPool", "p2"),
    pool("GlobalLpPool", "p1", p=1),
    pool("GlobalLpPool", "p3", p=3),
]

CASES = CONVOLUTIONS + POOLS

BORDERS = [
    BorderCase(
        op_type="Conv",
        name="overflow",
        inputs=[np.array([[[1, 1, 2]]], np.float32), np.array([[[LARGEST]]], np.float32)],
        bad=[[[False, False, True]]],
    ),
    BorderCase(
        op_type="AveragePool",
        name="sum-overflows",
        inputs=[np.array([[[LARGEST, LARGEST, 1]]], np.float32)],
        attributes={"kernel_shape": [2]},
        bad=True,
    ),
    BorderCase(
        op_type="MaxPool",
        name="largest",
        inputs=[np.array([[[LARGEST, -LARGEST]]], np.float32)],
        attributes={"kernel_shape": [1]},
        bad=[[[False, False]]],
    ),
    BorderCase(
        op_type="GlobalLpPool", name="square-overflows", inputs=[np.full((1, 1, 2), 2e19, np.float32)], bad=True
    ),
    BorderCase(op_type="GlobalLpPool", name="zeros", inputs=[np.zeros((1, 1, 2), np.float32)], bad=False),
]

CASES += [
    OperatorCase(
        op_type="Col2Im",
        name=name,
        inputs=[Spread((2, 3 * 6, blocks)), np.array([5, 4]), np.array([3, 2])],
        attributes=attributes,
    )
    for name, blocks, attributes in [
        ("overlap", 9, {}),
        ("strides", 4, {"strides": [2, 2]}),
        ("dilations", 3, {"dilations": [2, 1]}),
        ("asymmetric", 16, {"pads": [0, 1, 1, 0], "strides": [1, 1]}),
    ]
]
