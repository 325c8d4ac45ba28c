"""Determinants and inverses."""

from dataclasses import replace

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

CASES = [
    OperatorCase(op_type="Det", name=str(size), inputs=[Spread((2, size, size))], opset=opset, tolerance=(1e-4, 1e-4))
    for size, opset in ((1, 11), (2, 11), (3, 22), (5, 22))
]

CASES += [
    OperatorCase(
        op_type="Inverse",
        name=f"{name} {np.dtype(dtype).name}",
        inputs=[matrices],
        domain="com.microsoft",
        tolerance=(tolerance, tolerance),
    )
    for dtype, tolerance in ((np.float32, 1e-4), (np.float64, 1e-9), (np.float16, 1e-2))
    for name, matrices in (
        ("1", Spread((2, 1, 1), dtype, 0.5, 2)),
        ("2", (5 * np.eye(2) + [[0, 1], [-2, 0]]).astype(dtype)),
        ("3", np.array([[[2, -1, 0], [1, 3, 1], [0, 2, -4]]] * 2, dtype)),
        ("turned", np.array([[0, 2, 0, 0], [1, 0, 0, 0.5], [0, 0, 0, -3], [0, 0, 1, 0]], dtype)),
        ("drawn", Spread((3, 2, 2), dtype)),
    )
]
CASES = [replace(case, gradient=False) if case.name.endswith("float16") else case for case in CASES]

BORDERS = [
    BorderCase(op_type="Det", name=name, inputs=[np.diag([1e20, size]).astype(np.float32)], bad=bad)
    for name, size, bad in (("fits", 1e18, False), ("overflows", 1e19, True))
]

BORDERS += [
    BorderCase(op_type="Inverse", name=name, inputs=[np.array(matrix, np.float32)], bad=bad, domain="com.microsoft")
    for name, matrix, bad in (
        ("zero", [[0]], True),
        ("smallest", [[1e-38]], False),
        ("denormal", [[1e-40]], True),
        ("of two lines", [[1, 2], [2, 4]], True),
        ("almost", [[1, 2], [2, 4.000001]], False),
        ("zeros", [[0, 0], [0, 0]], True),
        ("far apart", [[1e20, 0], [0, 1e-20]], False),
    )
]
