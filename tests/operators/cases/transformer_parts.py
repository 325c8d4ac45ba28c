"""Rotations of positions, gates, attention without softmax, convolutions with a state."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

TOP = np.finfo(np.float32).max


def rotation(
    name: str, x: tuple[int, ...], angles: tuple[int, ...], *positions: Any, **attributes: Any
) -> OperatorCase:
    return OperatorCase(
        op_type="RotaryEmbedding",
        name=name,
        inputs=[Spread(x), Spread(angles, low=-1, high=1), Spread(angles, low=-1, high=1), *positions],
        attributes=attributes,
        opset=23,
    )


def gate(name: str, x: Any, *, dtype: Any = np.float32, **attributes: Any) -> OperatorCase:
    return OperatorCase(
        op_type="SwiGLU",
        name=name,
        inputs=[x, Spread((2, 3), dtype)],
        attributes=attributes,
        opset=28,
        oracle="reference",
    )


def causal(name: str, *rest: Any, **attributes: Any) -> OperatorCase:
    return OperatorCase(
        op_type="CausalConvWithState",
        name=name,
        inputs=[Spread((2, 3, 5)), Spread((3, 1, 3)), *rest],
        attributes=attributes,
        opset=27,
        outputs=2,
        oracle="reference",
    )


def linear(name: str, *rest: Any, **attributes: Any) -> OperatorCase:
    return OperatorCase(
        op_type="LinearAttention",
        name=name,
        inputs=[Spread((1, 3, 8), low=-1, high=1), Spread((1, 3, 4), low=-1, high=1), Spread((1, 3, 6)), *rest],
        attributes={"q_num_heads": 4, "kv_num_heads": 2} | attributes,
        opset=27,
        outputs=2,
        oracle="reference",
        tolerance=(1e-4, 1e-5),
        gradient=False,
    )


IDS = np.array([[0, 2, 4], [1, 1, 3]])
PAST, DECAY, BETA = Spread((1, 2, 2, 3)), Spread((1, 3, 2), low=-2, high=0), Spread((1, 3, 2), low=0, high=1)

CASES = [
    rotation("by position", (2, 2, 3, 4), (5, 2), IDS),
    rotation("interleaved", (2, 2, 3, 4), (5, 2), IDS, interleaved=1),
    rotation("angles", (2, 2, 3, 4), (2, 3, 2)),
    rotation("part", (2, 2, 3, 6), (5, 2), IDS, rotary_embedding_dim=4),
    rotation("part interleaved", (2, 2, 3, 6), (5, 2), IDS, rotary_embedding_dim=4, interleaved=1),
    rotation("three dimensions", (2, 3, 8), (5, 2), IDS, num_heads=2),
    gate("plain", Spread((2, 3))),
    gate("steep", Spread((2, 3)), alpha=3.0),
    gate("half", Spread((2, 3), np.float16), dtype=np.float16),
    causal("plain"),
    causal("bias", Spread((3,))),
    causal("past", Spread((3,)), Spread((2, 3, 2))),
    causal("activated", None, Spread((2, 3, 2)), activation="silu"),
    linear("linear", update_rule="linear"),
    linear("gated", PAST, DECAY, update_rule="gated"),
    linear("gated by key", PAST, Spread((1, 3, 4), low=-1, high=0), update_rule="gated"),
    linear("delta", PAST, None, BETA, update_rule="delta", scale=0.5),
    linear("gated delta", None, DECAY, BETA),
    linear("one rate", None, DECAY, Spread((1, 3, 1), low=0, high=1)),
]

BORDERS = [
    BorderCase(
        op_type="RotaryEmbedding",
        name=name,
        inputs=[
            np.full((1, 1, 1, 2), size, np.float32),
            np.ones((1, 1, 1), np.float32),
            -np.ones((1, 1, 1), np.float32),
        ],
        bad=bad,
        opset=23,
    )
    for name, size, bad in (
        ("fits", TOP / 2, False),
        ("overflows", TOP, [[[[True, False]]]]),
    )
]
