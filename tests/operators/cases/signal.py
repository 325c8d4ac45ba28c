"""Signals: windows, Fourier transforms, mel weights."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

FLOAT, DOUBLE, HALF, INT = 1, 11, 10, 6
TOP = np.finfo(np.float32).max


def transform(
    name: str, shape: tuple[int, ...], length: int | None = None, axis: int | None = None, **more: Any
) -> OperatorCase:
    opset, dtype = more.pop("opset", 20), more.pop("dtype", np.float32)
    inputs: list[Any] = [Spread(shape, dtype)]
    if length is not None or (axis is not None and opset >= 20):
        inputs.append(None if length is None else np.array(length))
    if axis is not None and opset >= 20:
        inputs.append(np.array(axis))
    elif axis is not None:
        more["axis"] = axis
    return OperatorCase(op_type="DFT", name=name, inputs=inputs, attributes=more, opset=opset, tolerance=(1e-5, 1e-4))


def short(name: str, signal: tuple[int, ...], step: int, window: Any, length: int | None, **more: Any) -> OperatorCase:
    inputs: list[Any] = [Spread(signal), np.array(step), window]
    if length is not None:
        inputs.append(np.array(length))
    return OperatorCase(op_type="STFT", name=name, inputs=inputs, attributes=more, opset=17, tolerance=(1e-5, 1e-4))


CASES = [
    *(
        OperatorCase(
            op_type=op_type,
            name=f"{name} {dtype}",
            inputs=[np.array(size)],
            attributes={"periodic": periodic, "output_datatype": dtype},
            gradient=False,
            vmap=False,
        )
        for op_type in ("HannWindow", "HammingWindow", "BlackmanWindow")
        for name, size, periodic in (("periodic", 10, 1), ("symmetric", 9, 0), ("one", 1, 1))
        for dtype in (FLOAT, DOUBLE)
    ),
    OperatorCase(
        op_type="HannWindow",
        name="integers",
        inputs=[np.array(9)],
        attributes={"output_datatype": INT, "periodic": 0},
        gradient=False,
        vmap=False,
    ),
    *(
        OperatorCase(
            op_type="MelWeightMatrix",
            name=f"{bins} of {length} {dtype}",
            inputs=[
                np.array(bins),
                np.array(length),
                np.array(rate),
                np.array(low, np.float32),
                np.array(high, np.float32),
            ],
            attributes={"output_datatype": dtype},
            gradient=False,
            vmap=False,
        )
        for bins, length, rate, low, high in (
            (8, 16, 8192, 0, 4096),
            (5, 64, 16000, 120, 7600),
            (20, 128, 8000, 0, 3900),
        )
        for dtype in (FLOAT, DOUBLE)
    ),
    transform("plain", (2, 8, 1)),
    transform("odd", (2, 7, 1)),
    transform("complex", (2, 6, 2)),
    transform("longer", (1, 5, 1), length=8),
    transform("shorter", (1, 9, 2), length=4),
    transform("axis", (1, 4, 3, 1), axis=1),
    transform("first axis", (4, 3, 2), axis=0),
    transform("negative axis", (1, 4, 3, 2), axis=-3),
    transform("onesided", (2, 8, 1), onesided=1),
    transform("onesided odd", (2, 9, 1), onesided=1),
    transform("inverse", (2, 8, 2), inverse=1),
    transform("inverse odd", (1, 5, 2), inverse=1),
    transform("one", (2, 1, 1)),
    transform("double", (1, 6, 1), dtype=np.float64),
    transform("older", (1, 5, 2, 1), opset=17),
    transform("older axis", (1, 3, 4, 2), axis=2, inverse=1, opset=17),
    transform("older length", (1, 3, 4, 1), length=4, axis=1, onesided=1, opset=17),
    short("windowed", (2, 12, 1), 3, Spread((6,)), None),
    short("windowed and length", (1, 11, 1), 2, Spread((5,)), 5),
    short("no window", (1, 12, 1), 4, None, 4),
    short("without an axis of parts", (2, 12), 3, Spread((6,)), None),
    short("two sides", (1, 12, 1), 4, Spread((4,)), 4, onesided=0),
    short("complex", (1, 10, 2), 2, Spread((4,)), 4, onesided=0),
]

BORDERS = [
    BorderCase(op_type="DFT", name="fits", inputs=[np.full((1, 2, 1), TOP / 2, np.float32)], bad=False, opset=20),
    BorderCase(
        op_type="DFT",
        name="overflows",
        inputs=[np.full((1, 2, 1), TOP, np.float32)],
        bad=[[[True, False], [False, False]]],
        opset=20,
    ),
]
