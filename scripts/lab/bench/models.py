"""The models of the benchmarks, by name, with the sizes and operators of networks on which falsifiers are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from lab.bench.case import Build, Case
from ranum_falsify.model_builder import Tensor

__all__ = ["CASES", "deep"]

Layer = Callable[[torch.Tensor], torch.Tensor]


def _chain(layers: list[Layer]) -> Layer:
    """Return the layers one after another."""

    def run(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = layer(x)
        return x

    return run


# ------------------------------------------------------------------------------------------------ layers on both sides


def _linear(b: Build, y: Tensor, n_in: int, n_out: int, layers: list[Layer], *, last: bool = False) -> Tensor:
    (w, weight), (c, bias) = b.weight(n_out, n_in, fan_in=n_in), b.bias(n_out, n_in, last)
    layers.append(partial(F.linear, weight=weight, bias=bias))
    return b.node("Gemm", y, w, c, transB=1)


def _affine(b: Build, y: Tensor, n_in: int, n_out: int, layers: list[Layer], *, last: bool = False) -> Tensor:
    """MatMul and Add, as dense layers are written in ACAS Xu and transformers."""
    (w, weight), (c, bias) = b.weight(n_in, n_out, fan_in=n_in), b.bias(n_out, n_in, last)
    layers.append(partial(F.linear, weight=weight.T.contiguous(), bias=bias))
    return b.node("Add", b.node("MatMul", y, w), c)


def _relu(b: Build, y: Tensor, layers: list[Layer]) -> Tensor:
    layers.append(F.relu)
    return b.node("Relu", y)


def _conv(
    b: Build, y: Tensor, n_in: int, n_out: int, layers: list[Layer], kernel: int = 3, stride: int = 1, padding: int = 1
) -> Tensor:
    fan_in = n_in * kernel * kernel
    (w, weight), (c, bias) = b.weight(n_out, n_in, kernel, kernel, fan_in=fan_in), b.weight(n_out, fan_in=fan_in)
    layers.append(lambda x: F.conv2d(x, weight, bias, stride, padding))
    return b.node("Conv", y, w, c, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4)


def _upconv(b: Build, y: Tensor, n_in: int, n_out: int, layers: list[Layer]) -> Tensor:
    (w, weight), (c, bias) = b.weight(n_in, n_out, 4, 4, fan_in=n_in * 4), b.weight(n_out, fan_in=n_in * 4)
    layers.append(lambda x: F.conv_transpose2d(x, weight, bias, 2, 1))
    return b.node("ConvTranspose", y, w, c, kernel_shape=[4, 4], strides=[2, 2], pads=[1] * 4)


def _norm(b: Build, y: Tensor, channels: int, layers: list[Layer]) -> Tensor:
    values = [b.weight(channels) for _ in range(3)]
    (s, scale), (c, bias), (m, mean) = values
    v, variance = b.constant(np.linspace(0.5, 1.5, channels))
    layers.append(lambda x: F.batch_norm(x, mean, variance, scale, bias, False, 0.0, 1e-5))
    return b.node("BatchNormalization", y, s, c, m, v)


def _flat(b: Build, y: Tensor, layers: list[Layer]) -> Tensor:
    layers.append(lambda x: x.flatten(1))
    return b.node("Flatten", y)


# ------------------------------------------------------------------------------------------------------------- networks


def _acasxu() -> Case:
    b, layers = Build("acasxu", (1, 1, 1, 5), -0.5, 0.5), list[Layer]()
    mean_name, mean = b.constant(np.linspace(-0.1, 0.1, 5).reshape(1, 1, 1, 5))
    layers.append(lambda x: x - mean)
    y = _flat(b, b.node("Sub", b.x, mean_name), layers)
    for n_in in [5, *[50] * 5]:
        y = _relu(b, _affine(b, y, n_in, 50, layers), layers)
    return b.case(_affine(b, y, 50, 5, layers, last=True), 5, _chain(layers), "ACAS Xu, 5-6x50-5")


def _mnist_dense(*widths: int) -> Case:
    b, layers = Build("mnist_dense", (1, 1, 28, 28), 0.0, 1.0), list[Layer]()
    y, n_in = _flat(b, b.x, layers), 784
    for width in widths:
        y, n_in = _relu(b, _linear(b, y, n_in, width, layers), layers), width
    y = _linear(b, y, n_in, 10, layers, last=True)
    return b.case(y, 10, _chain(layers), f"MNIST dense, 784-{'-'.join(map(str, widths))}-10")


def _mnist_conv() -> Case:
    b, layers = Build("mnist_conv", (1, 1, 28, 28), 0.0, 1.0), list[Layer]()
    y = _relu(b, _conv(b, b.x, 1, 16, layers, 4, 2, 1), layers)
    y = _relu(b, _conv(b, y, 16, 32, layers, 4, 2, 1), layers)
    y = _relu(b, _linear(b, _flat(b, y, layers), 32 * 49, 100, layers), layers)
    return b.case(
        _linear(b, y, 100, 10, layers, last=True), 10, _chain(layers), "MNIST convolutional, 2 conv + 2 dense"
    )


def _cgan() -> Case:
    """A generator of 32x32 images and the discriminator that judges them, like VNN-COMP's cgan."""
    b, layers = Build("cgan", (1, 5), -0.5, 0.5), list[Layer]()
    y = b.reshape(_linear(b, b.x, 5, 128 * 4, layers), 1, 128, 2, 2)
    layers.append(lambda x: x.reshape(-1, 128, 2, 2))
    y = _norm(b, y, 128, layers)
    for n_in, n_out in ((128, 128), (128, 64), (64, 32)):
        y = _relu(b, _norm(b, _upconv(b, y, n_in, n_out, layers), n_out, layers), layers)
    y = b.node("Tanh", _upconv(b, y, 32, 3, layers))
    layers.append(torch.tanh)
    for n_in, n_out in ((3, 16), (16, 32), (32, 64), (64, 128)):
        y = _conv(b, y, n_in, n_out, layers, 3, 2, 1)
        y = _relu(b, y if n_in == 3 else _norm(b, y, n_out, layers), layers)
    y = b.node("Sigmoid", _linear(b, _flat(b, y, layers), 128 * 4, 1, layers))
    layers.append(torch.sigmoid)
    return b.case(y, 1, _chain(layers), "cgan, 32x32")


