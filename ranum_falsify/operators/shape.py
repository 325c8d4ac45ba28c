"""Shapes: moving, joining and cutting tensors without computing."""

from __future__ import annotations

from dnnv.nn.operations import Identity, Split
from dnnv.nn import Operation
from torch import Tensor
import numpy as np
import torch

from ranum_falsify.network.registry import operator
from ranum_falsify.operators.functions import elementwise, ints

__all__: list[str] = []

operator(torch=elementwise(lambda x: x), overflow=False)(Identity)


def _split(op: Operation, x: Tensor, split: np.ndarray | None) -> tuple[Tensor, ...]:
    size, parts = x.shape[op.axis], len(op.output_names)
    sizes = ints(split)
    if sizes is None:
        chunk = -(-size // parts)
        sizes = [chunk] * (parts - 1) + [size - chunk * (parts - 1)]
    return torch.split(x, sizes, dim=op.axis)


operator(torch=_split, operands=("x", "split"), renamed={"input": "x"}, static=("split",), overflow=False)(Split)
