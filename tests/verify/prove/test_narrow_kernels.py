"""Models that fail by what a kernel does in its own way, as they are, and with what is not a number hidden after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.verify.prove.test_narrow_misses import Array, assert_open, make


@dataclass(frozen=True)
class Failing:
    """A model that fails at a point.

    Attributes:
        name: What the kernel does.
        nodes: The nodes; the last makes `y`.
        x: The point.
        radius: How far the box goes on each side, relative to the point, or from 0 to 1,000 where it is None.
        constants: Constants by name.
        attributes: Attributes of nodes by the nodes' names.
    """

    name: str
    nodes: str
    x: Array
    radius: float | None
    constants: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)


QUANTISED = "q = QuantizeLinear(x, s, z)\nd = DequantizeLinear(q, s, z)\n"
SHIFTED = "\np = QuantizeLinear(o, t, u)\ne = DequantizeLinear(p, t, u)\ng = Sub(e, k)\ny = Log(g)"
SUMMAND = [[8, 30, 6, 12], [24, 38, 51, 66]]
CASES = [
    Failing(
        "half precision that is not rounded to before it is rounded down",
        "a = Cast(x)\nb = Floor(a)\nc = Cast(b)\ny = Reciprocal(c)",
        np.array([0.9999], np.float32),
        1e-4,
        {},
        {"a": {"to": TensorProto.FLOAT16}, "c": {"to": TensorProto.FLOAT}},
    ),
    Failing(
        "Gelu of AVX-512",
        "g = Gelu(x)\ne = Sub(g, k)\ny = Sqrt(e)",
        np.full(16, -3.493195056915283, np.float32),
        0.0,
        {"k": np.float32(-0.0008343075169250369)},
    ),
    Failing(
        "small shares of AVX-512",
        "p = Softmax(x)\nr = Slice(p, one, two, one)\nq = Mul(r, k)\ne = Sub(c, q)\ny = Log(e)",
        np.array([[0, -88.5]], np.float32),
        0.002,
        {"one": np.array([1]), "two": np.array([2]), "k": np.float32(1e38), "c": np.float32(0.05)},
    ),
    Failing(
        "sums of quantised numbers",
        f"{QUANTISED}c = DequantizeLinear(bq, sb, zb)\no = Add(d, c){SHIFTED}",
        np.array(
            [
                [-0.5317389965057373, -0.2543202042579651, -0.1098286360502243, 0.20443201065063477],
                [0.9103816151618958, 0.9971892237663269, -0.6252442598342896, 0.6970879435539246],
            ],
            np.float32,
        ),
        4e-6,
        {
            "s": np.float32(0.02),
            "z": np.uint8(128),
            "t": np.float32(0.02),
            "u": np.uint8(100),
            "sb": np.float32(0.03),
            "zb": np.uint8(5),
            "bq": np.array(SUMMAND, np.uint8),
            "k": np.array([[-1.44, 0.49, -1.06, -0.6], [0.48, 1, -0.24, 1.52]], np.float32),
        },
    ),
    Failing(
        "shares of quantised numbers",
        f"{QUANTISED}o = Softmax(d){SHIFTED}",
        np.array(
            [
                [0.25664055347442627, 0.6127430200576782, -0.6931684613227844, -0.19760769605636597],
                [0.22737422585487366, -0.9425497055053711, 0.6713261008262634, -0.1675215321420219],
            ],
            np.float32,
        ),
        2e-5,
        {
            "s": np.float32(0.01),
            "z": np.int8(0),
            "t": np.float32(0.0039),
            "u": np.int8(0),
            "k": np.array([[0.29055, -0.5866, -0.8869, -0.8167], [-0.7153, -0.9103, -0.5593, -0.8089]], np.float32),
        },
    ),
    Failing(
        "differences of large numbers to their mean",
        "z = LayerNormalization(x, s, b)\nq = Add(z, k)\ny = Log(q)",
        np.array([[635499.3125, 635499.375]], np.float32),
        0.0,
        {"s": np.ones(2, np.float32), "b": np.zeros(2, np.float32), "k": np.float32(1000)},
        {"z": {"epsilon": 1e-12}},
    ),
    Failing("a tangent beyond half precision", "y = Tan(x)", np.full(2, 177.5, np.float16), 0.0, {}),
    Failing("tangents beyond half precision", "y = Tan(x)", np.full(2, 177.5, np.float16), None, {}),
    Failing("greatest of nothing", "y = ReduceMax(x, a)", np.zeros((2, 0), np.float32), 0.0, {"a": np.array([1])}),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("hide", [False, True], ids=["shown", "hidden"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_fails_in_a_kernel_is_not_proved(case: Failing, hide: bool) -> None:
    constants = {name: np.asarray(value) for name, value in case.constants.items()}
    nodes = case.nodes
    if hide:
        nodes += "\nn = IsNaN(y)\nw = Where(n, zero, y)"
        constants["zero"] = np.zeros((), case.x.dtype)
    if case.radius is None:
        low, high = np.zeros_like(case.x), np.full_like(case.x, 1000)
    else:
        reach = np.abs(case.x) * case.x.dtype.type(case.radius)
        low, high = case.x - reach, case.x + reach
    assert_open(make(nodes, {"x": case.x}, constants, **case.attributes), {"x": (low, high)}, {"x": case.x})
