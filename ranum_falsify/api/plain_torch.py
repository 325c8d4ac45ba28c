"""PyTorch as it is by default, whatever the process has set: float32 products in float32, and tensors on the CPU.

`torch.set_float32_matmul_precision("medium")`, which many training scripts call for their GPU, lets oneDNN round
factors to bfloat16 on processors that multiply these.  Bounds are computed by such products, and constants of models.
`torch.set_default_device("cuda")` would have part of them computed by other kernels.

Source: https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html
"""

from __future__ import annotations

import threading
from contextlib import ContextDecorator, nullcontext
from typing import Any

import torch

_FULL = ("none", "ieee")
_CPU = torch.device("cpu")


def _settings() -> tuple[Any, ...]:
    backend: Any = torch.backends.mkldnn
    return backend.matmul, backend.conv, backend.rnn


class PlainTorch(ContextDecorator):
    """A context, and a decorator of functions: the precision is that of all threads, the device that of its own."""

    _lock = threading.Lock()
    _users = 0
    _before: tuple[tuple[Any, str], ...] = ()
    _local = threading.local()

    def __enter__(self) -> None:
        kind = type(self)
        with self._lock:
            if not kind._users:
                kind._before = tuple((setting, setting.fp32_precision) for setting in _settings())
                for setting, precision in kind._before:
                    if precision not in _FULL:
                        setting.fp32_precision = "ieee"
            kind._users += 1
        # A default device costs time at each call of PyTorch.
        device: Any = nullcontext() if torch.get_default_device() == _CPU else torch.device("cpu")
        device.__enter__()
        self._devices.append(device)

    def __exit__(self, *error: Any) -> None:
        kind = type(self)
        self._devices.pop().__exit__(*error)
        with self._lock:
            kind._users -= 1
            if not kind._users:
                for setting, precision in kind._before:
                    if precision not in _FULL:
                        setting.fp32_precision = precision

    @property
    def _devices(self) -> list[Any]:
        found: list[Any] = self._local.__dict__.setdefault("devices", [])
        return found

    @classmethod
    def notices(cls) -> tuple[str, ...]:
        """Say, in the context, that the process computes otherwise."""
        lower = sorted({precision for _, precision in cls._before if precision not in _FULL})
        if not lower:
            return ()
        allowed = " and ".join(lower)
        return (f"this process lets PyTorch's products on the CPU be in {allowed}: the answer is about float32",)
