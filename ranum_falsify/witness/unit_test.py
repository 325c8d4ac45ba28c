"""Unit tests as frozen values, and as arrays for an .npz file."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Literal

import numpy as np

from ranum_falsify.config import Runtime, ViolationKind


@dataclass(frozen=True, kw_only=True)
class Span:
    """A box of inputs and weights in which every point makes the operator invalid.

    Attributes:
        lower: Least value of each input of the network, by ONNX name.
        upper: Greatest value.
        radius: Its reach on each side, as a share of the width of the property's box, fixed elements aside.
        fixed: Share of the elements, of all that have a range, that keep their value.
        runtimes: Runtimes that the proof covers.
    """

    lower: Mapping[str, np.ndarray]
    upper: Mapping[str, np.ndarray]
    radius: float
    fixed: float
    runtimes: tuple[Runtime, ...]


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """Inputs and weights that ONNX Runtime has confirmed to make an operator invalid.

    Attributes:
        feeds: One array per input of the network (weights and random draws among them), by ONNX name.
        kind: What comes out; `error` and `crash` where integers have no quotient, `gradient` is a derivative that is
            not finite.
        tensor: The tensor in question: the operator's output, or, for a derivative, the operand.
        index: Position of the offending element in it.
        alone: Whether no earlier operator is invalid too.
        oracle: Who saw it; the reference evaluator where ONNX Runtime hides NaN, as in LSTM and GRU, and
            `autograd-flushed` where a derivative is not finite only with denormal numbers flushed to 0.
    """

    feeds: Mapping[str, np.ndarray]
    kind: ViolationKind
    tensor: str
    index: tuple[int, ...]
    alone: bool
    oracle: Literal["onnxruntime", "reference", "autograd", "autograd-flushed"]

    @property
    def flushed(self) -> bool:
        """Whether it shows only if denormal numbers are replaced by 0."""
        return self.oracle == "autograd-flushed"


@dataclass(frozen=True, kw_only=True)
class UnitTest(Trigger):
    """A trigger, and what is known about its surroundings.

    Attributes:
        seed: Seed of the search.
        span: A box around it, None where none was proved.
        seconds: Time to `search`, `replay` and prove the `span`.
        shown: Outputs of the network that are not finite where users run it, at ONNX Runtime's default level, on these
            inputs and beside them.
    """

    seed: int
    span: Span | None
    seconds: Mapping[str, float]
    shown: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OperatorTests:
    """The unit tests of one operator.

    Attributes:
        network: Name of the network.
        node: Name of the operator.
        op_type: ONNX operator.
        condition: What its operands and outputs must satisfy.
        output: Its first output tensor, by ONNX name.
        runs: How many tests were wanted.
        tests: Those that trigger.
        seconds: Time of every run.
    """

    network: str
    node: str
    op_type: str
    condition: str
    output: str
    runs: int
    tests: tuple[UnitTest, ...]
    seconds: tuple[float, ...]


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
