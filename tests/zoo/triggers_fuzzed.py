"""Triggers of the programs of the Soft Assertion Fuzzer."""

from __future__ import annotations

import numpy as np

from tests.zoo.triggers import Trigger, one_hot

__all__ = ["TRIGGERS"]

_ONE_BRIGHT_PIXEL = np.where(np.arange(16).reshape(4, 4) == 5, 9e19, 0.0)

TRIGGERS: dict[str, Trigger] = {
    "saf1": Trigger(values={"x": _ONE_BRIGHT_PIXEL}, path=("Reshape", "Sub", "Mul")),
    "saf2": Trigger(values={"w": 1e20, "w0": 0.0}, path=("Sub", "Mul")),
    "saf3": Trigger(
        values={"logits": [20.0, -20.0, -20.0], "target": 0},
        path=("LogSoftmax", "GatherElements", "Exp", "Sub", "Pow"),
    ),
    "saf4": Trigger(values={"new_logp": 0.0, "old_logp": -90.0, "advantage": -1.0}, path=("Sub", "Exp")),
    "saf5": Trigger(values={"x": 0.0}, path=("Div",)),
    "saf6": Trigger(values={"a": 2e19, "p": 0.0, "n": -2e19}, path=("Sub", "Mul"), also=("square_negative",)),
    "saf7": Trigger(values={"chosen": -60.0, "rejected": 60.0}, path=("Sub", "Sigmoid", "Log")),
    "saf8": Trigger(values={"x": 1e20, "y": 1e20}, path=("Transpose", "MatMul")),
    "saf9": Trigger(
        values={"a": 1e10, "p": 1e10, "n": -1e10}, path=("Mul", "ReduceSum", "Mul"), also=("product_negative",)
    ),
    "saf10": Trigger(values={"hidden": 8e36}, path=("Mul",)),
    "saf11": Trigger(
        values={"x": 0.0, "y": 50.0}, path=("Unsqueeze", "Sub", "Mul", "ReduceSum", "Add", "Mul", "Exp", "Div")
    ),
    "saf12": Trigger(values={"y_pred": -1.0, "y_true": 0.0}, path=("Add", "Log")),
    "saf13": Trigger(
        values={"w1": 0.0, "b1": 10.0, "w2": [[-0.17], [0.17]], "t": one_hot((1, 2), 1)},
        path=("Gemm", "Relu", "Gemm", "Relu", "Gemm", "Exp", "Div", "Log"),
    ),
    "saf14": Trigger(values={"A": 1.0, "b": [1.0, -1.0]}, path=("Slice", "Mul", "Sub", "Div")),
}
