"""Element types of fewer than 16 bits that PyTorch does not compute with, and what stands for them.

Tensors of these types are read as tensors of wider ones with the same values: integers of 4 and 2 bits as integers of 8
bits, floats of 8 bits and fewer as float32.  Only the operators that convert to them round to their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from onnx import TensorProto

__all__ = ["NARROW", "NARROW_FLOATS", "NarrowFloat", "NarrowInteger"]


@dataclass(frozen=True)
class NarrowInteger:
    """An integer type.

    Attributes:
        carrier: Number of the element type that stands for it.
        least: Its least value.
        greatest: Its greatest value.
    """

    carrier: int
    least: int
    greatest: int


@dataclass(frozen=True, kw_only=True)
class NarrowFloat:
    """A floating type: https://onnx.ai/onnx/technical/float8.html and https://onnx.ai/onnx/technical/float4.html.

    Attributes:
        digits: Binary digits of a number after the first one.
        exponent: That of the smallest normal number.
        greatest: The greatest number.
        beyond: What becomes of larger numbers where they do not saturate; NaN, or infinity if there is one.
        has_nan: Whether it has NaN; if not, all numbers saturate.
        has_negative_zero: Whether zero has a sign.
        is_power: Whether it holds powers of two alone, all of them positive.
        carrier: Number of the element type that stands for it.
    """

    digits: int
    exponent: int
    greatest: float
    beyond: float = math.nan
    has_nan: bool = True
    has_negative_zero: bool = True
    is_power: bool = False
    carrier: int = TensorProto.FLOAT


NARROW_FLOATS: Mapping[int, NarrowFloat] = MappingProxyType(
    {
        TensorProto.FLOAT8E4M3FN: NarrowFloat(digits=3, exponent=-6, greatest=448.0),
        TensorProto.FLOAT8E4M3FNUZ: NarrowFloat(digits=3, exponent=-7, greatest=240.0, has_negative_zero=False),
        TensorProto.FLOAT8E5M2: NarrowFloat(digits=2, exponent=-14, greatest=57344.0, beyond=math.inf),
        TensorProto.FLOAT8E5M2FNUZ: NarrowFloat(digits=2, exponent=-15, greatest=57344.0, has_negative_zero=False),
        TensorProto.FLOAT8E8M0: NarrowFloat(digits=0, exponent=-127, greatest=2.0**127, is_power=True),
        TensorProto.FLOAT6E2M3: NarrowFloat(digits=3, exponent=0, greatest=7.5, has_nan=False),
        TensorProto.FLOAT6E3M2: NarrowFloat(digits=2, exponent=-2, greatest=28.0, has_nan=False),
        TensorProto.FLOAT4E2M1: NarrowFloat(digits=1, exponent=0, greatest=6.0, has_nan=False),
    }
)
"""Floating types of 8 bits and fewer, by number."""

NARROW: Mapping[int, NarrowInteger | NarrowFloat] = MappingProxyType(
    {
        TensorProto.INT4: NarrowInteger(TensorProto.INT8, -8, 7),
        TensorProto.UINT4: NarrowInteger(TensorProto.UINT8, 0, 15),
        TensorProto.INT2: NarrowInteger(TensorProto.INT8, -2, 1),
        TensorProto.UINT2: NarrowInteger(TensorProto.UINT8, 0, 3),
        **NARROW_FLOATS,
    }
)
"""All types that a wider one stands for, by number."""
