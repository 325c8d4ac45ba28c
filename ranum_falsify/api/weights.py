"""Initializers that range too: what they range over."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx
from dnnv.nn.utils import TensorDetails

from ranum_falsify.api.boxes import Range, make_range
from ranum_falsify.api.generated_property import InputRange
from ranum_falsify.errors import UsageError
from ranum_falsify.network import Graph

FreeLike = Literal["all"] | Sequence[str]
"""All initializers that are weights, or their names."""

WeightsLike = float | tuple[float, float]
"""A share of each value by which it varies, or lower and upper bound of all values."""

DEFAULT_WEIGHTS = 0.1


def weight_ranges(
    graph: Graph, free: FreeLike, weights: WeightsLike, box: Mapping[Any, Range]
) -> tuple[InputRange, ...]:
    """Return what initializers of a network range over.

    Args:
        graph: The network.
        free: Which of its initializers; "all" are the tensors of finite floating numbers with at least one dimension,
            for a scalar is rather a constant.
        weights: A share `s`: each value `v` ranges over `v - s * abs(v)` to `v + s * abs(v)`; a value of 0 over `s`
            times the largest magnitude of its tensor, and over `s` where all of the tensor is 0.  A pair: all range
            over that.
        box: What some of them range over instead, by name.

    Raises:
        UsageError: There is no such initializer, or it cannot range over that.
    """
    tensors = {} if graph.source is None else {tensor.name: tensor for tensor in graph.source.graph.initializer}
    if isinstance(free, str):
        if free != "all":
            raise UsageError(f'free={free!r}: is neither "all" nor a list; give ["{free}"] for an initializer')
        names = list(_find(tensors))
        if not names:
            raise UsageError('free="all": the model has no initializer that is a weight; give names')
    else:
        names = list(dict.fromkeys(free))
    for name in names:
        if name not in tensors:
            near = difflib.get_close_matches(name, tensors) or sorted(tensors)[:8]
            raise UsageError(f"free: no initializer is named {name!r}; there are {', '.join(near) or 'none'}")
    return tuple(_range(tensors[name], weights, box.get(name)) for name in names)


def describe_weights(ranges: Sequence[InputRange], weights: WeightsLike, box: Mapping[Any, Range]) -> str:
    """Return what users should know of initializers that range too, one sentence."""
    own = sum(one.name in box for one in ranges)
    count = f"{len(ranges)} initializer{'s' * (len(ranges) != 1)}"
    aside = f", but for {own} that the box names" if own else ""
    if isinstance(weights, tuple | list):
        return f"{count} range over [{weights[0]:.9g}, {weights[1]:.9g}]{aside}"
    return f"{count} range over their values +- {weights:.9g} of each{aside}"


def _find(tensors: dict[str, onnx.TensorProto]) -> Iterator[str]:
    for name, tensor in tensors.items():
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if tensor.dims and not _is_integer(dtype) and math.prod(tensor.dims) and np.isfinite(_read(tensor)).all():
            yield name


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.kind not in "fV"


def _read(tensor: onnx.TensorProto) -> np.ndarray:
    return onnx.numpy_helper.to_array(tensor).astype(np.float64)


def _range(tensor: onnx.TensorProto, weights: WeightsLike, own: Range | None) -> InputRange:
    name, dtype = tensor.name, onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if _is_integer(dtype):
        raise UsageError(f"free: initializer {name!r} holds {dtype}; only floating numbers range")
    if own is not None or isinstance(weights, tuple | list):
        given = weights if own is None else own
        what = "weights:" if own is None else "box: initializer"
        return make_range(name, given, TensorDetails(tuple(tensor.dims), dtype), what=what)
    if isinstance(weights, bool) or not isinstance(weights, int | float) or not 0 <= weights < math.inf:
        raise UsageError(f"weights={weights!r}: is not a share; give a number from 0, or (lower, upper)")
    values = _read(tensor)
    if not np.isfinite(values).all():
        raise UsageError(f"free: initializer {name!r} holds NaN or infinity; give weights=(lower, upper)")
    sizes = np.abs(values)
    largest = float(sizes.max(initial=0.0))
    widths = weights * np.where(sizes > 0, sizes, largest or 1.0)
    return InputRange(name=name, lower=values - widths, upper=values + widths)
