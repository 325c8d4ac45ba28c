"""Large networks: a U-Net (MICCAI 2015), a spatial transformer, a value iteration network (NeurIPS 2015, 2016)."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import (
    dense,
    log_softmax,
    max_pool,
    mean,
    one_defect,
    softmax_cross_entropy,
    tf_dropout,
    total,
)
from ranum_falsify.zoo.builder import ArchitectureBuilder, Initial, constant, normal, truncated_normal, values, zeros

_SIZE, _RESULT = 572, 532
_LEVELS, _ROOT, _CLASSES = 3, 16, 2


def u_net(g: ArchitectureBuilder, *, safe: bool) -> None:
    """The dice loss of a segmentation; `exp` is the numerator of a softmax that is written out.

    Each level has two convolutions without padding.  On the way up, the result of the way down at the same level is
    cropped and concatenated.
    """
    x = g.input("x", (g.batch, _SIZE, _SIZE, 1), 0.0, 1.0)
    y = g.input("y", (g.batch, _RESULT, _RESULT, _CLASSES), 0.0, 1.0)
    keep_prob = g.input("keep_prob", (), 0.75, 1.0)

    h = g.Transpose(x, perm=[0, 3, 1, 2])
    levels = []
    channels = 1
    for level in range(_LEVELS):
        h = _double(g, max_pool(g, h) if level else h, f"d{level}", (channels, _width(level)), keep_prob)
        levels.append(h)
        channels = _width(level)
    for level in reversed(range(_LEVELS - 1)):
        h = _up(g, h, f"u{level}", level)
        h = g.Concat(_cropped(g, levels[level], h), h, axis=1)
        h = _double(g, h, f"u{level}", (_width(level + 1), _width(level)), keep_prob)

    m = _convolution(g, h, ("out_w", "out_b"), (_CLASSES, _ROOT, 1, 1), 2 * _ROOT, g.constant(1.0))
    p = _pixel_softmax(g, g.Transpose(m, perm=[0, 2, 3, 1]), safe=safe)
    union = 1e-5 + total(g, p) + total(g, y)
    g.output(-(2.0 * total(g, p * y) / union))


def _width(level: int) -> int:
    """Return the number of channels at a level."""
    return _ROOT << level


def _double(g: ArchitectureBuilder, x: Tensor, name: str, channels: tuple[int, int], keep_prob: Tensor) -> Tensor:
    """Return two 3x3 convolutions of x; `channels` are those of x and those of the result."""
    inputs, outputs = channels
    for i, read in enumerate((inputs, outputs), start=1):
        names = (f"{name}_w{i}", f"{name}_b{i}")
        x = _convolution(g, x, names, (outputs, read, 3, 3), max(channels), keep_prob)
    return x


def _convolution(
    g: ArchitectureBuilder, x: Tensor, names: tuple[str, str], shape: tuple[int, ...], features: int, keep_prob: Tensor
) -> Tensor:
    """Return a convolution without padding, with dropout between it and its bias."""
    weight = g.weight(names[0], shape, _initial(features))
    return g.Relu(tf_dropout(g, g.Conv(x, weight), keep_prob) + _bias(g, names[1], shape[0]))


def _up(g: ArchitectureBuilder, x: Tensor, name: str, level: int) -> Tensor:
    """Return x, of the level below, at twice its height and width and with half its channels."""
    features = _width(level + 1)
    weight = g.weight(f"{name}_wd", (features, _width(level), 2, 2), _initial(features))
    return g.Relu(g.ConvTranspose(x, weight, strides=[2, 2]) + _bias(g, f"{name}_bd", _width(level)))


def _initial(features: int) -> Initial:
    """Return the distribution of He and others (ICCV 2015) for 3x3 convolutions, which the program uses for all."""
    return truncated_normal(math.sqrt(2 / (9 * features)))


def _bias(g: ArchitectureBuilder, name: str, channels: int) -> Tensor:
    """Return a bias `(channels, 1, 1)`."""
    return g.Unsqueeze(g.weight(name, (channels,), constant(0.1)), [1, 2])


def _cropped(g: ArchitectureBuilder, x: Tensor, like: Tensor) -> Tensor:
    """Return the centre of x, as high and wide as another tensor."""
    size = g.Shape(like, start=2, end=4)
    starts = g.Div(g.Shape(x, start=2, end=4) - size, [2])
    return g.Slice(x, starts, starts + size, [2, 3])


def _pixel_softmax(g: ArchitectureBuilder, m: Tensor, *, safe: bool) -> Tensor:
    """Return the softmax over the channels of `(batch, height, width, channels)`, written out."""
    e = g.Exp(m - g.ReduceMax(m, axes=[3], keepdims=1) if safe else m, name="exp")
    repeats = g.Concat([1, 1, 1], g.Shape(m, start=3, end=4), axis=0)
    return e / g.Tile(total(g, e, [3], keepdims=True), repeats)


_IMAGE_SIDE = 40
_PIXELS = _IMAGE_SIDE * _IMAGE_SIDE
_IMAGE_FEATURES, _WIDTH, _DIGITS = 16, 1024, 10
_IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def spatial_transformer(g: ArchitectureBuilder, *, safe: bool) -> None:
    """A convolutional network on an image resampled by a learned affine map; `log` is that of its softmax."""
    x = g.input("x", (g.batch, _PIXELS), 0.0, 1.0)
    y = g.input("y", (g.batch, _DIGITS), 0.0, 1.0)
    keep_prob = g.input("keep_prob", (), 0.8, 1.0)
    image = g.Reshape(x, [-1, _IMAGE_SIDE, _IMAGE_SIDE, 1])

    located = tf_dropout(g, g.Tanh(dense(g, x, "W_loc1", "b_loc1", (_PIXELS, 20), zeros(), normal(0.01))), keep_prob)
    theta = g.Tanh(dense(g, located, "W_loc2", "b_loc2", (20, 6), zeros(), values(_IDENTITY)))
    resampled = _resample(g, image, *_coordinates(g, image, g.Reshape(theta, [-1, 2, 3])))

    h = g.Transpose(resampled, perm=[0, 3, 1, 2])
    h = _halving_convolution(g, h, "W_conv1", "b_conv1", 1)
    h = _halving_convolution(g, h, "W_conv2", "b_conv2", _IMAGE_FEATURES)
    flat = g.Reshape(g.Transpose(h, perm=[0, 2, 3, 1]), [-1, 1600])
    a = tf_dropout(g, g.Relu(dense(g, flat, "W_fc1", "b_fc1", (1600, _WIDTH), zeros(), normal(0.01))), keep_prob)
    logits = dense(g, a, "W_fc2", "b_fc2", (_WIDTH, _DIGITS), zeros(), normal(0.01))
    g.output(softmax_cross_entropy(g, y, logits, safe=safe))


def _halving_convolution(g: ArchitectureBuilder, x: Tensor, weight: str, bias: str, channels: int) -> Tensor:
    """Return a 3x3 convolution of stride 2 with TensorFlow's padding, half as high and wide as x."""
    kernel = g.weight(weight, (_IMAGE_FEATURES, channels, 3, 3), zeros())
    offset = g.Unsqueeze(g.weight(bias, (_IMAGE_FEATURES,), normal(0.01)), [1, 2])
    return g.Relu(g.Conv(x, kernel, strides=[2, 2], pads=[0, 0, 1, 1]) + offset)


