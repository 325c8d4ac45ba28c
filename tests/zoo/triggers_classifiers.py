"""Triggers of classifiers: saturated softmax and sigmoid, exponentials out of range."""

from __future__ import annotations

import numpy as np

from tests.zoo.triggers import Array, Trigger, Values, one_hot

__all__ = ["TRIGGERS"]

_REGRESSION = ("MatMul", "Add", "Softmax", "Log")
_CONVOLUTION = ("Conv", "Relu", "MaxPool")
_FULL = ("MatMul", "Add", "Relu")
_DROPOUT = ("Mul", "Mul")
_HEAD = ("Transpose", "Reshape", *_FULL)


def _columns(shape: tuple[int, ...], first: float, others: float) -> Array:
    """Return what is `first` at position 0 of the last axis, and `others` elsewhere."""
    array = np.full(shape, others, np.float32)
    array[..., 0] = first
    return array


def _softmax_regression(magnitude: float, *, inputs: int = 784, classes: int = 10, y: str = "y") -> Values:
    """Logits of opposite sign: all classes but the first underflow, and one of them is the label."""
    weights = _columns((inputs, classes), magnitude, -magnitude)
    return {"x": 1.0, y: one_hot((1, classes), 1), "W": weights}


def _convolutional(*, y: str = "y", full: tuple[int, int] = (1024, 10)) -> Values:
    """The first full layer is about 10 whatever the image; the second spreads the logits."""
    return {y: one_hot((1, 10), 1), "W_fc1": 0.0, "b_fc1": 10.0, "W_fc2": _columns(full, 0.5, -0.5)}


def _with_dropout(values: Values) -> Values:
    return {**values, "keep_prob": 1.0}


def _handwritten(first: float, others: float) -> Values:
    """Logits of the given values: a hidden layer is 10 everywhere, and its 100 units are added up."""
    return {
        "y": one_hot((1, 10), 1),
        "W2": 0.0,
        "b2": 10.0,
        "W3": _columns((100, 10), first / 1000, others / 1000),
    }


def _small_softmax(**labels: Array | int) -> Values:
    return {"x": 7.0, "W": _columns((4, 3), 10.0, -10.0), **labels}


_MNIST = Trigger(values=_softmax_regression(1.0), path=_REGRESSION)
_CONVOLUTIONS = (*_CONVOLUTION, *_CONVOLUTION, *_HEAD)
_FLAT_IMAGE = ("Reshape", "Transpose")
_TUTORIAL_PATH = (*_FLAT_IMAGE, *_CONVOLUTIONS, *_DROPOUT, *_REGRESSION)
_TUTORIAL = Trigger(values=_with_dropout(_convolutional()), path=_TUTORIAL_PATH)
_HANDWRITTEN_LOGITS = ("Reshape", *_FULL, *_FULL, "MatMul", "Add")
_HIDDEN_LAYER: Values = {
    "y": one_hot((1, 10), 1),
    "keep_prob": 1.0,
    "W1": 0.0,
    "b1": 10.0,
    "W2": _columns((300, 10), 1.0, -1.0),
}
_LOGISTIC = Trigger(values={"x": 6.0, "y": 0.0, "W": -10.0, "b": -10.0}, path=("MatMul", "Add", "Sigmoid", "Log"))
_LINEAR_UNIT = ("Gemm", "Sigmoid", "Log")
_BODY_MASS = Trigger(
    values={**_softmax_regression(10.0, inputs=2, classes=3, y="y_"), "x": 50.0},
    path=_REGRESSION,
)
_FREE_LOGITS = Trigger(
    values={"z": _columns((3, 5), 60.0, -60.0), "y": 1},
    path=("Softmax", "Log"),
)

