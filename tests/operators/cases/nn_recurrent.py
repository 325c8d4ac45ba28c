"""Recurrent layers."""

from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

TIME, BATCH, INPUT, HIDDEN = 4, 3, 2, 3
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LENGTHS = np.array([4, 1, 3], np.int32)


def layer(
    op_type: str,
    name: str,
    *,
    bias: bool = True,
    lengths: bool = False,
    initial: bool = False,
    peepholes: bool = False,
    opset: int = 21,
    outputs: Any = None,
    oracle: Any = "onnxruntime",
    **attributes: Any,
) -> OperatorCase:
    gates = GATES[op_type] * HIDDEN
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    batch_first = bool(attributes.get("layout"))
    start = Spread((BATCH, ways, HIDDEN) if batch_first else (ways, BATCH, HIDDEN))
    inputs: list[Any] = [
        Spread((BATCH, TIME, INPUT) if batch_first else (TIME, BATCH, INPUT)),
        Spread((ways, gates, INPUT), low=-1, high=1),
        Spread((ways, gates, HIDDEN), low=-1, high=1),
        Spread((ways, 2 * gates), low=-1, high=1) if bias else None,
        LENGTHS if lengths else None,
        start if initial else None,
    ]
    if op_type == "LSTM":
        inputs += [start if initial else None, Spread((ways, 3 * HIDDEN)) if peepholes else None]
    while inputs[-1] is None:
        inputs.pop()
    return OperatorCase(
        op_type=op_type,
        name=name,
        inputs=inputs,
        attributes={"hidden_size": HIDDEN, **attributes},
        opset=opset,
        outputs=outputs or (3 if op_type == "LSTM" else 2),
        oracle=oracle,
    )


COMMON: list[tuple[str, dict[str, Any]]] = [
    ("plain", {"bias": False, "opset": 7}),
    ("bias", {"opset": 14}),
    ("reverse", {"direction": "reverse"}),
    ("both", {"direction": "bidirectional", "initial": True}),
    ("lengths", {"lengths": True, "initial": True}),
    ("lengths-reverse", {"lengths": True, "initial": True, "direction": "reverse"}),
    ("lengths-both", {"lengths": True, "direction": "bidirectional"}),
    ("clip", {"clip": 0.4}),
]

CASES = [
    *(layer(op_type, name, **given) for op_type in GATES for name, given in COMMON),
    layer("RNN", "last-only", outputs=("", "y_h")),
    layer("RNN", "relu", activations=["Relu"]),
    layer(
        "RNN",
        "two-activations",
        activations=["Affine", "Softsign"],
        direction="bidirectional",
        activation_alpha=[0.5],
        activation_beta=[0.25],
    ),
    layer("RNN", "leaky", activations=["LeakyRelu"], activation_alpha=[0.3]),
    layer("RNN", "elu", activations=["Elu"], activation_alpha=[0.7]),
    layer("RNN", "scaled-tanh", activations=["ScaledTanh"], activation_alpha=[0.5], activation_beta=[1.5]),
    layer("GRU", "reset-last", linear_before_reset=1),
    layer("GRU", "reset-last-both", linear_before_reset=1, direction="bidirectional", lengths=True),
    layer("GRU", "reset-last-no-bias", linear_before_reset=1, bias=False),
    layer("GRU", "hard", activations=["HardSigmoid", "Softplus"], activation_alpha=[0.3], activation_beta=[0.4]),
    layer("GRU", "all-only", outputs=("y",)),
    layer("LSTM", "peepholes", peepholes=True, initial=True),
    layer("LSTM", "peepholes-both", peepholes=True, direction="bidirectional"),
    layer("LSTM", "coupled", input_forget=1),
    layer("LSTM", "activations", activations=["HardSigmoid", "Softsign", "Relu"]),
    layer("LSTM", "cell-only", outputs=("", "", "y_c")),
    layer("LSTM", "batch-first", layout=1, initial=True, oracle="reference"),
    layer("GRU", "batch-first", layout=1, initial=True, oracle="reference"),
    layer("RNN", "batch-first", layout=1, initial=True, oracle="reference"),
]

BORDERS = [
    BorderCase(
        op_type="RNN",
        name="overflow",
        inputs=[np.full((1, 1, 2), 3e38, np.float32), np.ones((1, 1, 2), np.float32), np.ones((1, 1, 1), np.float32)],
        attributes={"hidden_size": 1, "activations": ["Relu"]},
        bad=True,
    ),
    BorderCase(
        op_type="RNN",
        name="saturated",
        inputs=[np.full((1, 1, 2), 3e38, np.float32), np.ones((1, 1, 2), np.float32), np.ones((1, 1, 1), np.float32)],
        attributes={"hidden_size": 1},
        bad=False,
    ),
]
