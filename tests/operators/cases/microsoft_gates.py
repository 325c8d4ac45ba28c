"""Gates that are computed with what they multiply."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

DOMAIN = "com.microsoft"
X = Spread((2, 3, 4))


def case(op_type: str, name: str, inputs: list[Any], **rest: Any) -> OperatorCase:
    return OperatorCase(op_type=op_type, name=name, inputs=inputs, domain=DOMAIN, opset=17, **rest)


CASES = [
    case("GatedAdd", "", [X, X, Spread((2, 3, 1))]),
    case("GatedAdd", "half", [Spread((2, 4), np.float16)] * 2 + [Spread((2, 1), np.float16)], gradient=False),
    case("GatedRMSNorm", "silu", [X, Spread((4,)), X]),
    case("GatedRMSNorm", "sigmoid", [X, Spread((4,)), X], attributes={"activation": "sigmoid", "epsilon": 0.5}),
    case("GatedRMSNorm", "heads", [Spread((2, 6)), Spread((3,)), Spread((2, 6))], attributes={"activation": "swish"}),
    case(
        "GatedRMSNorm",
        "half",
        [Spread((2, 4), np.float16), Spread((4,), np.float16), Spread((2, 4), np.float16)],
        gradient=False,
    ),
]


def full(size: float, *shape: int) -> np.ndarray:
    return np.full(shape, size, np.float32)


BORDERS = [
    *(
        BorderCase(
            op_type="GatedAdd",
            name=name,
            inputs=[full(1, 1, 1), full(2e19, 1, 1), full(gate, 1, 1)],
            bad=bad,
            domain=DOMAIN,
            opset=17,
        )
        for name, gate, bad in (("fits", 1.5e19, False), ("overflows", 3e19, True))
    ),
    *(
        BorderCase(
            op_type="GatedRMSNorm",
            name=name,
            inputs=[full(0, 1, 2), full(1, 2), full(1, 1, 2)],
            attributes={"epsilon": epsilon},
            bad=bad,
            domain=DOMAIN,
            opset=17,
        )
        for name, epsilon, bad in (("zeros", 0.0, True), ("zeros, epsilon", 1e-5, False))
    ),
]
