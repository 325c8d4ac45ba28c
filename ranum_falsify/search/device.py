"""The device of a run, and torch's global settings during it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ranum_falsify.errors import DeviceError

__all__ = ["device_of", "settings"]

_SMALL_BATCH = 4 << 20
"""Batches below this size in bytes run on one thread: handing work to others costs more than it saves."""


def device_of(name: str) -> torch.device:
    """Return a torch device.

    Raises:
        DeviceError: There is no such device.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise DeviceError(f"--device {name}: no such device; use cpu, cuda or cuda:0") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError(f"--device {name}: no CUDA device is available to torch; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DeviceError(f"--device {name}: there are {torch.cuda.device_count()} CUDA devices; use cuda:0")
    if device.type not in ("cpu", "cuda"):
        raise DeviceError(f"--device {name}: only cpu and cuda are supported")
    return device


@contextmanager
def settings(seed: int, processors: int | None, device: torch.device, batch_bytes: int) -> Iterator[None]:
    """Seed torch's own generator, which random operators use, and set the threads; restore both afterwards."""
    threads = torch.get_num_threads()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        # `torch.manual_seed` takes a lock, and keeps each call for a CUDA device that may be used one day.
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        wanted = threads if processors is None else processors
        torch.set_num_threads(1 if batch_bytes < _SMALL_BATCH else wanted)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