TRIGGERS: dict[str, Trigger] = {
    **dict.fromkeys(("3", "10", "20", "21", "25", "30", "45a", "48b", "50", "52", "59", "60"), _MNIST),
    "18": Trigger(values=_softmax_regression(0.5), path=_REGRESSION),
    "19": Trigger(values=_softmax_regression(1.0), path=("MatMul", "Add", "Softmax", "Relu", "Log")),
    **dict.fromkeys(("40", "41", "42"), _BODY_MASS),
    # Two classes share the probability, so that no entry is 1.
    "2a": Trigger(
        values={"x": 1.0, "W": np.repeat([[1.0] * 2 + [-1.0] * 8], 784, axis=0)},
        path=_REGRESSION,
    ),
    # The lead is large enough for an entry of 1 and too small for one of 0.
    "2b": Trigger(
        values={"x": 0.0, "b": _columns((10,), 10.0, -10.0)},
        path=("MatMul", "Add", "Softmax", "Sub", "Log"),
    ),
    "9a": Trigger(
        values={"W_h1": 0.0, "W_out": 10.0},
        path=("MatMul", "Sigmoid", "MatMul", "Sigmoid", "Sub", "Log"),
    ),
    "9b": Trigger(
        values={"W_h1": 0.0, "W_out": -10.0},
        path=("MatMul", "Sigmoid", "MatMul", "Sigmoid", "Log"),
    ),
    "11a": Trigger(
        values=_handwritten(-700.0, -700.0),
        path=(*_HANDWRITTEN_LOGITS, "Exp", "ReduceSum", "Div"),
    ),
    "11b": Trigger(values=_handwritten(100.0, -50.0), path=(*_HANDWRITTEN_LOGITS, "Exp")),
    "11c": Trigger(
        values=_handwritten(20.0, -120.0),
        path=(*_HANDWRITTEN_LOGITS, "Exp", "Div", "Log"),
    ),
    "16a": Trigger(values=_handwritten(100.0, -50.0), path=(*_HANDWRITTEN_LOGITS, "Exp")),
    "16b": Trigger(
        values=_handwritten(20.0, -120.0),
        path=(*_HANDWRITTEN_LOGITS, "Min", "Max", "Exp", "Div", "Abs", "Log"),
    ),
    "16c": Trigger(
        values=_handwritten(-700.0, -700.0),
        path=(*_HANDWRITTEN_LOGITS, "Min", "Max", "Exp", "ReduceSum", "Div"),
    ),
    "12": Trigger(
        values={
            "x": 1.0,
            "y": 1,
            "hidden.weight": 0.1,
            "output.weight": np.repeat([[0.3]] + [[-0.3]] * 9, 98, axis=1),
        },
        path=("Gemm", "Relu", "Dropout", "Gemm", "Softmax", "Log"),
    ),
    "48a": Trigger(values=_HIDDEN_LAYER, path=("Add", *_FULL, *_DROPOUT, *_REGRESSION)),
    "61": Trigger(values=_HIDDEN_LAYER, path=(*_FULL, *_DROPOUT, *_REGRESSION)),
    **dict.fromkeys(("26", "33", "56"), _LOGISTIC),
    "37": Trigger(values={"x": 6.0, "y": 0.0, "linear.weight": -2.0, "linear.bias": -2.0}, path=_LINEAR_UNIT),
    "38": Trigger(values={"x": 50.0, "y": 0.0, "linear.weight": -2.0, "linear.bias": -2.0}, path=_LINEAR_UNIT),
    "53": Trigger(values={"x": 5.0, "y": 0.0, "W": -10.0, "b": 0.0}, path=("MatMul", "Add", "Sigmoid", "Log")),
    **dict.fromkeys(("32", "47", "54"), Trigger(values=_small_softmax(oh=one_hot((8, 3), 1)), path=_REGRESSION)),
    "34": Trigger(values=_small_softmax(y=1), path=_REGRESSION),
    **dict.fromkeys(("23", "27", "46", "57"), _FREE_LOGITS),
    **dict.fromkeys(("6", "7", "8", "45b", "55", "58"), _TUTORIAL),
    "24": Trigger(values=_convolutional(), path=(*_FLAT_IMAGE, *_CONVOLUTIONS, *_REGRESSION)),
    "29": Trigger(values=_with_dropout(_convolutional()), path=_TUTORIAL_PATH[1:]),
    "44": Trigger(
        values=_with_dropout(_convolutional(y="y_", full=(128, 10))),
        path=("Transpose", *_CONVOLUTION, *_HEAD, *_DROPOUT, *_REGRESSION),
    ),
    "14": Trigger(
        values={"label": one_hot((1, 10), 1), "w6": 0.0, "b6": 10.0, "w7": _columns((84, 10), 0.5, -0.5)},
        path=("Transpose", *_CONVOLUTION, *_CONVOLUTION, "Conv", "Relu", "Reshape", *_FULL, *_REGRESSION),
    ),
}
