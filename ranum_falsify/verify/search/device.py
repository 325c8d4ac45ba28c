"""The device of a run: torch's settings during it, and how many samples fit into its memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import psutil
import torch
from torch import Tensor

from ranum_falsify.errors import DeviceError
from ranum_falsify.network import Graph
from ranum_falsify.network.tensors import torch_threads, use_processors

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
        with use_processors(wanted), torch_threads(1 if batch_bytes < _SMALL_BATCH else wanted):
            yield


_SHARE = 0.5
"""Share of the free memory that a batch may take; the rest is for other processes and allocators."""

_LARGEST = 1 << 30
"""A CPU is no faster with more at once, and the search would be deaf to its timeout for longer."""

_TENSORS_PER_VALUE = 8
"""Copies of each activation that live at once in the worst case, where every operator has a margin: values, gradients,
and what both save for the backward pass.  Measured on real models: 3.2 to 7.4."""


def bytes_per_sample(graphs: Iterable[Graph]) -> int:
    """Return an upper estimate of the memory that one sample takes, forward and backward."""
    details = (d for graph in graphs for d in graph.details.values())
    activations: int = sum(int(np.prod(d.shape, dtype=np.int64)) * d.dtype.itemsize for d in details)
    return max(1, activations * _TENSORS_PER_VALUE)


def batch_limit(size: int, device: torch.device) -> int:
    """Return how many samples of a size in bytes fit into the free memory of a device, at least 1."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    else:
        free = min(psutil.virtual_memory().available, _LARGEST)
    return max(1, int(free * _SHARE / size))


def chunks(inputs: Sequence[Tensor], limit: int) -> list[tuple[Tensor, ...]]:
    """Split tensors `(batch, ...)` into parts of at most `limit` samples, in order."""
    if len(inputs[0]) <= limit:
        return [tuple(inputs)]
    return list(zip(*(x.split(limit) for x in inputs), strict=True))
