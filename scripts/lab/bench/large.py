"""Networks as large as those on which the interval analysis is measured, with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from lab.networks.builder import NetworkBuilder
from ranum_falsify.model_builder import Tensor

__all__ = ["encoder", "residual_network"]

_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width and number of the bottleneck blocks of each stage; a block's output is four times as wide."""


class _Layers:
    """Names nodes and draws weights one after another."""

    def __init__(self, builder: NetworkBuilder, seed: int) -> None:
        self.builder = builder
        self._rng = np.random.default_rng(seed)
        self._count = 0

    def weight(self, *shape: int, scale: float = 1.0, centre: float = 0.0) -> Tensor:
        self._count += 1
        values = self._rng.standard_normal(shape, dtype=np.float32) * np.float32(scale) + np.float32(centre)
        return self.builder.weight(f"w{self._count}", values.astype(np.float64))

    def constant(self, value: float) -> Tensor:
        self._count += 1
        return self.builder.weight(f"c{self._count}", value)

    def node(self, op: str, *inputs: Tensor, **attributes: Any) -> Tensor:
        self._count += 1
        return self.builder.node(op, *inputs, name=f"{op}_{self._count}", **attributes)


def residual_network(size: int = 224) -> onnx.ModelProto:
    """Return a network of 25 million parameters in 50 layers: bottleneck blocks of convolution, normalisation and Relu.

    Args:
        size: Width and height of the input, `(1, 3, size, size)`.
    """
    builder = NetworkBuilder("residual", "A residual network of 50 layers.")
    layers = _Layers(builder, 0)
    x = builder.input("x", (1, 3, size, size), 0, 1)
    y = layers.node("Relu", _convolve(layers, x, 3, 64, 7, 2))
    y = layers.node("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, (width, blocks) in enumerate(_STAGES):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            inner = layers.node("Relu", _convolve(layers, y, channels, width, 1, 1))
            inner = layers.node("Relu", _convolve(layers, inner, width, width, 3, stride))
            inner = _convolve(layers, inner, width, 4 * width, 1, 1)
            beside = y if block else _convolve(layers, y, channels, 4 * width, 1, stride)
            y = layers.node("Relu", layers.node("Add", inner, beside))
            channels = 4 * width
    y = layers.node("Flatten", layers.node("GlobalAveragePool", y))
    scores = layers.node("Gemm", y, layers.weight(channels, 1000, scale=channels**-0.5), layers.weight(1000))
    builder.output(layers.node("Softmax", scores), (1, 1000))
    return builder.build()


def _convolve(layers: _Layers, x: Tensor, n_in: int, n_out: int, kernel: int, stride: int) -> Tensor:
    w = layers.weight(n_out, n_in, kernel, kernel, scale=(n_in * kernel * kernel) ** -0.5)
    sides = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
    y = layers.node("Conv", x, w, **sides)
    scale, bias, mean = (layers.weight(n_out, scale=0.1, centre=centre) for centre in (1.0, 0.0, 0.0))
    layers._count += 1
    variance = layers.builder.weight(f"variance{layers._count}", np.linspace(0.5, 1.5, n_out))
    return layers.node("BatchNormalization", y, scale, bias, mean, variance)


def encoder(*, fused: bool, depth: int = 6, width: int = 512, tokens: int = 128, heads: int = 8) -> onnx.ModelProto:
    """Return a stack of encoder layers of attention and dense layers.

    Args:
        fused: Whether normalisation and Gelu are single operators (opset 20) or spelled out.
        depth: Number of layers.
        width: Size of a token; dense layers are four times as wide.
        tokens: Number of tokens of the input, `(1, tokens, width)`.
        heads: Number of attention heads.
    """
    builder = NetworkBuilder("encoder", "A transformer encoder.", opset=20)
    layers = _Layers(builder, 0)
    y = builder.input("x", (1, tokens, width), -1, 1)
    for _ in range(depth):
        y = _normalise(layers, layers.node("Add", y, _attention(layers, y, width, tokens, heads)), width, fused)
        inner = _gelu(layers, _dense(layers, y, width, 4 * width), fused)
        y = _normalise(layers, layers.node("Add", y, _dense(layers, inner, 4 * width, width)), width, fused)
    builder.output(y, (1, tokens, width))
    return builder.build()


def _dense(layers: _Layers, x: Tensor, n_in: int, n_out: int) -> Tensor:
    product = layers.node("MatMul", x, layers.weight(n_in, n_out, scale=n_in**-0.5))
    return layers.node("Add", product, layers.weight(n_out, scale=0.02))


def _attention(layers: _Layers, x: Tensor, width: int, tokens: int, heads: int) -> Tensor:
    split = layers.builder.indices("heads", (1, tokens, heads, width // heads))
    joined = layers.builder.indices("joined", (1, tokens, width))
    sides = []
    for turned in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        projected = layers.node("Reshape", _dense(layers, x, width, width), split)
        sides.append(layers.node("Transpose", projected, perm=turned))
    scores = layers.node("MatMul", sides[0], sides[1])
    scores = layers.node("Softmax", layers.node("Mul", scores, layers.constant((width // heads) ** -0.5)), axis=-1)
    mixed = layers.node("Transpose", layers.node("MatMul", scores, sides[2]), perm=[0, 2, 1, 3])
    return _dense(layers, layers.node("Reshape", mixed, joined), width, width)


def _normalise(layers: _Layers, x: Tensor, width: int, fused: bool) -> Tensor:
    scale, bias = layers.weight(width, scale=0.1, centre=1.0), layers.weight(width, scale=0.02)
    if fused:
        return layers.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)
    last = layers.builder.indices("last", [-1])
    centred = layers.node("Sub", x, layers.node("ReduceMean", x, last))
    variance = layers.node("ReduceMean", layers.node("Pow", centred, layers.constant(2.0)), last)
    deviation = layers.node("Sqrt", layers.node("Add", variance, layers.constant(1e-5)))
    return layers.node("Add", layers.node("Mul", layers.node("Div", centred, deviation), scale), bias)


def _gelu(layers: _Layers, x: Tensor, fused: bool) -> Tensor:
    if fused:
        return layers.node("Gelu", x)
    erf = layers.node("Erf", layers.node("Div", x, layers.constant(2.0**0.5)))
    product = layers.node("Mul", x, layers.node("Add", erf, layers.constant(1.0)))
    return layers.node("Mul", product, layers.constant(0.5))
