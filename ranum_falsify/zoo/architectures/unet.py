"""A U-Net (Ronneberger and others, MICCAI 2015) of three levels at full size."""

from __future__ import annotations

import math

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import max_pool, tf_dropout, total
from ranum_falsify.zoo.builder import ArchitectureBuilder
from ranum_falsify.zoo.initial import Initial, constant, truncated_normal
from ranum_falsify.zoo.model import Defect, ZooModel

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
    """Return a convolution without padding, with dropout between it and its bias.

    Args:
        g: The model.
        x: `(batch, shape[1], height, width)`.
        names: Names of weight and bias.
        shape: Of the weight: channels out, channels in, height, width.
        features: Number of features by which the initial weights are scaled.
        keep_prob: Probability of dropout to keep an element.
    """
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


MODELS = (
    ZooModel(
        id="17",
        program="TF_Unet",
        framework="tf",
        build=u_net,
        defects=(
            Defect(
                id="17",
                node="exp",
                operator="Exp",
                mechanism="a softmax that does not subtract the maximum overflows once its map exceeds 88.7",
            ),
        ),
        repair="the greatest of the map's channels is subtracted before the exponential",
    ),
)
