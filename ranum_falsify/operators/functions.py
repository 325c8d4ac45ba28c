"""Building blocks of rows: adapters from plain torch functions to `fn(op, *operands)`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network.registry import TorchFunction

__all__ = ["elementwise", "ints"]


def elementwise(function: Callable[..., Tensor]) -> TorchFunction:
    """Return a row function that ignores the node's attributes."""

    def evaluate(op: Operation, *operands: Tensor) -> Tensor:
        return function(*operands)

    return evaluate


def ints(values: np.ndarray | tuple[int, ...] | None) -> list[int] | None:
    """Return a static operand or attribute as Python integers, None where absent."""
    return None if values is None else [int(v) for v in np.asarray(values).reshape(-1)]
