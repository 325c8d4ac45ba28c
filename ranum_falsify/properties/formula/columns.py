"""Columns of a matrix of margins."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["Columns"]


class Columns:
    """Columns of a `(batch, n)` tensor, by a constant integer array of any shape."""

    def __init__(self, index: np.ndarray) -> None:
        self.index = index
        flat = index.reshape(-1)
        self._start = int(flat[0]) if flat.size else 0
        self._consecutive = bool(np.array_equal(flat, np.arange(self._start, self._start + flat.size)))
        self._tensors: dict[torch.device, Tensor] = {}

    def take(self, values: Tensor) -> Tensor:
        """Return the columns `(batch, *index_shape)`; a view where they stand side by side."""
        if self._consecutive and self._start == 0 and self.index.size == values.shape[1]:
            columns = values
        elif self._consecutive:
            columns = values.narrow(1, self._start, self.index.size)
        else:
            if values.device not in self._tensors:
                self._tensors[values.device] = torch.from_numpy(self.index.reshape(-1)).to(values.device)
            columns = values.index_select(1, self._tensors[values.device])
        return columns if self.index.ndim == 1 else columns.reshape(-1, *self.index.shape)
