"""Products of float32 matrices in float32, whatever the process allows PyTorch on the CPU.

`torch.set_float32_matmul_precision("medium")`, which many training scripts call for their GPU, lets oneDNN round
factors to bfloat16 on processors that multiply these.  Bounds are computed by such products, and constants of models.

Source: https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html
"""

from __future__ import annotations

import threading
from contextlib import ContextDecorator
from typing import Any

import torch

_FULL = ("none", "ieee")


def _settings() -> tuple[Any, ...]:
    backend: Any = torch.backends.mkldnn
    return backend.matmul, backend.conv, backend.rnn


class FullPrecision(ContextDecorator):
    """A context, and a decorator of functions, in which float32 products are float32 products, in all threads."""

    _lock = threading.Lock()
    _users = 0
    _before: tuple[tuple[Any, str], ...] = ()

    def __enter__(self) -> None:
        kind = type(self)
        with self._lock:
            if not kind._users:
                kind._before = tuple((setting, setting.fp32_precision) for setting in _settings())
                for setting, precision in kind._before:
                    if precision not in _FULL:
                        setting.fp32_precision = "ieee"
            kind._users += 1

    def __exit__(self, *_: object) -> None:
        kind = type(self)
        with self._lock:
            kind._users -= 1
            if not kind._users:
                for setting, precision in kind._before:
                    if precision not in _FULL:
                        setting.fp32_precision = precision

    @classmethod
    def notices(cls) -> tuple[str, ...]:
        """Say, in the context, that the process computes otherwise."""
        lower = sorted({precision for _, precision in cls._before if precision not in _FULL})
        if not lower:
            return ()
        allowed = " and ".join(lower)
        return (f"this process lets PyTorch's products on the CPU be in {allowed}: the answer is about float32",)
