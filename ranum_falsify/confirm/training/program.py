"""The loss of a network as the text of a Python function, which needs nothing but PyTorch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ranum_falsify.confirm.training.task import TrainingTask
from ranum_falsify.network.tensors import to_numpy, to_torch

__all__ = ["LossProgram", "trace_loss"]


@dataclass(frozen=True, kw_only=True)
class LossProgram:
    """A loss that runs without ranum-falsify.

    Attributes:
        source: The function `loss(weights, data, constants)`, of tensors in the task's order.
        constants: The network's constants.
    """

    source: str
    constants: Sequence[np.ndarray]


def trace_loss(task: TrainingTask, weights: Sequence[np.ndarray], data: Sequence[np.ndarray]) -> LossProgram:
    """Return the loss as PyTorch's operators compute it on tensors of these shapes.

    Args:
        task: What trains.
        weights: Values of the weights.
        data: A batch.
    """
    count = len(weights)

    def loss(*inputs: Tensor) -> Tensor:
        return task.loss(inputs[:count], inputs[count:])

    traced = make_fx(loss)(*map(to_torch, (*weights, *data)))
    names = dict.fromkeys(re.findall(r"self\.(\w+)", traced.code))
    constants = [to_numpy(getattr(traced, name)) for name in names]
    return LossProgram(source=_write(traced.code, list(names), task, count), constants=constants)


def _write(code: str, constants: Sequence[str], task: TrainingTask, count: int) -> str:
    lines = [line for line in code.split("\n") if line.strip()]
    # What is no longer read is freed when the function returns.
    body = [re.sub(r";  (\w+ = )+None$", "", line) for line in lines[1:]]
    reads = {f"arg{position}_1": name for position, name in enumerate((*task.weights, *(d.name for d in task.data)))}
    head = [
        "def loss(weights, data, constants):",
        *_unpack([f"arg{position}_1" for position in range(count)], "weights"),
        *_unpack([name for position, name in enumerate(reads) if position >= count], "data"),
    ]
    text = "\n".join([*head, *body])
    for position, name in enumerate(constants):
        text = re.sub(rf"\bself\.{name}\b", f"constants[{position}]", text)
    identifiers = _identify(reads)
    text = re.sub(r"\barg\d+_1\b", lambda match: identifiers[match[0]], text)
    return text.replace("torch.ops.aten.", "aten.") + "\n"


def _unpack(names: Sequence[str], source: str) -> list[str]:
    return [f"    [{', '.join(names)}] = {source}"] if names else []


def _identify(reads: dict[str, str]) -> dict[str, str]:
    """Return an identifier for each argument that resembles the name of its tensor and clashes with nothing."""
    return {
        name: f"in{position}_{re.sub(r'[^0-9a-zA-Z]', '_', tensor)}"
        for position, (name, tensor) in enumerate(reads.items())
    }
