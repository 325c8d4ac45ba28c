"""Tables whose elements are quantised to a few bits, in blocks of a row, and rows read of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.attention import bound_anything_of
from ranum_falsify.domain.rules.support.building import corner_products, unknown
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.rows.microsoft.block_products import unpack
from ranum_falsify.operators.rows.transformer_parts import reads_outside
from ranum_falsify.operators.support.families import plain
from ranum_falsify.operators.support.microsoft_schemas import DOMAIN, schema

__all__ = ["GatherBlockQuantized"]

_ELEMENTS = 1 << 20
"""Of large tables, so many elements are looked at together."""


def _check(op: Operation, rank: int) -> None:
    """Refuse what ONNX Runtime does not run.

    Raises:
        UnsupportedAttributeError: The node gathers, or has blocks, along another axis.
    """
    if op.gather_axis % rank or op.quantize_axis % rank != rank - 1:
        raise UnsupportedAttributeError(
            f"{DOMAIN}::GatherBlockQuantized: bytes are gathered along the first axis, and have blocks along the last"
        )


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


def _bounds(site: Site, x: Interval, indices: Interval, scales: Interval, zeros: Interval | None) -> Interval:
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
    interval=_bounds,
    operands=("x", "indices", "scales", "zeros"),
    renamed={"data": "x", "zero_points": "zeros"},
)
class GatherBlockQuantized(Operation):
    """Rows of a table of few bits, as the numbers that it represents; ONNX Runtime has it for blocks of rows alone."""
