"""Quantisation in ONNX Runtime's own domain, as exporters wrote it before ONNX had integers of 16 bits."""

from __future__ import annotations

from ranum_falsify.operators.rows import quantisation
from ranum_falsify.operators.support.microsoft_parts import doing_as
from ranum_falsify.operators.support.microsoft_schemas import FLOATS, schema

__all__ = ["MicrosoftDequantizeLinear", "MicrosoftQuantizeLinear"]

_INTEGERS = ("int8", "uint8", "int16", "uint16")
_AXIS = {"axis": "int?"}


@doing_as(
    quantisation.QuantizeLinear,
    schema("QuantizeLinear", "x:F y_scale:F y_zero_point:T?", "y:T", {"F": FLOATS, "T": _INTEGERS}, kinds=_AXIS),
    overflow=False,
)
class MicrosoftQuantizeLinear(quantisation.QuantizeLinear):
    """Numbers as integers of 8 or 16 bits."""


@doing_as(
    quantisation.DequantizeLinear,
    schema(
        "DequantizeLinear",
        "x:T x_scale:F x_zero_point:T?",
        "y:F",
        {"F": FLOATS, "T": (*_INTEGERS, "int32")},
        kinds=_AXIS,
    ),
)
class MicrosoftDequantizeLinear(quantisation.DequantizeLinear):
    """Numbers that integers represent."""
