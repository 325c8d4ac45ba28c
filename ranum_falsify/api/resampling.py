"""Interpolation, and derivatives of what resamples images, in ONNX: products with a matrix of weights for each axis.

Each of these operators is linear and takes axes one by one, so that what its kernel makes of an identity matrix is the
matrix.  Kernels that fuse sums have other weights than those that do not, where weights are not exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

aten = torch.ops.aten

Matrix = np.ndarray[tuple[int, int], np.dtype[Any]]
"""Weights of what is read, in rows of what is made of it."""

INTERPOLATIONS = {
    "upsample_linear1d": (1, aten.upsample_bilinear2d.default),
    "upsample_bilinear2d": (2, aten.upsample_bilinear2d.default),
    "upsample_trilinear3d": (3, aten.upsample_bilinear2d.default),
    "upsample_bicubic2d": (2, aten.upsample_bicubic2d.default),
}
"""How many axes they take, and the kernel that takes one of an image one pixel wide."""


def list_resampling() -> dict[Any, Callable[..., Any]]:
    """Return translations by operator, as `torch.onnx.export` takes them."""
    found: dict[Any, Callable[..., Any]] = {}
    for name in INTERPOLATIONS:
        for operator in (
            getattr(aten, name).default,
            getattr(aten, name).vec,
            getattr(aten, f"{name}_backward").default,
        ):
            found[operator] = partial(_interpolate, operator)
    for rank in (1, 2, 3):
        exact = getattr(aten, f"_upsample_nearest_exact{rank}d")
        found[exact.default] = found[exact.vec] = partial(_repeat, rank)
        for name, nearest in (
            ("upsample_nearest", aten.upsample_nearest1d),
            ("_upsample_nearest_exact", aten._upsample_nearest_exact1d),
        ):
            found[getattr(aten, f"{name}{rank}d_backward").default] = partial(_repeat_backward, nearest.default, rank)
        for name, pad in (("reflection", aten.reflection_pad1d), ("replication", aten.replication_pad1d)):
            found[getattr(aten, f"{name}_pad{rank}d_backward").default] = partial(_pad_backward, pad.default)
    found[aten._adaptive_avg_pool2d_backward.default] = _average_backward
    return found


def has_exact_weights(operator: torch._ops.OpOverload, shape: Sequence[int], *options: Any) -> bool:
    """Tell whether all kernels of an operator have the same weights; True for what interpolates nothing."""
    return operator._opname.removesuffix("_backward") not in INTERPOLATIONS or all(
        np.array_equal(single, double)
        for single, double in zip(
            *(_find_weights(operator, shape, options, dtype) for dtype in (torch.float32, torch.float64)), strict=True
        )
    )


def _find_weights(
    operator: torch._ops.OpOverload, shape: Sequence[int], options: Sequence[Any], dtype: torch.dtype
) -> Iterator[Matrix]:
    rank, kernel = INTERPOLATIONS[operator._opname.removesuffix("_backward")]
    backward = operator._opname.endswith("_backward")
    output_size, *rest = options
    if backward:
        shape, *rest = rest
    align_corners, *scales = rest
    if operator._overloadname == "vec":
        (scales,) = scales
    for given, size, scale in _pair(shape[-rank:], output_size, scales):
        found = _apply(lambda rows: kernel(rows[..., None], [size, 1], align_corners, scale, None), given, dtype)  # noqa: B023
        yield found.T if backward else found


def _pair(
    shape: Sequence[int], output_size: Sequence[int] | None, scales: Sequence[float | None] | None
) -> Iterator[tuple[int, int, float | None]]:
    """Yield the size of each axis, that of the output, and the scale that is given."""
    scales = scales or [None] * len(shape)
    sizes = output_size or [int(size * scale) for size, scale in zip(shape, scales, strict=True) if scale]
    return zip(shape, sizes, scales, strict=True)


def _apply(kernel: Callable[[Tensor], Tensor], size: int, dtype: torch.dtype = torch.float32) -> Matrix:
    """Return the matrix of a kernel of tensors `(1, channels, size)`."""
    with _disable_current_modes():
        return kernel(torch.eye(size, dtype=dtype)[None]).reshape(size, -1).T.numpy()


def _interpolate(operator: torch._ops.OpOverload, x: Any, *options: Any) -> Any:
    return _multiply(x, list(_find_weights(operator, list(x.shape), options, _wide(x))))


def _repeat(rank: int, x: Any, output_size: Sequence[int] | None, *scales: Any) -> Any:
    kernel = aten._upsample_nearest_exact1d.default
    if len(scales) == 1 and not isinstance(scales[0], float):  # factors of all axes, or none
        (scales,) = scales
    for axis, (given, size, scale) in enumerate(_pair(list(x.shape)[-rank:], output_size, scales), start=-rank):
        places = _apply(lambda rows: kernel(rows, [size], scale), given).argmax(1)  # noqa: B023
        x = op.Gather(x, constant(places), axis=axis)
    return x


def _repeat_backward(
    kernel: Callable[..., Tensor],
    rank: int,
    x: Any,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: Any,
) -> Any:
    pairs = _pair(input_size[-rank:], output_size, scales)
    return _multiply(x, [_apply(lambda rows: kernel(rows, [size], scale), given).T for given, size, scale in pairs])  # noqa: B023


def _pad_backward(kernel: Callable[..., Tensor], gradient: Any, x: Any, padding: Sequence[int]) -> Any:
    # The first pair is that of the last axis.
    pairs = [padding[i : i + 2] for i in reversed(range(0, len(padding), 2))]
    sizes = zip(list(x.shape)[-len(pairs) :], pairs, strict=True)
    return _multiply(gradient, [_apply(lambda rows: kernel(rows, pair), size).T for size, pair in sizes])  # noqa: B023


def _average_backward(gradient: Any, x: Any) -> Any:
    matrices, divided, rank = [], gradient, 2
    for axis, (given, made) in enumerate(zip(list(x.shape)[-rank:], list(gradient.shape)[-rank:], strict=True)):
        starts, ends = np.arange(made) * given // made, -(-np.arange(1, made + 1) * given // made)
        places = np.arange(given)[:, None]
        matrices.append((starts <= places) & (places < ends))
        counts = (ends - starts).astype(np.float32).reshape([made] + [1] * (rank - 1 - axis))
        divided = op.Div(divided, op.CastLike(constant(counts), gradient))
    return _multiply(divided, matrices, like=gradient)


def _wide(x: Any) -> torch.dtype:
    """Return the type in which kernels add up elements of x."""
    return torch.float64 if x.dtype.name == "DOUBLE" else torch.float32


def _multiply(x: Any, matrices: Sequence[Matrix], like: Any = None) -> Any:
    """Return the products along the last axes, in which halves are added up in float32.

    Bounds must allow for as many roundings as a kernel has that takes all axes at once: each product is taken in parts.
    """
    like = x if like is None else like
    rank = len(like.shape)
    kind = np.float64 if _wide(like) is torch.float64 else np.float32
    terms = [int(np.count_nonzero(matrix, axis=1).max()) for matrix in matrices]
    parts = max(4, 2 ** math.ceil(math.log2((math.prod(terms) + 8) / sum(terms))))
    wide = op.Cast(x, to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    for axis, matrix in enumerate(matrices, start=rank - len(matrices)):
        scaled = np.tile((matrix.T / parts).astype(kind), (parts, 1))
        order = [*range(axis), *range(axis + 1, rank), axis]
        back = [*range(axis), rank - 1, *range(axis, rank - 1)]
        rows = op.Concat(*[op.Transpose(wide, perm=order)] * parts, axis=-1)
        wide = op.Transpose(op.MatMul(rows, constant(scaled)), perm=back)
    return op.CastLike(wide, like)


class _Operators:
    """ONNX's operators, which onnxscript offers as functions; it is imported late."""

    def __getattr__(self, name: str) -> Any:
        from onnxscript import opset18

        return getattr(opset18, name)


op: Any = _Operators()


def constant(values: np.ndarray[Any, np.dtype[Any]]) -> Any:
    """Return a constant of the type and the shape of an array."""
    from onnxscript import ir

    return op.Constant(value=ir.tensor(values))
