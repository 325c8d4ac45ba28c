"""A spatial transformer network (Jaderberg and others, NeurIPS 2015) on cluttered digits."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import FUSED_LOG_SOFTMAX, SOFTMAX_UNDERFLOW, dense, softmax_cross_entropy, tf_dropout
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import normal, values, zeros
from ranum_falsify.zoo.model import Defect, ZooModel

_SIDE = 40
_PIXELS = _SIDE * _SIDE
_FEATURES, _WIDTH, _CLASSES = 16, 1024, 10
_IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def spatial_transformer(g: ArchitectureBuilder, *, safe: bool) -> None:
    """A convolutional network on an image resampled by a learned affine map; `log` is that of its softmax."""
    x = g.input("x", (g.batch, _PIXELS), 0.0, 1.0)
    y = g.input("y", (g.batch, _CLASSES), 0.0, 1.0)
    keep_prob = g.input("keep_prob", (), 0.8, 1.0)
    image = g.Reshape(x, [-1, _SIDE, _SIDE, 1])

    located = tf_dropout(g, g.Tanh(dense(g, x, "W_loc1", "b_loc1", (_PIXELS, 20), zeros(), normal(0.01))), keep_prob)
    theta = g.Tanh(dense(g, located, "W_loc2", "b_loc2", (20, 6), zeros(), values(_IDENTITY)))
    resampled = _resample(g, image, *_coordinates(g, image, g.Reshape(theta, [-1, 2, 3])))

    h = g.Transpose(resampled, perm=[0, 3, 1, 2])
    h = _convolution(g, h, "W_conv1", "b_conv1", 1)
    h = _convolution(g, h, "W_conv2", "b_conv2", _FEATURES)
    flat = g.Reshape(g.Transpose(h, perm=[0, 2, 3, 1]), [-1, 1600])
    a = tf_dropout(g, g.Relu(dense(g, flat, "W_fc1", "b_fc1", (1600, _WIDTH), zeros(), normal(0.01))), keep_prob)
    logits = dense(g, a, "W_fc2", "b_fc2", (_WIDTH, _CLASSES), zeros(), normal(0.01))
    g.output(softmax_cross_entropy(g, y, logits, safe=safe))


def _convolution(g: ArchitectureBuilder, x: Tensor, weight: str, bias: str, channels: int) -> Tensor:
    """Return a 3x3 convolution of stride 2 with TensorFlow's padding, half as high and wide as x."""
    kernel = g.weight(weight, (_FEATURES, channels, 3, 3), zeros())
    offset = g.Unsqueeze(g.weight(bias, (_FEATURES,), normal(0.01)), [1, 2])
    return g.Relu(g.Conv(x, kernel, strides=[2, 2], pads=[0, 0, 1, 1]) + offset)


def _coordinates(g: ArchitectureBuilder, image: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return where in the image each pixel of the result lies, columns and rows, `(batch * pixels,)` each.

    Args:
        g: The model.
        image: `(batch, height, width, 1)`.
        theta: Affine maps `(batch, 2, 3)` of coordinates from -1 to 1.
    """
    along = np.linspace(-1.0, 1.0, _SIDE, dtype=np.float32)
    columns, rows = np.meshgrid(along, along)
    grid = np.stack([columns.ravel(), rows.ravel(), np.ones(_PIXELS, np.float32)])
    batch = g.Shape(image, start=0, end=1)
    grids = g.Reshape(g.Tile(g.constant(grid.ravel()), batch), g.Concat(batch, [3, -1], axis=0))
    mapped = theta @ grids

    def pixels(row: int, axis: int) -> Tensor:
        size = g.Cast(g.Gather(g.Shape(image), np.int64(axis)), to=TensorProto.FLOAT)
        return (g.Reshape(g.Slice(mapped, [row], [row + 1], [1]), [-1]) + 1.0) * size / 2.0

    return pixels(0, axis=2), pixels(1, axis=1)


def _resample(g: ArchitectureBuilder, image: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    """Return the image's bilinear interpolation at fractional positions, as large as the image."""
    x0, x1 = _neighbours(g, xs)
    y0, y1 = _neighbours(g, ys)
    base = _first_pixels(g, image)
    pixels = g.Reshape(image, [-1, 1])
    x0f, x1f, y0f, y1f = (g.Cast(index, to=TensorProto.FLOAT) for index in (x0, x1, y0, y1))

    def part(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return g.Unsqueeze(weight, [1]) * g.Gather(pixels, base + y * np.int32(_SIDE) + x, axis=0)

    parts = (
        part(x0, y0, (x1f - xs) * (y1f - ys)),
        part(x0, y1, (x1f - xs) * (ys - y0f)),
        part(x1, y0, (xs - x0f) * (y1f - ys)),
        part(x1, y1, (xs - x0f) * (ys - y0f)),
    )
    return g.Reshape(g.Sum(*parts), g.Shape(image))


def _neighbours(g: ArchitectureBuilder, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pixels before and after fractional positions, int32, both within the image."""
    before = g.Cast(g.Floor(positions), to=TensorProto.INT32)
    first, last = np.int32(0), np.int32(_SIDE - 1)
    return g.Clip(before, first, last), g.Clip(before + np.int32(1), first, last)


def _first_pixels(g: ArchitectureBuilder, image: Tensor) -> Tensor:
    """Return, for every pixel of a batch, where its image begins among all pixels, `(batch * pixels,)`, int32."""
    batch = g.Cast(g.Gather(g.Shape(image), np.int64(0)), to=TensorProto.INT32)
    offsets = g.Range(np.int32(0), batch, np.int32(1)) * np.int32(_PIXELS)
    return g.Reshape(g.Unsqueeze(offsets, [1]) @ np.ones((1, _PIXELS), np.int32), [-1])


MODELS = (
    ZooModel(
        id="1",
        program="GitHub-IPS-1",
        framework="tf",
        build=spatial_transformer,
        defects=(Defect(id="1", node="log", operator="Log", mechanism=SOFTMAX_UNDERFLOW),),
        repair=FUSED_LOG_SOFTMAX,
    ),
)
