"""ONNX Runtime's operators on quantised tensors."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tests.operators.cases import quantised_layers
from tests.operators.cases.quantised_layers import (
    BIAS,
    MATRIX,
    PARAMETER,
    S8,
    U8,
    WEIGHTS,
    scale,
    signed,
    unsigned,
)
from tests.operators.harness import OperatorCase, Spread

case = partial(quantised_layers.case, domain="com.microsoft")


def zero(value: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.array(value, dtype)


SHIFT = np.array([0.5, -2, 0, 9], np.float32)
SUM = (scale(0.05), U8)
ELEMENTS = [
    case("QLinearAdd", "unsigned", [unsigned(3, 4), *SUM, unsigned(4), scale(0.02), zero(7), scale(0.06), zero(90)]),
    case("QLinearAdd", "signed", [signed(3, 4), scale(0.1), S8, signed(3, 4), scale(0.3), S8, scale(0.2), S8]),
    case("QLinearAdd", "coarse", [unsigned(3, 4), scale(900), U8, unsigned(3, 4), scale(901), U8, scale(0.3), U8]),
    case("QLinearAdd", "scales", [unsigned(3, 4), PARAMETER, U8, unsigned(4), PARAMETER, U8, PARAMETER, U8], []),
    case("QLinearMul", "unsigned", [unsigned(3, 4), *SUM, unsigned(4), scale(0.02), zero(7), scale(0.06), zero(90)]),
    case("QLinearMul", "signed", [signed(3, 4), scale(0.1), S8, signed(3, 4), scale(0.3), S8, scale(1.2), S8]),
    case("QLinearMul", "tiny", [unsigned(9), scale(1e-30), U8, unsigned(9), scale(1e-30), U8, scale(1e-37), U8]),
    case("QLinearSigmoid", "unsigned", [unsigned(3, 9), scale(0.05), U8, scale(1 / 256), zero(0)]),
    case("QLinearSigmoid", "signed", [signed(3, 9), scale(0.3), zero(-9, np.int8), scale(1 / 100), zero(3, np.int8)]),
    case("QLinearSigmoid", "scales", [unsigned(3, 9), PARAMETER, U8, PARAMETER, U8], []),
    case("QLinearLeakyRelu", "unsigned", [unsigned(3, 9), scale(0.05), U8, scale(0.03), zero(20)]),
    case("QLinearLeakyRelu", "falling", [signed(3, 9), scale(0.05), None, scale(0.03), None], alpha=-0.7),
    case(
        "QLinearWhere",
        "",
        [Spread((3, 4), np.bool_), unsigned(3, 4), *SUM, unsigned(4), scale(0.03), U8, scale(0.04), zero(3)],
    ),
    case(
        "QLinearWhere",
        "signed",
        [Spread((3, 4), np.bool_), signed(3, 4), scale(0.1), S8, signed(1, 4), scale(0.4), S8, scale(0.1), S8],
    ),
    case(
        "QLinearConcat", "", [scale(0.07), zero(9), unsigned(2, 3), *SUM, unsigned(1, 3), scale(0.07), zero(9)], axis=0
    ),
    case(
        "QLinearConcat",
        "signed",
        [scale(0.01), S8, signed(2, 3), scale(0.4), S8, signed(2, 1), scale(0.03), S8],
        axis=-1,
    ),
]

REDUCTIONS = [
    case("QLinearSoftmax", "last", [unsigned(3, 7), scale(0.05), U8, scale(1 / 256), zero(0)], opset=13, axis=-1),
    case("QLinearSoftmax", "first", [unsigned(5, 3), scale(0.01), U8, scale(0.003), zero(9)], opset=13, axis=0),
    case("QLinearSoftmax", "flat", [unsigned(2, 3, 2), scale(0.02), U8, scale(1 / 255), zero(0)], opset=12, axis=1),
    case("QLinearSoftmax", "coarse", [unsigned(3, 4), scale(1e3), U8, scale(0.7), zero(20)], opset=13),
    case(
        "QLinearSoftmax",
        "signed",
        [signed(2, 5), scale(0.05), None, scale(1 / 100), zero(-50, np.int8)],
        opset=13,
        axis=1,
    ),
    case(
        "QLinearAveragePool",
        "",
        [unsigned(1, 2, 6, 6), *SUM, scale(0.04), zero(9)],
        kernel_shape=[2, 3],
        strides=[2, 1],
    ),
    case(
        "QLinearAveragePool",
        "padded",
        [signed(1, 2, 6, 6), scale(0.1), zero(-3, np.int8), scale(0.05), zero(9, np.int8)],
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    ),
    case(
        "QLinearAveragePool",
        "channels last",
        [unsigned(1, 6, 6, 2), *SUM, scale(0.04), zero(0)],
        kernel_shape=[3, 3],
        pads=[1, 0, 1, 0],
        channels_last=1,
    ),
    case("QLinearAveragePool", "line", [unsigned(1, 2, 9), *SUM, scale(0.04), U8], kernel_shape=[4]),
    case("QLinearAveragePool", "scales", [unsigned(1, 2, 9), PARAMETER, U8, PARAMETER, U8], [], kernel_shape=[4]),
    case("QLinearGlobalAveragePool", "", [unsigned(2, 3, 5, 4), *SUM, scale(0.02), zero(9)]),
    case("QLinearGlobalAveragePool", "last", [signed(2, 5, 4, 3), scale(0.1), S8, scale(0.02), S8], channels_last=1),
]

A8 = (scale(0.05), zero(100))
COLUMNS = scale(0.01, 0.02, 0.004, 0.1)
ZEROS = np.array([0, 3, -2, 1], np.int8)
LEAST = np.array([900, -(2**31), 40, 0], np.int32)
PRODUCTS = [
    case("QGemm", "bias", [unsigned(2, 5), *A8, MATRIX, scale(0.01), S8, BIAS, scale(0.02), U8]),
    case("QGemm", "floats", [unsigned(2, 5), *A8, MATRIX, COLUMNS, ZEROS, BIAS, None, None], alpha=0.5),
    case("QGemm", "wraps", [unsigned(2, 5), *A8, MATRIX, COLUMNS, ZEROS, LEAST, None, None], alpha=-1.0),
    case(
        "QGemm",
        "turned",
        [signed(5, 2), scale(0.1), S8, signed(4, 5), scale(0.03), S8, None, scale(0.2), S8],
        transA=1,
        transB=1,
        alpha=-0.25,
    ),
    case("MatMulIntegerToFloat", "columns", [unsigned(3, 5), MATRIX, scale(0.05), COLUMNS, U8, ZEROS, SHIFT]),
    case("MatMulIntegerToFloat", "scales", [unsigned(3, 5), unsigned(5, 4), PARAMETER, PARAMETER, U8, U8], []),
    case("DynamicQuantizeMatMul", "bias", [Spread((3, 5), low=-1, high=3), MATRIX, scale(0.02), S8, SHIFT]),
    case("DynamicQuantizeMatMul", "columns", [Spread((2, 3, 5)), MATRIX, COLUMNS, ZEROS]),
    case("DynamicQuantizeMatMul", "zeros", [np.zeros((3, 5), np.float32), MATRIX, scale(0.02)], [1, 2]),
    case(
        "QLinearConv",
        "channels last",
        [unsigned(1, 5, 5, 3), scale(0.05), U8, WEIGHTS, COLUMNS, np.zeros(4, np.int8), scale(0.06), U8, BIAS],
        pads=[1, 0, 1, 0],
        channels_last=1,
    ),
    case("NhwcMaxPool", "", [unsigned(1, 5, 5, 3)], kernel_shape=[2, 2], strides=[2, 1], pads=[1, 0, 0, 1]),
]
PRODUCTS = [c if c.op_type in ("QGemm", "QLinearConv") else replace(c, tolerance=(1e-4, 1e-3)) for c in PRODUCTS]


def blocks(name: str, bits: int, length: int, *rest: Any, columns: int = 3, level: int = 0) -> OperatorCase:
    """Return a case of a product with a matrix of few bits in blocks of 16 rows."""
    count = -(-length // 16)
    rng = np.random.default_rng(bits)
    packed = rng.integers(0, 256, (columns, count, 2 * bits)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (columns, count)).astype(np.float32)
    attributes: dict[str, Any] = {"K": length, "N": columns, "bits": bits, "block_size": 16, "accuracy_level": level}
    wide = case("MatMulNBits", name, [Spread((2, length)), packed, scales, *rest], **attributes)
    return replace(wide, tolerance=(0.0, 1.0) if level else (1e-4, 1e-4))


BLOCKS = [
    blocks("8 bits", 8, 32),
    blocks("8 bits, zero points", 8, 20, np.array([[9, 200], [0, 255], [128, 7]], np.uint8)),
    blocks("8 bits, quantised", 8, 64, level=4),
    blocks("4 bits", 4, 40, np.array([[0x19, 0x03], [0xFF, 0x00], [0x78, 0x01]], np.uint8), None, SHIFT[:3]),
    blocks("4 bits, quantised", 4, 64, level=4),
    blocks("4 bits, wide zero points", 4, 16, np.array([[7.5], [8], [1]], np.float32)),
]
QUANTISERS = [
    case("QuantizeLinear", "uint16", [Spread((3, 4), low=-9, high=9), scale(0.001), zero(40, np.uint16)]),
    case("QuantizeLinear", "axis", [Spread((3, 4), low=-9, high=9), COLUMNS, ZEROS], axis=1),
    case("DequantizeLinear", "int16", [Spread((3, 4), np.int16, -999, 999), scale(0.1), zero(-7, np.int16)]),
    case("DequantizeLinear", "int32", [Spread((3, 4), np.int32, -999, 999), scale(0.1), zero(0, np.int32)]),
]
QUANTISERS = [replace(c, tolerance=None) for c in QUANTISERS]


def shares(name: str, kind: int, length: int, columns: int, size: int) -> OperatorCase:
    """Return a case of a product with a matrix of 4 bits that a table explains."""
    rng, count = np.random.default_rng(kind), length * columns
    packed = rng.integers(0, 256, (count + 1) // 2).astype(np.uint8)
    largest = Spread((-(-count // size),), low=-1, high=2)
    attributes: dict[str, Any] = {"K": length, "N": columns, "block_size": size, "quant_type": kind}
    return case("MatMulBnb4", name, [Spread((2, length)), packed, largest], [1], **attributes)


SHARES = [
    replace(one, tolerance=(1e-5, 1e-5))
    for one in (shares("floats", 0, 24, 3, 16), shares("normal", 1, 33, 2, 32), shares("one column", 1, 5, 1, 64))
]
CASES = ELEMENTS + REDUCTIONS + PRODUCTS + BLOCKS + QUANTISERS + SHARES