def _vit() -> Case:
    """Patches, class token, positions, and blocks of attention and dense layers with BatchNormalization between."""
    width, tokens, depth = 48, 17, 2
    b, layers = Build("vit", (1, 3, 32, 32), 0.0, 1.0), list[Layer]()
    y = b.node("Transpose", b.reshape(_conv(b, b.x, 3, width, layers, 8, 8, 0), 1, width, 16), perm=[0, 2, 1])
    layers.append(lambda x: x.flatten(2).transpose(1, 2))
    (t, token), (p, positions) = b.weight(1, 1, width), b.weight(1, tokens, width)
    size = b.graph.indices("token_size", (1, 1, width))
    y = b.node("Add", b.node("Concat", b.node("Expand", t, size), y, axis=1), p)
    layers.append(lambda x: torch.cat([token.expand(len(x), -1, -1), x], 1) + positions)
    for _ in range(depth):
        for branch in (_attention, _feed_forward):
            inside: list[Layer] = []
            y = b.node("Add", branch(b, _norm_tokens(b, y, width, inside), width, tokens, inside), y)
            layers.append(_residual(_chain(inside)))
    y = b.node("ReduceMean", y, axes=[1], keepdims=0)
    layers.append(lambda x: x.mean(1))
    return b.case(
        _linear(b, y, width, 10, layers, last=True), 10, _chain(layers), f"vit, {depth} blocks, {tokens}x{width}"
    )


def _residual(inside: Layer) -> Layer:
    return lambda x: inside(x) + x


