"""Drawings of a run: the graph around operators, how their bounds came about, and counterexamples."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ranum_falsify.domain.explanation import OperandHistory
from ranum_falsify.domain.neighbours import Neighbours
from ranum_falsify.results import plain
from ranum_falsify.results.counterexample import describe_groups
from ranum_falsify.results.plain import number
from ranum_falsify.verify.prove.explaining import NodeSurroundings
from ranum_falsify.verify.search.result import Answer

_MOST_COUNTEREXAMPLES = 6
_MOST_ARRAYS = 8
_LONGEST_CHAIN = 24


def draw(answer: Answer, around: Iterable[NodeSurroundings]) -> dict[str, Any]:
    """Return what a page draws of an answer, as `illustration` of the JSON report; docs/json.md explains it."""
    return {
        "operators": [
            {
                "network": one.network,
                "node": one.node,
                "graph": _graph(one.neighbours),
                "histories": [_history(history) for history in one.histories],
            }
            for one in around
        ],
        "counterexamples": [_counterexample(*group) for group in describe_groups(answer)[:_MOST_COUNTEREXAMPLES]],
    }


def _counterexample(
    network: str, arrays: Mapping[str, np.ndarray], violations: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    shown = list(arrays.items())[:_MOST_ARRAYS]
    return {
        "network": network,
        "nodes": [violation["node"] for violation in violations],
        "inputs": {name: describe_array(np.asarray(array)) for name, array in shown},
    }


def _graph(neighbours: Neighbours) -> dict[str, Any]:
    nodes = [
        plain.as_json(node) | {"constants": {name: plain.as_json(limits) for name, limits in node.constants}}
        for node in neighbours.nodes
    ]
    return {**plain.as_json(neighbours), "nodes": nodes}


def _history(history: OperandHistory) -> dict[str, Any]:
    return {
        "operand": history.name,
        "bounds": plain.as_json(history.bounds),
        "length": len(history.chain),
        "chain": [plain.pick(link, "node op_type bounds width growth") for link in history.chain[:_LONGEST_CHAIN]],
    }


_MOST_BARS = 64
_MOST_POINTS = 240
"""Points of a curve; each stands for the least and the greatest of what it covers."""
_MOST_CURVES = 4
_MOST_PIXELS = 192
"""Of the longer side of an image."""
_LEAST_SIDE = 8
"""Of an array that is shown as an image rather than as a curve."""
_DIGITS = 9  # what tells all float32 numbers apart
_PNG_COLOURS = {1: 0, 3: 2}  # colour types by number of channels


def describe_array(array: np.ndarray) -> dict[str, Any]:
    """Return what a page draws of an array.

    Returns:
        `shape`, `dtype`, `least` and `greatest` of its finite elements, and how many are `nan` or `inf`; and one of
        `bars` (all elements), `curves` (each a list of least and greatest values) and `images` (PNG in base64, with
        the values that are `black` and `white`).
    """
    values = _as_floats(array)
    finite = values[np.isfinite(values)]
    described: dict[str, Any] = {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "least": _round(finite.min()) if finite.size else None,
        "greatest": _round(finite.max()) if finite.size else None,
        "nan": int(np.isnan(values).sum()),
        "inf": int(np.isinf(values).sum()),
    }
    if not finite.size:
        return described
    if values.size <= _MOST_BARS:
        return {**described, "bars": [_round(value) for value in values.reshape(-1)]}
    images = _find_images(values)
    if images is not None:
        low, high = _find_tones(array.dtype, float(finite.min()), float(finite.max()))
        shown = [_encode(image, low, high) for image in images]
        return {**described, "images": shown, "black": number(low), "white": number(high)}
    rows = _find_rows(values)
    return {**described, "curves": [_make_curve(row) for row in rows[:_MOST_CURVES]]}


def _as_floats(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "biuf" or array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        return array.astype(np.float64)
    return np.full(array.shape, np.nan)


def _round(value: float) -> float | str:
    return number(float(f"{float(value):.{_DIGITS}g}"))


def _find_images(values: np.ndarray) -> Sequence[np.ndarray] | None:
    """Return the images that an array holds, (height, width, channels) each; None where it looks like none."""
    squeezed = values.reshape([n for n in values.shape if n != 1])
    shape = squeezed.shape
    if len(shape) == 2 and min(shape) >= _LEAST_SIDE:
        return [squeezed[:, :, None]]
    if len(shape) not in (3, 4):
        return None
    batch = squeezed if len(shape) == 4 else squeezed[None]
    _, first, middle, last = batch.shape
    if first == 3 and min(middle, last) >= _LEAST_SIDE:
        return list(batch.transpose(0, 2, 3, 1)[:_MOST_CURVES])
    if last == 3 and min(first, middle) >= _LEAST_SIDE:
        return list(batch[:_MOST_CURVES])
    if min(middle, last) >= _LEAST_SIDE:  # channels that are no colours
        return list(batch.reshape(-1, middle, last, 1)[:_MOST_CURVES])
    return None


def _find_tones(dtype: np.dtype, least: float, greatest: float) -> tuple[float, float]:
    """Return the values that are black and white: those of images, where all elements could be of one."""
    if dtype == np.uint8:
        return 0.0, 255.0
    if least >= 0 and greatest <= 1:
        return 0.0, 1.0
    return (least, greatest) if least < greatest else (least - 1, greatest + 1)


def _find_rows(values: np.ndarray) -> np.ndarray:
    """Return an array as rows along its last long dimension."""
    lengths = [n for n in values.shape if n != 1]
    return values.reshape(-1, lengths[-1]) if lengths[-1] > _MOST_BARS else values.reshape(1, -1)


def _make_curve(row: np.ndarray) -> list[list[float | str]]:
    """Return the least and greatest finite value of each of at most as many parts as a curve has points."""
    parts = np.array_split(row, min(len(row), _MOST_POINTS))
    ends = [(part[np.isfinite(part)]) for part in parts]
    return [[_round(part.min()), _round(part.max())] if part.size else ["nan", "nan"] for part in ends]


def _encode(image: np.ndarray, low: float, high: float) -> dict[str, Any]:
    """Return an image as PNG, larger ones by every n-th pixel."""
    step = -(-max(image.shape[:2]) // _MOST_PIXELS)
    small = image[::step, ::step]
    # Halves first: the width of float64's whole range is no number.
    scale = high / 2 - low / 2
    with np.errstate(invalid="ignore"):
        levels = np.nan_to_num((small / 2 - low / 2) / scale * 255, nan=0.0, posinf=255.0, neginf=0.0)
    pixels = np.clip(np.rint(levels), 0, 255).astype(np.uint8)
    return {"png": base64.b64encode(_png(pixels)).decode(), "height": small.shape[0], "width": small.shape[1]}


def _png(pixels: np.ndarray) -> bytes:
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))  # each with its filter: none
    header = struct.pack(">IIBBBBB", width, height, 8, _PNG_COLOURS[channels], 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, *zip(*chunks, strict=True)))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
