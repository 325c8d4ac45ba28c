"""Embeddings that are normalised, and distances between rows."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

DOMAIN = "com.microsoft"
IDS, KINDS = np.array([[0, 1, 4], [3, 3, 0]], np.int32), np.array([[0, 0, 1], [1, 1, 1]], np.int32)
MASK = np.array([[1, 1, 0], [1, 0, 0]], np.int32)
WEIGHTS = (Spread((4,)), Spread((4,)))


def embedded(name: str, *inputs: Any, outputs: int = 2, **attributes: Any) -> OperatorCase:
    return OperatorCase(
        op_type="EmbedLayerNormalization",
        name=name,
        inputs=inputs,
        attributes={"epsilon": 1e-5} | attributes,
        outputs=outputs,
        opset=17,
        domain=DOMAIN,
    )


CASES = [
    embedded("words and positions", IDS, None, Spread((5, 4)), Spread((4, 4)), None, *WEIGHTS),
    embedded("segments", IDS, KINDS, Spread((5, 4)), Spread((4, 4)), Spread((2, 4)), *WEIGHTS),
    embedded("mask", IDS, KINDS, Spread((5, 4)), Spread((4, 4)), Spread((2, 4)), *WEIGHTS, MASK, outputs=3),
    embedded(
        "positions", IDS, None, Spread((5, 4)), Spread((4, 4)), None, *WEIGHTS, None, np.array([[2, 1, 0]], np.int32)
    ),
    *(
        OperatorCase(
            op_type="CDist",
            name=f"{metric} {np.dtype(dtype).name}",
            inputs=[Spread((3, 4), dtype), Spread((2, 4), dtype)],
            attributes={"metric": metric},
            opset=17,
            domain=DOMAIN,
            tolerance=(1e-4, 1e-4),
        )
        for metric in ("euclidean", "sqeuclidean")
        for dtype in (np.float32, np.float64)
    ),
]

BORDERS = [
    BorderCase(
        op_type="EmbedLayerNormalization",
        name=name,
        inputs=[
            np.zeros((1, 1), np.int32),
            None,
            np.ones((1, 4), np.float32),
            np.array([row], np.float32),
            None,
            np.ones(4, np.float32),
            np.ones(4, np.float32),
        ],
        attributes={"epsilon": 0.0},
        bad=bad,
        outputs=2,
        opset=17,
        domain=DOMAIN,
    )
    for name, row, bad in (("constant", [1, 1, 1, 1], True), ("not constant", [1, 2, 3, 4], False))
]
