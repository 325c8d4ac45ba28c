"""Interpolation, and derivatives of what resamples images, as products with a matrix of weights along each axis.

Each of these operators is linear and takes axes apart, so that what its kernel makes of the rows of an identity matrix
is the matrix.  Weights that are not exact are left to the operators themselves: kernels with fused sums have others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

aten = torch.ops.aten

Kernel = Callable[..., Tensor]

Matrix = list[list[float]]
"""Weights of what is read, in rows of what is made of it."""


def list_resampling() -> dict[Any, Callable[..., Any]]:
    """Return the functions by operator, forward and backward."""
    found: dict[Any, Callable[..., Any]] = {}
    for rank, name in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d"), (2, "bicubic2d")):
        operator = getattr(aten, f"upsample_{name}")
        # What is one pixel wide is interpolated along one axis.
        kernel = aten.upsample_bicubic2d.default if name == "bicubic2d" else aten.upsample_bilinear2d.default
        found[operator.default] = partial(_interpolate, kernel, rank)
        found[operator.vec] = partial(_resize_by_factors, operator.default, rank)
        found[getattr(aten, f"upsample_{name}_backward").default] = partial(_interpolate_backward, kernel, rank)
    for rank in (1, 2, 3):
        exact = getattr(aten, f"_upsample_nearest_exact{rank}d")
        found[exact.default] = partial(_repeat, aten._upsample_nearest_exact1d.default, rank)
        found[exact.vec] = partial(_resize_by_factors, exact.default, rank)
        for name, kernel in (
            ("upsample_nearest", aten.upsample_nearest1d.default),
            ("_upsample_nearest_exact", aten._upsample_nearest_exact1d.default),
        ):
            found[getattr(aten, f"{name}{rank}d_backward").default] = partial(_repeat_backward, kernel, rank)
        for name, kernel in (("reflection", aten.reflection_pad1d), ("replication", aten.replication_pad1d)):
            found[getattr(aten, f"{name}_pad{rank}d_backward").default] = partial(_pad_backward, kernel.default)
    for rank in (2, 3):
        found[getattr(aten, f"_adaptive_avg_pool{rank}d_backward").default] = partial(_average_backward, rank)
    return found


def _interpolate(
    kernel: Kernel, rank: int, x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None
) -> Any:
    matrices = _find_weights(kernel, x.shape[-rank:], output_size, align_corners, scales)
    return NotImplemented if matrices is None else _multiply(x, matrices)


def _resize_by_factors(
    operator: Callable[..., Tensor], rank: int, x: Tensor, output_size: Sequence[int] | None, *options: Any
) -> Tensor:
    *rest, scale_factors = options
    factors = [None] * rank if scale_factors is None else scale_factors
    sizes = output_size or [int(n * factor) for n, factor in zip(x.shape[-rank:], factors, strict=True) if factor]
    return operator(x, sizes, *rest, *factors)


def _interpolate_backward(
    kernel: Kernel,
    rank: int,
    gradient: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
) -> Any:
    sizes = input_size[-rank:]
    exact = _find_weights(kernel, sizes, output_size, align_corners, scales)
    if exact is not None:
        return _multiply(gradient, [_transpose(matrix) for matrix in exact])
    # These call the interpolation, so that it is seen that it counts.
    made = zip(sizes, output_size, scales or [None] * rank, strict=True)
    dtype = torch.float64 if gradient.dtype is torch.float64 else torch.float32
    return _multiply(
        gradient,
        [
            kernel(
                torch.eye(given, dtype=dtype).reshape(1, given, given, 1), [size, 1], align_corners, scale, None
            ).reshape(given, size)
            for given, size, scale in made
        ],
    )


def _find_weights(
    kernel: Kernel,
    sizes: Sequence[int],
    output_size: Sequence[int],
    align_corners: bool,
    scales: Sequence[float | None],
) -> list[Matrix] | None:
    """Return the weights along each axis; None if they are not exact."""
    matrices = []
    for i, (given, made) in enumerate(zip(sizes, output_size, strict=True)):
        rest = [made, 1], align_corners, scales[i] if scales else None, None
        single, double = (
            _apply(lambda rows: kernel(rows.reshape(1, given, given, 1), *rest), given, dtype)  # noqa: B023
            for dtype in (torch.float32, torch.float64)
        )
        if single != double:
            return None
        matrices.append(single)
    return matrices


def _repeat(kernel: Kernel, rank: int, x: Tensor, output_size: Sequence[int], *scales: float | None) -> Tensor:
    made = zip(x.shape[-rank:], output_size, scales or [None] * rank, strict=True)
    for axis, (given, size, scale) in enumerate(made, start=-rank):
        rows = _apply(lambda rows: kernel(rows[None], [size], scale), given)  # noqa: B023
        x = x.index_select(axis, torch.tensor([row.index(1.0) for row in rows], device=x.device))
    return x


def _repeat_backward(
    kernel: Kernel,
    rank: int,
    gradient: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: float | None,
) -> Tensor:
    made = zip(input_size[-rank:], output_size, scales or [None] * rank, strict=True)
    matrices = [_apply(lambda rows: kernel(rows[None], [size], scale), given) for given, size, scale in made]  # noqa: B023
    return _multiply(gradient, [_transpose(matrix) for matrix in matrices])


def _pad_backward(kernel: Kernel, gradient: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    rank = len(padding) // 2
    # The first pair is that of the last axis.
    pairs = [padding[2 * i : 2 * i + 2] for i in reversed(range(rank))]
    made = zip(x.shape[-rank:], pairs, strict=True)
    matrices = [_apply(lambda rows: kernel(rows[None], pair), size) for size, pair in made]  # noqa: B023
    return _multiply(gradient, [_transpose(matrix) for matrix in matrices])


def _average_backward(rank: int, gradient: Tensor, x: Tensor) -> Tensor:
    matrices = []
    for axis in range(-rank, 0):
        given, made = x.shape[axis], gradient.shape[axis]
        starts = [i * given // made for i in range(made)]
        ends = [-((i + 1) * given // -made) for i in range(made)]
        sizes = [end - start for start, end in zip(starts, ends, strict=True)]
        shape = [made] + [1] * (-axis - 1)
        gradient = gradient / torch.tensor(sizes, dtype=gradient.dtype, device=gradient.device).reshape(shape)
        rows = [[float(start <= j < end) for j in range(given)] for start, end in zip(starts, ends, strict=True)]
        matrices.append(_transpose(rows))
    return _multiply(gradient, matrices)


def _apply(function: Callable[[Tensor], Tensor], size: int, dtype: torch.dtype = torch.float32) -> Matrix:
    """Return the matrix of a linear function of so many numbers."""
    with _disable_current_modes():
        found: Matrix = function(torch.eye(size, dtype=dtype)).reshape(size, -1).T.tolist()
    return found


def _transpose(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def _multiply(x: Tensor, matrices: Sequence[Matrix | Tensor]) -> Tensor:
    """Return the products along the last axes, in which halves are added up in float32."""
    wide = x if x.dtype is torch.float64 else x.float()
    for axis, matrix in enumerate(matrices, start=-len(matrices)):
        rows = matrix if isinstance(matrix, Tensor) else torch.tensor(matrix, dtype=wide.dtype, device=x.device)
        weights = rows.T
        wide = (wide.movedim(axis, -1) @ weights).movedim(-1, axis)
    return wide.to(x.dtype)
