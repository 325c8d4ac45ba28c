"""Random operators.  A `seed` attribute makes draws repeat; without it torch's default generator gives them.

No two runtimes draw the same numbers, so results through these operators are nondeterministic.
"""

from __future__ import annotations

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network.registry import operator
from ranum_falsify.operators.creation import dtype_numbered

__all__ = [
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
]

_FLOAT, _INT32 = 1, 6
"""Element type numbers of ONNX that are defaults of `dtype`."""


def _generator(op: Operation, device: torch.device) -> torch.Generator | None:
    if op.seed is None:
        return None
    return torch.Generator(device).manual_seed(int(op.seed))


def _uniform(op: Operation, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.rand(shape, dtype=dtype, device=device, generator=_generator(op, device))


def _normal(op: Operation, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.randn(shape, dtype=dtype, device=device, generator=_generator(op, device))


def _affine(draws: Tensor, offset: float, scale: float) -> Tensor:
    return draws * scale + offset


def _random_normal(op: Operation) -> Tensor:
    draws = _normal(op, op.shape, dtype_numbered(op.dtype or _FLOAT), torch.get_default_device())
    return _affine(draws, op.mean, op.scale)


def _random_uniform(op: Operation) -> Tensor:
    draws = _uniform(op, op.shape, dtype_numbered(op.dtype or _FLOAT), torch.get_default_device())
    return _affine(draws, op.low, op.high - op.low)


def _like(op: Operation, x: Tensor) -> torch.dtype:
    return x.dtype if op.dtype is None else dtype_numbered(op.dtype)


def _random_normal_like(op: Operation, x: Tensor) -> Tensor:
    return _affine(_normal(op, tuple(x.shape), _like(op, x), x.device), op.mean, op.scale)


def _random_uniform_like(op: Operation, x: Tensor) -> Tensor:
    return _affine(_uniform(op, tuple(x.shape), _like(op, x), x.device), op.low, op.high - op.low)


def _bernoulli(op: Operation, x: Tensor) -> Tensor:
    return (_uniform(op, tuple(x.shape), x.dtype, x.device) < x).to(_like(op, x))


def _multinomial(op: Operation, x: Tensor) -> Tensor:
    # The largest of log-probabilities plus Gumbel noise is a draw (https://arxiv.org/abs/1611.01144, section 2).
    batch, classes = x.shape
    uniform = _uniform(op, (batch, op.sample_size, classes), torch.float32, x.device)
    gumbel = -torch.log(-torch.log(uniform.clamp(min=torch.finfo(torch.float32).tiny)))
    return torch.argmax(x.unsqueeze(1) + gumbel, dim=-1).to(dtype_numbered(op.dtype or _INT32))


@operator(torch=_random_normal, random=True)
class RandomNormal(Operation):
    """https://onnx.ai/onnx/operators/onnx__RandomNormal.html."""


@operator(torch=_random_uniform, random=True)
class RandomUniform(Operation):
    """https://onnx.ai/onnx/operators/onnx__RandomUniform.html."""


@operator(torch=_random_normal_like, random=True)
class RandomNormalLike(Operation):
    """https://onnx.ai/onnx/operators/onnx__RandomNormalLike.html."""


@operator(torch=_random_uniform_like, random=True)
class RandomUniformLike(Operation):
    """https://onnx.ai/onnx/operators/onnx__RandomUniformLike.html."""


@operator(torch=_bernoulli, random=True, overflow=False)
class Bernoulli(Operation):
    """https://onnx.ai/onnx/operators/onnx__Bernoulli.html."""


@operator(torch=_multinomial, random=True, overflow=False)
class Multinomial(Operation):
    """https://onnx.ai/onnx/operators/onnx__Multinomial.html."""
