"""Attention, and the rotation of what it reads."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

TOP = np.finfo(np.float32).max
Q, K, V = Spread((2, 2, 3, 4)), Spread((2, 2, 5, 4)), Spread((2, 2, 5, 3))
CAUSAL = np.where(np.tril(np.ones((3, 5), bool)), 0, -np.inf).astype(np.float32)
SEEN = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)


def attention(
    name: str,
    *inputs: Any,
    opset: int = 24,
    outputs: int = 1,
    constants: frozenset[int] | None = None,
    **attributes: Any,
) -> OperatorCase:
    return OperatorCase(
        op_type="Attention",
        name=name,
        inputs=inputs,
        attributes=attributes,
        opset=opset,
        outputs=outputs,
        constants=constants,
        tolerance=(1e-4, 1e-5),
    )


CASES = [
    attention("plain", Q, K, V),
    attention("older", Q, K, V, opset=23),
    attention("scaled", Q, K, V, scale=0.3),
    attention("capped", Q, K, V, softcap=1.5),
    attention("causal", Q, Spread((2, 2, 3, 4)), Spread((2, 2, 3, 3)), is_causal=1),
    attention("mask", Q, K, V, Spread((3, 5))),
    attention("mask of four dimensions", Q, K, V, Spread((2, 1, 3, 5))),
    attention("infinite mask", Q, K, V, CAUSAL),
    attention("known infinite mask", Q, K, V, CAUSAL, constants=frozenset({3})),
    attention("boolean mask", Q, K, V, SEEN),
    attention(
        "three dimensions", Spread((2, 3, 8)), Spread((2, 5, 4)), Spread((2, 5, 6)), q_num_heads=4, kv_num_heads=2
    ),
    attention("fewer heads of keys", Spread((1, 4, 3, 4)), Spread((1, 2, 5, 4)), Spread((1, 2, 5, 3))),
    attention("past", Q, K, V, None, Spread((2, 2, 2, 4)), Spread((2, 2, 2, 3)), outputs=3),
    attention("lengths", Q, K, V, None, None, None, np.array([2, 5])),
    *(
        attention(f"scores {mode}", Q, K, V, Spread((3, 5)), outputs=4, qk_matmul_output_mode=mode, softcap=2.0)
        for mode in range(4)
    ),
]

BORDERS = [
    BorderCase(
        op_type="Attention",
        name=name,
        inputs=[
            np.full((1, 1, 1, 1), q, np.float32),
            np.full((1, 1, 2, 1), 1e19, np.float32),
            np.ones((1, 1, 2, 1), np.float32),
        ],
        bad=bad,
        opset=24,
    )
    for name, q, bad in (("fits", 1e19, False), ("overflows", 1e21, True))
]
