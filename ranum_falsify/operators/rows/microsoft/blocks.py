"""Matrices and tables whose elements are quantised to a few bits, in blocks of a column or a row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

import torch
from dnnv.nn import Operation
from torch import Tensor
from torch.nn import functional

from ranum_falsify.domain.error_bounds import BLOCK_ROUNDINGS, gamma
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.attention import bound_anything_of
from ranum_falsify.domain.rules.matrix.matmul import matrix_product
from ranum_falsify.domain.rules.quantisation import read_known_numbers
from ranum_falsify.domain.rules.support.building import corner_products, unknown
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.rows.transformer_parts import reads_outside
from ranum_falsify.operators.support.conditions import WithinLimits
from ranum_falsify.operators.support.families import plain
from ranum_falsify.operators.support.microsoft import FLOATS, refused, schema

_HALF_STEP = 0.505 / 127
"""Half a step of the 8-bit integers to which kernels may round a block of the first factor.

Relative to the block's largest element; `accuracy_level` 4 allows it where a processor has such a kernel.
"""


_VANISHING = 2.0**-110
"""What a product of blocks loses for each of its terms where a scale, or a product of scales, is denormal.

Less than 2^-126 of it does, times what it is multiplied with: an integer of 8 bits, two of them, or another factor.
"""


def unpack(packed: Tensor, bits: int) -> Tensor:
    """Return the numbers that bytes hold, the lowest bits first, along the last dimension."""
    if bits not in (1, 2, 4, 8):
        raise UnsupportedAttributeError(f"numbers of {bits} bits are not supported; use 2, 4 or 8")
    parts = [(packed >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    return torch.stack(parts, -1).flatten(-2)


def _read_quantised(
    op: Operation, b: Tensor, zeros: Tensor | None, groups: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return integers, zero points, both `(n, k)` and float64, and the block of each row `(k,)`."""
    count = -(-op.k // op.block_size)
    integers = unpack(b.reshape(op.n, -1), op.bits)[:, : op.k].double()
    blocks = torch.arange(op.k, device=b.device) // op.block_size
    if groups is not None:
        # ONNX Runtime refuses a block that there is not, which must not stop a batch.
        blocks = torch.remainder(groups.long()[: op.k], max(count, 1))
    if zeros is None:
        points = torch.full((op.n, count), float(2 ** (op.bits - 1)), dtype=torch.float64, device=b.device)
    elif zeros.dtype is torch.uint8:
        points = unpack(zeros.reshape(op.n, -1), op.bits)[:, :count].double()
    else:
        points = zeros.reshape(op.n, count).double()
    return integers, points[:, blocks], blocks


def _product(
    op: Operation,
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    groups: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    integers, points, blocks = _read_quantised(op, b, zeros, groups)
    weights = (integers - points) * scales.reshape(op.n, -1)[:, blocks].double()
    y = torch.matmul(a, weights.mT.to(a.dtype))
    return y if bias is None else y + bias


def _bounds(
    site: Site,
    a: Interval,
    b: Interval,
    scales: Interval,
    zeros: Interval | None,
    groups: Interval | None,
    bias: Interval | None,
) -> Interval:
    """Bound the product for a first factor as it is or in 8 bits, and for sums that subtract zero points last."""
    op = site.op
    factor = read_known_numbers(scales)
    fixed = [x for x in (b, zeros, groups) if x is not None]
    if a.dtype is not torch.float32 or not a.size or not all(x.is_point for x in fixed):
        return unknown(site)[0]
    if op.accuracy_level == 4 and any(isinstance(x, Operation) for x in (op.b, op.scales, op.zero_points)):
        return unknown(site)[0]  # kernels for 8 bits read what was packed beforehand
    if factor is None or not bool(factor.isfinite().all()):
        return unknown(site)[0]
    known = [None if x is None else x.expand()[0] for x in (b, zeros, groups)]
    integers, points, blocks = _read_quantised(op, cast(Tensor, known[0]), known[1], known[2])
    factor = factor.reshape(-1).expand(op.n * -(-op.k // op.block_size)).reshape(op.n, -1)[:, blocks]
    return bound_block_product(a, integers, points, factor, bias, op.block_size) or unknown(site)[0]


def bound_block_product(
    a: Interval, integers: Tensor, points: Tensor, factor: Tensor, bias: Interval | None, length: int
) -> Interval | None:
    """Return bounds of a product with a quantised matrix, float32; None where it may overflow.

    Integers, zero points and scales of the matrix are `(n, k)` and float64; `length` is the number of elements of the
    first factor, float32, that kernels may quantise together.
    """
    weights = ((integers - points) * factor).mT
    sizes = ((integers + points.abs()) * factor.abs()).mT
    a = a.split(len(a.shape) - 1)
    low, high = a.doubles()
    size = torch.maximum(low.abs(), high.abs())
    if _overflows(size, integers + points.abs(), factor.abs()):
        return None
    strayed = _HALF_STEP * _find_largest_in_blocks(size, length) * 1.01 + 2.0**-118
    near = round_outward(low - strayed, high + strayed, torch.float32, a.shape)
    y = matrix_product(near, round_outward(weights, weights, torch.float32, tuple(weights.shape)), bias)
    terms = integers.shape[1]
    lost = gamma(terms + BLOCK_ROUNDINGS, torch.float32) * torch.matmul(size + strayed, sizes)
    lost = lost + _VANISHING * (terms + size.sum(-1, keepdim=True) + sizes.sum(0))
    return round_outward(y.lower.double() - lost, y.upper.double() + lost, torch.float32, y.shape)


def _overflows(size: Tensor, steps: Tensor, factor: Tensor) -> bool:
    """Tell whether a sum or a product on the way may overflow, although the whole product does not.

    Kernels add a block of the first factor up by itself, multiply zero points with scales, and scales with scales:
    what is small in between, or 0, comes last.  The arguments are magnitudes: of the first factor, of integers and
    their zero points, of scales.
    """
    room = torch.finfo(torch.float32).max / 4
    counts = (steps + 1).sum(-1).max()
    weights = (torch.maximum(steps, torch.ones_like(steps)) * factor).sum(-1).max()
    largest = size.max()
    return not all(float(x) < room for x in (largest * counts, weights, largest * weights))


def _find_largest_in_blocks(x: Tensor, length: int) -> Tensor:
    """Return for each element the largest one of its block along the last dimension."""
    count = x.shape[-1]
    padded = functional.pad(x, (0, -count % length))
    blocks = padded.reshape(*padded.shape[:-1], -1, length)
    return blocks.amax(-1, keepdim=True).expand(blocks.shape).flatten(-2)[..., :count]


_BLOCKS = WithinLimits(
    "g_idx",
    "0 <= g_idx < n, the number of blocks",
    lambda op, operands: (0, -(-op.k // op.block_size) - 1),
    decided_by=("g_idx",),
)


@plain(
    schema=schema(
        "MatMulNBits",
        "A:F B:U scales:F zero_points:Z? g_idx:I? bias:F?",
        "Y:F",
        {"F": FLOATS, "U": ("uint8",), "Z": ("uint8", *FLOATS), "I": ("int32",)},
        defaults={"bits": 4, "accuracy_level": 0, "weight_prepacked": 0},
        kinds={"K": "int", "N": "int", "block_size": "int"},
    ),
    torch=_product,
    interval=_bounds,
    valid=[_BLOCKS],
)
class MatMulNBits(Operation):
    """Product with a matrix of few bits."""


# numbers from a table -------------------------------------------------------------------------------------------

_FOURS = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_NORMALS = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_TABLES = ((*_FOURS, *(-x for x in _FOURS)), _NORMALS)
"""What 4 bits stand for, by `quant_type`: https://arxiv.org/abs/2305.14314."""


def _read_numbers(op: Operation, b: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
    """Return shares of the largest number of a block, and that number, both `(n, k)` and float64."""
    if not 0 <= op.quant_type < len(_TABLES):
        raise refused(op, f"quant_type {op.quant_type} is not supported; use 0 or 1")
    if not op.transpose_b:
        raise refused(op, "transB=0 is not supported; leave it out")
    count = op.n * op.k
    places = torch.stack([b >> 4, b & 15], -1).reshape(-1)[:count].long()
    # The numbers of the table are float32.
    shares = torch.tensor(_TABLES[op.quant_type], dtype=torch.float32, device=b.device).double()[places]
    sizes = largest.reshape(-1).double().repeat_interleave(op.block_size)[:count]
    return shares.reshape(op.n, op.k), sizes.reshape(op.n, op.k)


def _table_product(op: Operation, a: Tensor, b: Tensor, largest: Tensor) -> Tensor:
    shares, sizes = _read_numbers(op, b, largest)
    return torch.matmul(a, (shares * sizes).to(a.dtype).mT)


def _table_bounds(site: Site, a: Interval, b: Interval, largest: Interval) -> Interval:
    if not b.is_point or not a.size:
        return unknown(site)[0]
    ends = [largest.lower.expand(largest.shape), largest.upper.expand(largest.shape)]
    shares, low = _read_numbers(site.op, b.expand()[0], ends[0])
    weights = corner_products((shares, shares), (low, _read_numbers(site.op, b.expand()[0], ends[1])[1]))
    return matrix_product(a, round_outward(weights[0].mT, weights[1].mT, torch.float32, (site.op.k, site.op.n)))


@plain(
    schema=schema(
        "MatMulBnb4",
        "A:F B:U absmax:F",
        "Y:F",
        {"F": FLOATS, "U": ("uint8",)},
        defaults={"transB": 1, "training_mode": 0},
        kinds={"K": "int", "N": "int", "block_size": "int", "quant_type": "int"},
    ),
    torch=_table_product,
    interval=_table_bounds,
    operands=("a", "b", "largest"),
    renamed={"A": "a", "B": "b", "absmax": "largest", "transB": "transpose_b"},
)
class MatMulBnb4(Operation):
    """Product with a matrix of 4 bits that stand for shares of the largest number of a block."""


_ELEMENTS = 1 << 20
"""Of large tables, so many elements are looked at together."""


def _check(op: Operation, rank: int) -> None:
    """Refuse a node that gathers, or has blocks, along another axis, which ONNX Runtime does not run."""
    if op.gather_axis % rank or op.quantize_axis % rank != rank - 1:
        raise refused(op, "bytes are gathered along the first axis, and have blocks along the last")


def _steps(op: Operation, rows: Tensor, zeros: Tensor | None, blocks: int) -> Tensor:
    """Return the numbers that rows hold, less their zero points, float64; in both, a byte holds several numbers."""
    numbers = unpack(rows, op.bits).double()
    if zeros is None:
        middle: int = 2 ** (op.bits - 1)
        return numbers - middle
    points = unpack(zeros, op.bits)[..., :blocks]
    return numbers - _spread(op, points, numbers.shape[-1])


def _spread(op: Operation, values: Tensor, size: int) -> Tensor:
    """Return what blocks of the last dimension share, for each element."""
    return values.repeat_interleave(op.block_size, -1)[..., :size]


def _gather(op: Operation, x: Tensor, indices: Tensor, scales: Tensor, zeros: Tensor | None) -> Tensor:
    _check(op, x.ndim)
    places = torch.remainder(indices, max(len(x), 1)).reshape(-1)
    rows, sizes, points = (None if t is None else t.index_select(0, places) for t in (x, scales, zeros))
    assert rows is not None and sizes is not None
    steps = _steps(op, rows, points, sizes.shape[-1])
    y = steps.to(sizes.dtype) * _spread(op, sizes, steps.shape[-1])
    return y.reshape(*indices.shape, *y.shape[1:])


def _row_bounds(site: Site, x: Interval, indices: Interval, scales: Interval, zeros: Interval | None) -> Interval:
    _check(site.op, len(x.shape))
    if reads_outside(x, Interval(*_count_from_front(x, indices), indices.shape)):
        # Kernels give 0, or what was in memory.
        return bound_anything_of(site.shape, site.dtype)
    if not x.is_point or not (zeros is None or zeros.is_point) or not math.prod(site.shape):
        return unknown(site)[0]
    low, high = _count_from_front(x, indices)
    if indices.is_point:
        known = _dequantise(site.op, low.expand(indices.shape).reshape(-1), x, scales, zeros)
        return round_outward(known[0].reshape(site.shape), known[1].reshape(site.shape), site.dtype, site.shape)
    # Any row between the least and the greatest index may be read.
    parts = [
        (least.amin(0), greatest.amax(0))
        for rows in _split(range(int(low.min()), int(high.max()) + 1), math.prod(site.shape[len(indices.shape) :]))
        for least, greatest in [_dequantise(site.op, torch.arange(rows.start, rows.stop), x, scales, zeros)]
    ]
    lows, highs = zip(*parts, strict=True)
    stored = [1] * len(indices.shape) + list(site.shape[len(indices.shape) :])
    ends = (torch.stack(lows).amin(0).reshape(stored), torch.stack(highs).amax(0).reshape(stored))
    return round_outward(*ends, site.dtype, site.shape)


def _count_from_front(x: Interval, indices: Interval) -> tuple[Tensor, Tensor]:
    """Return bounds of indices, of which negative ones count from the end; those of both signs may be any."""
    low, high = indices.lower.long(), indices.upper.long()
    size = x.shape[0]
    wraps = (low < 0) & (high >= 0) & (low >= -size)
    low, high = torch.where(wraps, 0, low), torch.where(wraps, high.clamp(min=size - 1), high)
    low, high = torch.where((low < 0) & (high < 0), low + size, low), torch.where(high < 0, high + size, high)
    return low, high


def _split(rows: range, length: int) -> Iterator[range]:
    step = max(1, _ELEMENTS // max(length, 1))
    return (rows[first : first + step] for first in range(0, len(rows), step))


def _dequantise(
    op: Operation, places: Tensor, x: Interval, scales: Interval, zeros: Interval | None
) -> tuple[Tensor, Tensor]:
    """Return bounds of the numbers that rows represent, exact in float64."""
    rows = x.expand()[0].index_select(0, places)
    points = None if zeros is None else zeros.expand()[0].index_select(0, places)
    sizes = [end.index_select(0, places).double() for end in scales.expand()]
    steps = _steps(op, rows, points, scales.shape[-1])
    low, high = (_spread(op, size, steps.shape[-1]) for size in sizes)
    return corner_products((steps, steps), (low, high))


@plain(
    schema=schema(
        "GatherBlockQuantized",
        "data:T indices:I scales:F zero_points:T?",
        "output:F",
        {"T": ("uint8",), "I": ("int32", "int64"), "F": ("float", "float16")},
        defaults={"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1},
    ),
    torch=_gather,
    interval=_row_bounds,
    operands=("x", "indices", "scales", "zeros"),
    renamed={"data": "x", "zero_points": "zeros"},
)
class GatherBlockQuantized(Operation):
    """Rows of a table of few bits, as the numbers that it represents; ONNX Runtime has it for blocks of rows alone."""
