"""Unit tests as arrays for an .npz file: the inputs of a test, and its span in few numbers."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO

import numpy as np

from ranum_falsify.confirm.unit_test import Span, UnitTest

__all__ = ["Box", "arrays_of", "write_arrays"]

Box = tuple[np.ndarray, np.ndarray]
"""Smallest and largest value of each element of an input, each of its shape and dtype."""

_SAMPLE, _WORTHWHILE = 2**16, 0.75
"""An array is compressed if this many of its bytes shrink to this share; random numbers hardly ever do."""


def arrays_of(test: UnitTest, boxes: Mapping[str, Box]) -> dict[str, np.ndarray]:
    """Return the arrays that a generated test needs for one unit test.

    `input:<name>` is the value of the input.  For an input that moves within the span, `lower:<name>` and
    `upper:<name>` are the ends; if `reach:<name>` is present, only values within this distance of the input's value
    belong to the span.  All three broadcast to the input's shape.  The ends are exactly those that were proved.
    bfloat16, which NumPy lacks, is widened to float32.

    Args:
        test: The unit test.
        boxes: The range of inputs in the property, by ONNX name; inputs may be missing.
    """
    arrays = {f"input:{name}": _make_plain(array) for name, array in test.feeds.items()}
    if test.span is not None:
        for name in test.feeds:
            arrays |= {f"{key}:{name}": array for key, array in _ends(name, test, test.span, boxes).items()}
    return arrays


def _ends(name: str, test: UnitTest, span: Span, boxes: Mapping[str, Box]) -> dict[str, np.ndarray]:
    value, lower, upper = (_make_plain(x[name]) for x in (test.feeds, span.lower, span.upper))
    if np.array_equal(lower, value) and np.array_equal(upper, value):
        return {}
    if name in boxes:
        least, greatest = (_make_plain(end) for end in boxes[name])
        with np.errstate(all="ignore"):
            width = (greatest - least) * value.dtype.type(span.radius)
            reach = np.where((lower < value) | (value < upper), width, value.dtype.type(0))
            low, high = np.maximum(least, value - reach), np.minimum(greatest, value + reach)
        if np.array_equal(low, lower) and np.array_equal(high, upper):
            return {"lower": _merge(least), "upper": _merge(greatest), "reach": _merge(reach)}
    return {"lower": _merge(lower), "upper": _merge(upper)}


def _make_plain(array: np.ndarray) -> np.ndarray:
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _merge(array: np.ndarray) -> np.ndarray:
    """Return an array that broadcasts to the given one, of size 1 along each axis on which nothing changes."""
    for axis in range(array.ndim):
        first = array.take([0], axis) if array.shape[axis] > 1 else array
        if first is not array and bool((array == first).all()):
            array = first
    return array


def write_arrays(stream: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz file, byte for byte the same for equal arrays; arrays that do not shrink are not compressed."""
    with zipfile.ZipFile(stream, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            # Not `ascontiguousarray`, which gives scalars a dimension.
            np.lib.format.write_array(buffer, np.asarray(array, order="C"), allow_pickle=False)
            data = buffer.getbuffer()
            shrinks = len(zlib.compress(data[:_SAMPLE], 1)) <= _WORTHWHILE * min(len(data), _SAMPLE)
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.compress_type = zipfile.ZIP_DEFLATED if shrinks else zipfile.ZIP_STORED
            archive.writestr(entry, data, compresslevel=1)
