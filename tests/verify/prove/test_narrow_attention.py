"""Attention at what ONNX Runtime's kernels do in their own way: queries that see nothing, limits, lengths, masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import ranum_falsify as rf
from tests.domain.boxes import Recipe
from tests.domain.soundness import sweep_case
from tests.operators.cases.attention import attention
from tests.operators.harness import OperatorCase, Spread
from tests.verify.prove.test_narrow_misses import Array, assert_open, make

PAST = Spread((2, 2, 2, 4)), Spread((2, 2, 2, 3))
Q, K, V = Spread((2, 2, 3, 4)), Spread((2, 2, 5, 4)), Spread((2, 2, 5, 3))


def hidden(*rows: int, dtype: Any = np.float32) -> Array:
    """Return a bias of two queries and three keys that hides all keys of some of the queries."""
    bias = np.zeros((1, 1, 2, 3), dtype)
    bias[:, :, rows] = -np.inf
    return bias


def two(size: int, dtype: Any = np.float32) -> dict[str, Array]:
    """Return queries, keys and values of one head."""
    return {"q": np.ones((1, 2, size), dtype), "k": np.ones((1, 3, size), dtype), "v": np.ones((1, 3, size), dtype)}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("row", [0, 1])
def test_a_query_of_multi_head_attention_that_sees_nothing_gives_nan(dtype: Any, row: int) -> None:
    constants = {"bias": hidden(row, dtype=dtype), "z": np.zeros((), dtype)}
    nodes = "a = com.microsoft::MultiHeadAttention(q, k, v, , , bias)\nn = IsNaN(a)\ny = Where(n, z, a)"
    inputs = two(2, dtype)
    assert_open(make(nodes, inputs, constants, num_heads=1), dict.fromkeys("qkv", (-1, 1)), inputs)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("nodes", "x", "constants", "attributes"),
    [
        (
            "a = com.microsoft::Attention(x, w, b, , , bias)",
            np.ones((1, 2, 3), np.float32),
            {"bias": np.array([[[[0, 0], [-np.inf, -np.inf]]]], np.float32)},
            {"num_heads": 1},
        ),
        (
            "a = com.microsoft::Attention(x, w, b, mask)",
            np.ones((2, 2, 3), np.float32),
            {"mask": np.array([0, 2], np.int32)},
            {"num_heads": 1, "mask_filter_value": float("-inf")},
        ),
        (
            "a = com.microsoft::QAttention(x, u, b, s, s, mask, zero)",
            np.full((2, 1, 3), 200, np.uint8),
            {"mask": np.zeros(2, np.int32)},
            {"num_heads": 2, "mask_filter_value": float("-inf")},
        ),
    ],
)
def test_a_query_of_fused_attention_that_sees_nothing_gives_nan(
    nodes: str, x: Array, constants: Mapping[str, Array], attributes: Mapping[str, Any]
) -> None:
    shared: dict[str, Array] = {
        "w": np.full((3, 12), 0.1, np.float32),
        "u": np.ones((3, 12), np.uint8),
        "b": np.zeros(12, np.float32),
        "s": np.array(0.05, np.float32),
        "zero": np.array(128, np.uint8),
        "z": np.zeros((), np.float32),
    }
    model = make(f"{nodes}\nn = IsNaN(a)\ny = Where(n, z, a)", {"x": x}, {**shared, **constants}, **attributes)
    assert_open(model, {"x": (0, int(x.max()))}, {"x": x})


@pytest.mark.few(2)
@pytest.mark.parametrize("softcap", [-2.0, -1e-3, float("inf"), float("nan"), 1e-45])
def test_limits_of_scores_that_are_none_are_open(softcap: float) -> None:
    inputs = {"q": np.ones((1, 2, 3, 4), np.float32), "k": np.ones((1, 2, 3, 4), np.float32)}
    inputs["v"] = np.full((1, 2, 3, 4), -0.577, np.float32)
    constants = {"one": np.ones((), np.float32), "c": np.array(0.3, np.float32)}
    nodes = "q2 = Mul(v, v)\ns = Sub(one, q2)\nw = Mul(v, s)\na = Attention(q, k, w)\nb = Add(a, c)\ny = Log(b)"
    model = make(nodes, inputs, constants, a={"softcap": softcap})
    assert_open(model, dict.fromkeys("qkv", (-1, 1)), inputs)


def test_scores_that_overflow_before_their_limit_are_open() -> None:
    inputs = {name: np.full((1, 1, 1, 2), 1e3, np.float32) for name in "qkv"}
    inputs["k"] = inputs["k"] * np.array([1, -1], np.float32)
    model = make("y = Attention(q, k, v)", inputs, {}, scale=1e38, softcap=2.0)
    found = rf.check(model, box=dict.fromkeys("qkv", (-1e3, 1e3)), n_starts=0, self_check=False)
    assert found.verdict != "holds"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "case",
    [
        attention("mask of one key", Q, K, V, Spread((3, 1)), opset=23),
        attention("half softmax", Q, K, V, softmax_precision=TensorProto.FLOAT16),
        attention("causal lengths", Q, K, V, None, None, None, np.array([2, 4]), is_causal=1),
        attention("one query", Spread((2, 2, 1, 4)), K, V, None, *PAST, outputs=3, is_causal=1),
        attention("large limit", Q, K, V, softcap=3e38, outputs=4, qk_matmul_output_mode=1),
        OperatorCase(
            op_type="GroupQueryAttention",
            domain="com.microsoft",
            name="no window",
            inputs=[*[Spread((1, 2, 16))] * 3, None, None, np.array([1], np.int32), np.array(2, np.int32)],
            attributes={"num_heads": 2, "kv_num_heads": 2, "local_window_size": 0},
            constants=frozenset({5, 6}),
            outputs=3,
        ),
    ],
    ids=lambda case: case.name,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_hold_what_kernels_of_attention_make(case: OperatorCase, dtype: Any) -> None:
    if dtype is np.float64 and case.domain:
        pytest.skip("no kernel")
    inputs = [Spread(x.shape, dtype) if isinstance(x, Spread) else x for x in case.inputs]
    for seed, given in enumerate(([Recipe(width="none")], None, None)):
        assert not sweep_case(OperatorCase(**{**vars(case), "inputs": inputs}), seed=seed, given=given).faults
