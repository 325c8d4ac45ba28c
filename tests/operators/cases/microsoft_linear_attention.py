"""Attention without softmax and convolutions with a state, in ONNX Runtime's own domain."""

from dataclasses import replace
from typing import Any

import numpy as np

from tests.operators.cases import transformer_parts
from tests.operators.harness import BorderCase, OperatorCase, Spread


def microsoft(case: OperatorCase) -> OperatorCase:
    """Return a case of an operator of ONNX for ONNX Runtime's, which has a kernel."""
    return replace(case, domain="com.microsoft", opset=17, oracle="onnxruntime", tolerance=(1e-4, 1e-5))


def causal(name: str, shape: tuple[int, ...], *rest: Any, **attributes: Any) -> OperatorCase:
    return OperatorCase(
        op_type="CausalConvWithState",
        name=name,
        inputs=[Spread(shape), Spread((6, 1, 3)), *rest],
        attributes=attributes,
        opset=17,
        outputs=2,
        domain="com.microsoft",
        tolerance=(1e-4, 1e-5),
    )


CASES = [
    *(
        microsoft(case)
        for case in transformer_parts.CASES
        if case.op_type in ("LinearAttention", "CausalConvWithState")
    ),
    microsoft(
        transformer_parts.linear(
            "not read", None, transformer_parts.DECAY, transformer_parts.BETA, update_rule="linear", scale=-1.0
        )
    ),
    causal("wide", (2, 6, 5), Spread((6,)), Spread((2, 6, 4)), dilation=2),
    causal("channels last", (2, 5, 6), Spread((6,)), channels_last=1, activation="swish"),
    causal("channels of two dimensions", (2, 5, 2, 3), None, Spread((2, 2, 2, 3)), channels_last=1),
    causal("one step", (1, 6, 1), None, Spread((1, 6, 2)), activation="silu"),
]

BORDERS = [
    BorderCase(
        op_type="CausalConvWithState",
        name=name,
        inputs=[np.full((1, 1, 1), 2e19, np.float32), np.full((1, 1, 1), other, np.float32)],
        bad=bad,
        opset=17,
        outputs=2,
        domain="com.microsoft",
    )
    for name, other, bad in (("fits", 1.5e19, False), ("overflows", 3e19, True))
]
