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


TABLE, PLACES, BOTH = (Spread((n, 4), np.uint8, 0, 255) for n in (5, 4, 2))
ROW = Spread((4,), np.uint8, 0, 255)


def quantised(name: str, inputs: list[Any], signed: bool = False, **attributes: Any) -> OperatorCase:
    """Return a case of embeddings of quantised tables, with as many scales and zero points as there are tables."""
    tables = (2, 3, 4, 5, 6)
    scales = [None if inputs[i] is None else np.array(0.01 * i, np.float32) for i in tables]
    kind = np.int8 if signed else np.uint8
    zeros = [None if inputs[i] is None else np.array(20 * i, kind) for i in tables]
    return OperatorCase(
        op_type="QEmbedLayerNormalization",
        name=name,
        inputs=[*inputs, *[None] * (8 - len(inputs)), *scales, *zeros],
        attributes={"epsilon": 1e-5} | attributes,
        outputs=2,
        opset=17,
        domain=DOMAIN,
        gradient=False,
    )


def block_table(name: str, bits: int, shape: tuple[int, ...], dtype: Any = np.float32, points: bool = False) -> Any:
    """Return a case of rows of a table of few bits in blocks of 16 columns."""
    rng = np.random.default_rng(bits)
    blocks = (*shape[:-1], -(-shape[-1] // 16))
    packed = [
        rng.integers(0, 256, (*sizes[:-1], -(-sizes[-1] * bits // 8))).astype(np.uint8) for sizes in (shape, blocks)
    ]
    scales = rng.uniform(-0.1, 0.1, blocks).astype(dtype)
    return OperatorCase(
        op_type="GatherBlockQuantized",
        name=name,
        inputs=[packed[0], Spread((2, 2), np.int64, 0, shape[0] - 1), scales, packed[1] if points else None],
        attributes={"bits": bits, "block_size": 16, "quantize_axis": len(shape) - 1},
        opset=17,
        domain=DOMAIN,
        gradient=False,
        constants=frozenset({0, 2, 3}),
    )


CASES = [
    quantised("words and positions", [IDS, None, TABLE, PLACES, None, ROW, ROW]),
    quantised("segments", [IDS, KINDS, TABLE, PLACES, BOTH, ROW, ROW]),
    quantised("mask", [IDS, KINDS, TABLE, PLACES, BOTH, ROW, ROW, MASK], epsilon=0.5),
    quantised(
        "signed",
        [IDS, None, *(Spread(n, np.int8, -128, 127) for n in ((5, 4), (3, 4))), None]
        + [Spread((4,), np.int8, -128, 127)] * 2,
        signed=True,
    ),
    block_table("8 bits", 8, (5, 20)),
    block_table("4 bits", 4, (5, 40), points=True),
    block_table("4 bits, half", 4, (7, 32), np.float16),
    block_table("2 bits", 2, (5, 3, 32), points=True),
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
