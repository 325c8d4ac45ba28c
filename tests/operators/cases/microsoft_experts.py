"""Mixtures of experts."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

ROUTER = np.array([[0, 1, -2], [3, 0.5, 0.1], [-1, 0, 1], [5, 5.5, 7]], np.float32)


def experts(name: str, router: Any, biased: bool, width: int = 5, **attributes: Any) -> OperatorCase:
    """Return a case of three experts of layers of 5, the first of which may have a gate beside."""
    shapes = (3, width, 6), (3, 6, 5)
    inputs: list[Any] = [Spread((4, 6)), router]
    for shape in shapes:
        inputs += [Spread(shape, low=-1, high=1), Spread(shape[:2]) if biased else None]
    return OperatorCase(
        op_type="MoE",
        name=name,
        inputs=inputs if biased else inputs[:-1],
        attributes=attributes,
        domain="com.microsoft",
        opset=17,
        tolerance=(1e-4, 1e-4),
        gradient=False,
    )


GATED: dict[str, Any] = {"activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1, "k": 2}
CASES = [
    experts("one", ROUTER, True),
    experts("two", Spread((4, 3)), True, k=2, activation_type="silu"),
    experts("normalised", ROUTER, False, k=2, activation_type="gelu", normalize_routing_weights=1),
    experts("all", ROUTER, True, k=3, activation_type="identity"),
    experts("gated", ROUTER, True, 10, **GATED),
    experts(
        "gated and limited",
        Spread((4, 3)),
        True,
        10,
        **GATED,
        swiglu_limit=0.7,
        activation_alpha=1.702,
        activation_beta=1.0,
    ),
]


def quantised(name: str, bits: int, block: int, points: bool, width: int = 16, **attributes: Any) -> OperatorCase:
    """Return a case of two experts of quantised layers of 16."""
    rng, per = np.random.default_rng(bits), 8 // bits
    inputs: list[Any] = [Spread((3, 32)), Spread((3, 2))]
    zeros = []
    for rows, columns in ((width, 32), (32, 16)):
        count = columns // block if block else 1
        scales = rng.uniform(-0.02, 0.05, (2, rows, count) if block else (2, rows)).astype(np.float32)
        inputs += [rng.integers(0, 256, (2, rows, columns // per)).astype(np.uint8), scales, Spread((2, rows))]
        shape = (2, rows, -(-count // per)) if block else (2, rows // per)
        zeros.append(rng.integers(0, 256, shape).astype(np.uint8))
    inputs += [None] * 3 + (zeros if points else [])
    more = {"block_size": block} if block else {}
    return OperatorCase(
        op_type="QMoE",
        name=name,
        inputs=inputs,
        attributes={"expert_weight_bits": bits, "k": 1} | more | attributes,
        domain="com.microsoft",
        opset=17,
        tolerance=(1e-2, 4.0) if bits == 8 else (1e-4, 1e-3),
        gradient=False,
        constants=frozenset({2, 3, 5, 6, 11, 12}),
    )


CASES += [
    quantised("4 bits", 4, 16, False, activation_type="silu"),
    quantised("4 bits, zero points", 4, 16, True, 32, **GATED),
    quantised("4 bits, columns", 4, 0, True, activation_type="gelu"),
    quantised("8 bits", 8, 16, True, normalize_routing_weights=1),
    quantised("8 bits, columns", 8, 0, False, activation_type="identity"),
    quantised("2 bits", 2, 16, True, activation_type="relu"),
]


def full(size: float, *shape: int) -> np.ndarray:
    return np.full(shape, size, np.float32)


BORDERS = [
    BorderCase(
        op_type="MoE",
        name=name,
        inputs=[full(2e19, 1, 1), full(0, 1, 1), full(1, 1, 1, 1), None, full(size, 1, 1, 1)],
        bad=bad,
        domain="com.microsoft",
        opset=17,
    )
    for name, size, bad in (("fits", 1.5e19, False), ("overflows", 3e19, True))
]
