"""Models that `bench_proofs.py` asks about, with random weights: what practitioners export."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["NAMES", "write_model"]

_OPSET = 17


class _Residual(nn.Module):
    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, wider, 3, stride, 1, bias=False),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
            nn.Conv2d(wider, wider, 3, 1, 1, bias=False),
            nn.BatchNorm2d(wider),
        )
        straight = stride == 1 and channels == wider
        shorter = (nn.Conv2d(channels, wider, 1, stride, bias=False), nn.BatchNorm2d(wider))
        self.beside = nn.Sequential(*(() if straight else shorter))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x) + self.beside(x))


class _Transformer(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        size = width // self.heads
        parts = self.joint(self.first(x)).chunk(3, -1)
        q, k, v = (part.reshape(batch, length, self.heads, size).transpose(1, 2) for part in parts)
        weighed = torch.softmax(q @ k.transpose(-1, -2) / size**0.5, -1) @ v
        x = x + self.out(weighed.transpose(1, 2).reshape(batch, length, width))
        y: Tensor = x + self.inner(self.second(x))
        return y


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.out(self.layer(x)[0][:, -1]), -1)


def _resnet() -> nn.Module:
    widths = (64, 64, 128, 256, 512)
    blocks = [
        block
        for i in range(4)
        for block in (_Residual(widths[i], widths[i + 1], 2 if i else 1), _Residual(widths[i + 1], widths[i + 1], 1))
    ]
    start = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*start, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000), nn.Softmax(-1))


def _convolutions() -> nn.Module:
    ends = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), *ends
    )


def _layers() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4), nn.Softmax(-1))


_MADE: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet18": (_resnet, (1, 3, 224, 224)),
    "transformer": (lambda: nn.Sequential(_Transformer(), _Transformer(), nn.LayerNorm(64)), (1, 16, 64)),
    "lstm": (_Recurrent, (1, 12, 8)),
    "float16": (_layers, (2, 16)),
    "qdq_cnn": (_convolutions, (1, 3, 32, 32)),
    "quantised_cnn": (_convolutions, (1, 3, 32, 32)),
    "dynamic_lstm": (_Recurrent, (1, 12, 8)),
}
NAMES = tuple(_MADE)


def write_model(name: str, path: Path) -> None:
    """Write one of the models, which are about inputs in [-1, 1]."""
    make, shape = _MADE[name]
    torch.manual_seed(0)
    dtype = torch.float16 if name == "float16" else torch.float32
    module, plain = make().eval().to(dtype), path.with_suffix(".plain.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sample = (torch.zeros(shape, dtype=dtype),)
        torch.onnx.export(module, sample, str(plain), dynamo=False, opset_version=_OPSET, input_names=["x"])
        if name.startswith(("qdq", "quantised")):
            _quantise(plain, path, shape, "QDQ" if name.startswith("qdq") else "QOperator")
        elif name.startswith("dynamic"):
            from onnxruntime.quantization import quantize_dynamic

            quantize_dynamic(str(plain), str(path))
        else:
            plain.rename(path)
    plain.unlink(missing_ok=True)


def _quantise(plain: Path, path: Path, shape: tuple[int, ...], form: str) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Samples(CalibrationDataReader):
        def __init__(self) -> None:
            rng = np.random.default_rng(0)
            self._left: Iterator[dict[str, np.ndarray]] = iter(
                [{"x": rng.uniform(-1, 1, shape).astype(np.float32)} for _ in range(4)]
            )

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._left, None)

    quantize_static(str(plain), str(path), Samples(), quant_format=QuantFormat[form])