def _coordinates(g: ArchitectureBuilder, image: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return where in the image each pixel of the result lies, columns and rows, `(batch * pixels,)` each."""
    along = np.linspace(-1.0, 1.0, _IMAGE_SIDE, dtype=np.float32)
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
        return g.Unsqueeze(weight, [1]) * g.Gather(pixels, base + y * np.int32(_IMAGE_SIDE) + x, axis=0)

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
    first, last = np.int32(0), np.int32(_IMAGE_SIDE - 1)
    return g.Clip(before, first, last), g.Clip(before + np.int32(1), first, last)


def _first_pixels(g: ArchitectureBuilder, image: Tensor) -> Tensor:
    """Return, for every pixel of a batch, where its image begins among all pixels, `(batch * pixels,)`, int32."""
    batch = g.Cast(g.Gather(g.Shape(image), np.int64(0)), to=TensorProto.INT32)
    offsets = g.Range(np.int32(0), batch, np.int32(1)) * np.int32(_PIXELS)
    return g.Reshape(g.Unsqueeze(offsets, [1]) @ np.ones((1, _PIXELS), np.int32), [-1])


_SIDE = 8
_STATES = 10
"""States of one map for which actions are chosen."""

_FEATURES, _CHANNELS, _ACTIONS = 150, 10, 8
_ITERATIONS = 10
_INITIAL = normal(0.01)


def value_iteration(g: ArchitectureBuilder, *, safe: bool) -> None:
    """The loss of the actions chosen after ten iterations; `log` is that of the softmax over actions."""
    image = g.input("X", (g.batch, _SIDE, _SIDE, 2), 0.0, 10.0)
    rows = g.input("S1", (g.batch, _STATES), 1, 6, dtype="int32")
    columns = g.input("S2", (g.batch, _STATES), 1, 6, dtype="int32")
    labels = g.input("y", (g.batch * _STATES,), 0, _ACTIONS - 1, dtype="int32")

    q = _action_values(g, g.Transpose(image, perm=[0, 3, 1, 2]))
    of_states = g.GatherND(g.Transpose(q, perm=[2, 3, 0, 1]), _positions(g, rows, columns, q))
    log_p = log_softmax(g, of_states @ g.weight("w_o", (_CHANNELS, _ACTIONS), _INITIAL), safe=safe)
    g.output(-mean(g, g.GatherND(log_p, _pairs(g, labels))))


def _action_values(g: ArchitectureBuilder, image: Tensor) -> Tensor:
    """Return the value of each action in each cell, `(batch, channels, height, width)`."""
    features = _same(g, image, g.weight("w0", (_FEATURES, 2, 3, 3), _INITIAL))
    bias = g.weight("bias", (1, 1, 1, _FEATURES), _INITIAL)
    hidden = features + g.Transpose(bias, perm=[0, 3, 1, 2])
    reward = g.Conv(hidden, _flipped(g, g.weight("w1", (1, _FEATURES, 1, 1), _INITIAL)))

    of_reward = g.weight("w", (_CHANNELS, 1, 3, 3), _INITIAL)
    of_value = g.weight("w_fb", (_CHANNELS, 1, 3, 3), _INITIAL)
    q = _same(g, reward, of_reward)
    for _ in range(_ITERATIONS):
        value = g.ReduceMax(q, axes=[1], keepdims=1)
        q = _same(g, g.Concat(reward, value, axis=1), g.Concat(of_reward, of_value, axis=1))
    return q


def _same(g: ArchitectureBuilder, x: Tensor, kernel: Tensor) -> Tensor:
    """Return a convolution with the reversed kernel, 3x3, as high and wide as x."""
    return g.Conv(x, _flipped(g, kernel), pads=[1, 1, 1, 1])


def _flipped(g: ArchitectureBuilder, kernel: Tensor) -> Tensor:
    """Return a kernel reversed along height and width."""
    before_first = np.iinfo(np.int64).min
    return g.Slice(kernel, [-1, -1], [before_first, before_first], [2, 3], [-1, -1])


def _positions(g: ArchitectureBuilder, rows: Tensor, columns: Tensor, q: Tensor) -> Tensor:
    """Return row, column and sample of every state, `(batch * states, 3)`, int64."""
    samples = g.Range(np.int64(0), g.Squeeze(g.Shape(q, start=0, end=1), [0]), np.int64(1))
    repeated = g.Tile(g.Unsqueeze(samples, [1]), [1, _STATES])
    flat = [g.Reshape(g.Cast(index, to=TensorProto.INT64), [1, -1]) for index in (rows, columns, repeated)]
    return g.Transpose(g.Concat(*flat, axis=0), perm=[1, 0])


def _pairs(g: ArchitectureBuilder, labels: Tensor) -> Tensor:
    """Return the number of every state with its label, `(batch * states, 2)`, int64."""
    states = g.Range(np.int64(0), g.Squeeze(g.Shape(labels), [0]), np.int64(1))
    return g.Concat(g.Unsqueeze(states, [1]), g.Unsqueeze(g.Cast(labels, to=TensorProto.INT64), [1]), axis=1)


MODELS = (
    one_defect(
        "17",
        "TF_Unet",
        u_net,
        framework="tf",
        node="exp",
        operator="Exp",
        mechanism="a softmax that does not subtract the maximum overflows once its map exceeds 88.7",
        repair="the greatest of the map's channels is subtracted before the exponential",
    ),
    one_defect("1", "GitHub-IPS-1", spatial_transformer, framework="tf"),
    one_defect("15", "Tensorflow_Value_Iteration_Networks_V1", value_iteration, framework="tf"),
)