def _norm_tokens(b: Build, y: Tensor, width: int, layers: list[Layer]) -> Tensor:
    layers.append(lambda x: x.transpose(1, 2))
    y = b.node("Transpose", _norm(b, b.node("Transpose", y, perm=[0, 2, 1]), width, layers), perm=[0, 2, 1])
    layers.append(lambda x: x.transpose(1, 2))
    return y


def _attention(b: Build, y: Tensor, width: int, tokens: int, layers: list[Layer], heads: int = 3) -> Tensor:
    size = width // heads
    sides: list[Layer] = []
    names = []
    for turned in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        projected = b.reshape(_affine(b, y, width, width, sides), 1, tokens, heads, size)
        names.append(b.node("Transpose", projected, perm=turned))
    scale, _ = b.constant(np.array(size**-0.5))
    scores = b.node("Softmax", b.node("Mul", b.node("MatMul", names[0], names[1]), scale), axis=-1)
    mixed = b.node("Transpose", b.node("MatMul", scores, names[2]), perm=[0, 2, 1, 3])

    def attend(x: torch.Tensor) -> torch.Tensor:
        q, k, v = (side(x).reshape(-1, tokens, heads, size).transpose(1, 2) for side in sides)
        weights = torch.softmax(q @ k.transpose(2, 3) * size**-0.5, -1)
        return (weights @ v).transpose(1, 2).reshape(-1, tokens, width)

    layers.append(attend)
    return _affine(b, b.reshape(mixed, 1, tokens, width), width, width, layers)


def _feed_forward(b: Build, y: Tensor, width: int, tokens: int, layers: list[Layer]) -> Tensor:
    return _affine(b, _relu(b, _affine(b, y, width, 2 * width, layers), layers), 2 * width, width, layers)


def _residual_cnn() -> Case:
    """5 MB of weights: three stages of residual blocks on 64x64 pictures."""
    b, layers = Build("residual", (1, 3, 64, 64), 0.0, 1.0), list[Layer]()
    y = _relu(b, _norm(b, _conv(b, b.x, 3, 32, layers, 3, 2, 1), 32, layers), layers)
    n_in = 32
    for n_out, blocks in ((32, 1), (64, 2), (144, 3)):
        if n_out != n_in:
            y, n_in = _relu(b, _conv(b, y, n_in, n_out, layers, 3, 2, 1), layers), n_out
        for _ in range(blocks):
            y = _block(b, y, n_out, layers)
    y = _flat(b, b.node("GlobalAveragePool", y), layers)
    layers[-1] = lambda x: x.mean((2, 3))
    return b.case(_linear(b, y, n_in, 10, layers, last=True), 10, _chain(layers), "residual CNN, 5 MB, 3x64x64")


def _block(b: Build, y: Tensor, channels: int, layers: list[Layer]) -> Tensor:
    inside: list[Layer] = []
    inner = _relu(b, _norm(b, _conv(b, y, channels, channels, inside), channels, inside), inside)
    inner = _norm(b, _conv(b, inner, channels, channels, inside), channels, inside)
    layers.append(_residual(_chain(inside)))
    return _relu(b, b.node("Add", inner, y), layers)


def deep(nodes: int = 1000, width: int = 60) -> Case:
    """A chain of dense layers with some 5 MB of weights at 1,000 nodes: MatMul, Add, Relu in turn."""
    b, layers = Build("deep", (1, width), -1.0, 1.0), list[Layer]()
    y = b.x
    for _ in range(nodes // 3):
        y = _relu(b, _affine(b, y, width, width, layers), layers)
    return b.case(_affine(b, y, width, 10, layers, last=True), 10, _chain(layers), f"dense chain, {nodes} nodes")


CASES: Mapping[str, Callable[[], Case]] = {
    "acasxu": _acasxu,
    "mnist-dense": partial(_mnist_dense, 256, 256),
    "mnist-wide": partial(_mnist_dense, 1024, 1024, 512),
    "mnist-conv": _mnist_conv,
    "cgan": _cgan,
    "vit": _vit,
    "cnn": _residual_cnn,
}
"""Every case, by the name that the command line takes, smallest first."""
