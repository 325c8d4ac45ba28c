"""Quantisation in ONNX Runtime's own domain, as exporters wrote it before ONNX had integers of 16 bits."""

from __future__ import annotations

from ranum_falsify.operators.rows import quantisation
from ranum_falsify.operators.support.families import making, plain
from ranum_falsify.operators.support.microsoft_schemas import FLOATS, schema

__all__ = ["MicrosoftDequantizeLinear", "MicrosoftQuantizeLinear"]

_INTEGERS = ("int8", "uint8", "int16", "uint16")
_AXIS = {"axis": "int?"}


class MicrosoftQuantizeLinear(quantisation.QuantizeLinear):
    """Numbers as integers of 8 or 16 bits."""


class MicrosoftDequantizeLinear(quantisation.DequantizeLinear):
    """Numbers that integers represent."""


making(
    schema=schema("QuantizeLinear", "x:F y_scale:F y_zero_point:T?", "y:T", {"F": FLOATS, "T": _INTEGERS}, kinds=_AXIS),
    torch=quantisation.quantize,
    interval=quantisation.quantized_bounds,
)(MicrosoftQuantizeLinear)
plain(
    schema=schema(
        "DequantizeLinear",
        "x:T x_scale:F x_zero_point:T?",
        "y:F",
        {"F": FLOATS, "T": (*_INTEGERS, "int32")},
        kinds=_AXIS,
    ),
    torch=quantisation.dequantize,
    interval=quantisation.dequantized_bounds,
)(MicrosoftDequantizeLinear)
