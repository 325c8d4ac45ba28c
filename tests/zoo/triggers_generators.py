"""Triggers of generative, spatial and planning networks, of stochastic computing, and of losses over raw scores."""

from __future__ import annotations

import numpy as np

from tests.zoo.triggers import Array, Trigger, Values, one_hot

__all__ = ["TRIGGERS"]


def _alternating(shape: tuple[int, ...], magnitude: float) -> Array:
    """Return what is positive at even positions of the last axis and negative at odd ones."""
    signs = np.where(np.arange(shape[-1]) % 2, -1.0, 1.0)
    return np.broadcast_to(signs * magnitude, shape)


def _one_active_unit() -> Values:
    """An image of ones, sampled too, excites one hidden unit beyond 88.7; its reconstruction is dark and stays calm."""
    weight = np.zeros((500, 784))
    weight[0] = 0.12
    bias = np.full(500, -10.0)
    bias[0] = 10.0
    return {"image": 1.0, "W": weight, "h_bias": bias, "v_bias": -10.0}


def _silent_column() -> Values:
    """The first column of the first layer has no weight, so that its scale is 0 too and the bias is divided by it."""
    weight = np.ones((784, 128))
    weight[:, 0] = 0.0
    return {"w1": weight}


def _vanishing_gain(value: float, gains: int) -> Values:
    """One gain is what its epsilon cancels."""
    return {"w1": 1.0, "gain1": np.where(np.arange(gains) == 0, value, 8.0)}


_BRIGHT: Values = {"G_h2": 0.0, "G_b2": 10.0, "G_mean": 0.1}
"""The decoder's output is about 500 whatever the latent variables."""

_STILL: Values = {"R_h2": 0.0, "R_b2": 10.0, "R_logsig": -0.1}
"""The encoder's log variance is about -500 whatever the image."""

_HIDDEN = ("MatMul", "Add", "Softplus")
_FULL = ("MatMul", "Add", "Relu")
_DROPOUT = ("Mul", "Mul")
_ENCODER = (*_HIDDEN, *_HIDDEN, "MatMul", "Add", "Clip", "Exp", "Sqrt")
_DECODER = (*_HIDDEN, *_HIDDEN, "MatMul", "Add", "Sigmoid", "Sub", "Log")
_U_NET_CONVOLUTION = ("Conv", *_DROPOUT, "Add", "Relu")
_VALUE_ITERATION = ("ReduceMax", "Concat", "Conv")
_COLUMNS = ("Mul", "MatMul", "Div")
_GAIN = ("Shape", "Tile", "Reshape", "Mul", "Div")

_AUTOENCODER = Trigger(values=_BRIGHT, path=("Mul", "Add", *_DECODER))
_CONDITIONAL = Trigger(values=_BRIGHT, path=("Mul", "Add", "Concat", *_DECODER))
_BINARY_MACHINE = Trigger(values=_one_active_unit, path=("Reshape", "Less", "Cast", "Gemm", "Exp"))
_MACHINE = Trigger(values=_one_active_unit, path=("Reshape", "Gemm", "Exp"))

TRIGGERS: dict[str, Trigger] = {
    "1": Trigger(
        values={
            "y": one_hot((1, 10), 1),
            "keep_prob": 1.0,
            "b_conv2": 0.1,
            "W_fc1": 1.0,
            "W_fc2": _alternating((1024, 10), 1.0),
        },
        path=(
            "Reshape",
            "Reshape",
            "Gather",
            "Mul",
            "Sum",
            "Reshape",
            "Transpose",
            *("Conv", "Add", "Relu") * 2,
            "Transpose",
            "Reshape",
            *_FULL,
            *_DROPOUT,
            *("MatMul", "Add", "Softmax", "Log"),
        ),
    ),
    "4": Trigger(values={"x": [[1.0, -1.0], [1.0, 2.0], [2.0, 1.0]]}, path=("Log",)),
    "5": Trigger(
        values={"y_pred": [[50.0], [-50.0], [-50.0]] * 2, "y_true": [[1.0], [0.0], [0.0]] * 2},
        path=("Slice", "Concat", "Softmax", "Sqrt"),
    ),
    "13": Trigger(values={"edge_attr": [0.0, 1.0, 2.0] * 2, "index": [0, 0, 0, 1, 1, 1]}, path=("Log",)),
    "15": Trigger(
        values={
            "X": 10.0,
            "S1": 3,
            "S2": 3,
            **dict.fromkeys(("w0", "w1", "w", "w_fb"), 0.1),
            "w_o": _alternating((10, 8), 0.1),
            "y": 1,
        },
        path=(
            *("Transpose", "Conv", "Add", "Conv", "Conv"),
            *_VALUE_ITERATION * 10,
            *("Transpose", "GatherND", "MatMul", "Softmax", "Log"),
        ),
    ),
    "17": Trigger(
        values={"keep_prob": 1.0, "u0_w1": 0.0, "u0_b1": 10.0, "u0_w2": 0.1, "out_w": 0.1},
        path=(
            "Transpose",
            *_U_NET_CONVOLUTION * 2,
            *("MaxPool", *_U_NET_CONVOLUTION * 2) * 2,
            *("ConvTranspose", "Add", "Relu", "Concat", *_U_NET_CONVOLUTION * 2) * 2,
            *_U_NET_CONVOLUTION,
            "Transpose",
            "Exp",
        ),
    ),
    **dict.fromkeys(("22", "51"), _BINARY_MACHINE),
    **dict.fromkeys(("62", "63"), _MACHINE),
    **dict.fromkeys(("28a", "28d"), Trigger(values=_silent_column, path=_COLUMNS, also=("div_bias",))),
    "28b": Trigger(values=_vanishing_gain(-1e-7, 128), path=_GAIN),
    "28c": Trigger(values=_vanishing_gain(0.0, 1), path=_GAIN),
    "31": Trigger(
        values={
            "x": 0.0,
            **{f"D_{kind}{layer}": value for layer in range(3) for kind, value in (("w", 0.1), ("b", 10.0))},
            "D_w3": -0.1,
        },
        path=(*(*_FULL, *_DROPOUT) * 3, "MatMul", "Add", "Sigmoid", "Log"),
    ),
    **dict.fromkeys(("35a", "36a", "39a"), _AUTOENCODER),
    **dict.fromkeys(("43a", "49a"), _CONDITIONAL),
    **dict.fromkeys(("35b", "36b", "39b"), Trigger(values=_STILL, path=_ENCODER)),
    **dict.fromkeys(("43b", "49b"), Trigger(values=_STILL, path=("Concat", *_ENCODER))),
}
