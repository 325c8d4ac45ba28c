"""How many samples fit into memory at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import psutil
import torch
from torch import Tensor

from ranum_falsify.network import Graph

__all__ = ["batch_limit", "bytes_per_sample", "chunks"]

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
