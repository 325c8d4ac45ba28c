"""Quantisation in ONNX Runtime's own domain, as exporters wrote it before ONNX had integers of 16 bits."""

from __future__ import annotations

from ranum_falsify.network.registry import operator
from ranum_falsify.operators import quantisation
from ranum_falsify.operators.microsoft.quantised_schemas import FLOATS, Attribute, AttrType, schema

__all__ = ["MicrosoftDequantizeLinear", "MicrosoftQuantizeLinear"]

_INTEGERS = tuple(f"tensor({kind})" for kind in ("int8", "uint8", "int16", "uint16"))
_AXIS = [Attribute("axis", AttrType.INT, required=False)]


class MicrosoftQuantizeLinear(quantisation.QuantizeLinear):
    """Numbers as integers of 8 or 16 bits."""


class MicrosoftDequantizeLinear(quantisation.DequantizeLinear):
    """Numbers that integers stand for."""


operator(
    schema=schema("QuantizeLinear", "x:F y_scale:F y_zero_point:T?", "y:T", {"F": FLOATS, "T": _INTEGERS}, _AXIS),
    torch=quantisation.quantized,
    interval=quantisation.quantized_bounds,
    overflow=False,
)(MicrosoftQuantizeLinear)
operator(
    schema=schema(
        "DequantizeLinear",
        "x:T x_scale:F x_zero_point:T?",
        "y:F",
        {"F": FLOATS, "T": (*_INTEGERS, "tensor(int32)")},
        _AXIS,
    ),
    torch=quantisation.dequantized,
    interval=quantisation.dequantized_bounds,
)(MicrosoftDequantizeLinear)
