"""Attention over heads that are given, as ONNX Runtime's optimisers and exporters of language models write it."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

DOMAIN = "com.microsoft"
X, KEYS = Spread((2, 3, 8)), Spread((2, 5, 8))


def heads(name: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> OperatorCase:
    return OperatorCase(
        op_type="MultiHeadAttention",
        name=name,
        inputs=inputs,
        attributes={"num_heads": 2} | attributes,
        opset=17,
        outputs=outputs,
        domain=DOMAIN,
        tolerance=(1e-4, 1e-5),
    )


def rotation(name: str, x: tuple[int, ...], positions: Any, **attributes: Any) -> OperatorCase:
    angles = Spread((6, 2), low=-1, high=1)
    return OperatorCase(
        op_type="RotaryEmbedding",
        name=name,
        inputs=[Spread(x), positions, angles, angles],
        attributes=attributes,
        opset=17,
        domain=DOMAIN,
    )


def grouped(
    name: str, *inputs: Any, total: int, lengths: tuple[int, ...], rest: tuple[Any, ...] = (), **attributes: Any
) -> OperatorCase:
    return OperatorCase(
        op_type="GroupQueryAttention",
        name=name,
        inputs=[*inputs, *[None] * (5 - len(inputs)), np.array(lengths, np.int32), np.array([total], np.int32), *rest],
        attributes={"num_heads": 4, "kv_num_heads": 2} | attributes,
        opset=17,
        outputs=3,
        domain=DOMAIN,
        tolerance=(1e-4, 1e-5),
        gradient=False,
    )


Q, KV, PAST = Spread((1, 3, 64)), Spread((1, 3, 32)), Spread((1, 2, 4, 16))
ONE, ONE_KV = Spread((1, 1, 64)), Spread((1, 1, 32))
ANGLES = (Spread((8, 8), low=-1, high=1), Spread((8, 8), low=-1, high=1))

CASES = [
    heads("plain", X, KEYS, KEYS),
    heads("keys by head", X, Spread((2, 2, 5, 4)), Spread((2, 2, 5, 4))),
    heads("bias", X, KEYS, KEYS, Spread((24,))),
    heads("scaled", X, KEYS, KEYS, scale=0.2),
    heads("mask", X, KEYS, KEYS, None, np.array([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0]], np.int32)),
    heads("lengths", X, KEYS, KEYS, None, np.array([5, 3], np.int32)),
    heads("added", X, KEYS, KEYS, None, None, Spread((1, 2, 3, 5))),
    heads("past", X, X, X, None, None, None, Spread((2, 2, 4, 4)), Spread((2, 2, 4, 4)), outputs=3),
    heads("causal", X, X, X, unidirectional=1),
    rotation("offset", (2, 3, 8), np.array([1]), num_heads=2),
    rotation("by position", (2, 2, 3, 4), np.array([[0, 2, 4], [1, 1, 5]])),
    rotation("interleaved", (2, 3, 8), np.array([[0, 2, 4], [1, 1, 5]]), interleaved=1),
    grouped("prompt", Q, KV, KV, total=3, lengths=(2,)),
    grouped("past", ONE, ONE_KV, ONE_KV, PAST, PAST, total=5, lengths=(4,)),
    grouped("packed", Spread((1, 3, 128)), total=3, lengths=(2,)),
    grouped("rotated", Q, KV, KV, total=3, lengths=(2,), rest=ANGLES, do_rotary=1),
    grouped("rotated past", ONE, ONE_KV, ONE_KV, PAST, PAST, total=5, lengths=(4,), rest=ANGLES, do_rotary=1),
    grouped("capped", Q, KV, KV, total=3, lengths=(2,), softcap=2.0),
    grouped("window", Q, KV, KV, total=3, lengths=(2,), local_window_size=2),
]

BORDERS = [
    BorderCase(
        op_type="MultiHeadAttention",
        name=name,
        inputs=[
            np.full((1, 1, 1), q, np.float32),
            np.full((1, 2, 1), 1e19, np.float32),
            np.ones((1, 2, 1), np.float32),
        ],
        attributes={"num_heads": 1},
        bad=bad,
        opset=17,
        domain=DOMAIN,
    )
    for name, q, bad in (("fits", 1e19, False), ("overflows", 1e21, True))
]
