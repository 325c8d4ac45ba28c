"""Inputs at which what a pass added takes its extremes; no slope leads to a wrong branch that is flat elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.network import Graph
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.verify.search.batching import BatchedModel
from ranum_falsify.verify.search.converter import convert
from ranum_falsify.verify.search.descent import Descent, StepSizes
from ranum_falsify.verify.search.starts import Box, sample_starts

_STARTS = 64
_STEPS = 150
_SIZES = StepSizes(largest=1.0, smallest=0.05, decay=0.9)
"""The last steps are 1e-7 of the first, so that narrow peaks are met."""
_FRACTIONS = 9


def drive(
    graph: Graph, boxes: Sequence[Box], *, rounds: int = 2, seed: int, deadline: Deadline
) -> Iterator[list[np.ndarray]]:
    """Yield inputs at which the first output of a network has a positive element, as PyTorch computes it.

    Elements of the other outputs are driven to their extremes, and the lines between these are walked along.  After the
    first input, only such are yielded at which the element is twice what it was before.

    Args:
        graph: The network.
        boxes: Where its inputs lie.
        rounds: How many rounds there are, each of `_STARTS` starts.
        seed: Seed of the choices.
        deadline: When to stop.
    """
    model = BatchedModel(convert(graph))
    generator = torch.Generator().manual_seed(seed)
    greatest = 0.0
    for inputs in _visit(model, boxes, rounds, generator):
        if deadline.has_passed:
            return
        outputs, _ = model.run(inputs)
        excess = outputs[0].reshape(len(outputs[0]), -1).nan_to_num(nan=-torch.inf).amax(1)
        value, position = excess.max(0)
        if value > 2 * greatest:
            greatest = float(value)
            yield [to_numpy(x[position]).copy() for x in inputs]


def _visit(
    model: BatchedModel, boxes: Sequence[Box], rounds: int, generator: torch.Generator
) -> Iterator[list[Tensor]]:
    """Yield batches of inputs."""
    for number in range(rounds):
        starts = sample_starts(boxes, _STARTS, generator, first=number == 0)
        descent = Descent(boxes, starts, _SIZES, generator)
        choice = torch.rand(_STARTS, generator=generator)
        for _ in range(_STEPS):
            yield descent.inputs
            gradients = _differentiate(model, descent.inputs, choice)
            if gradients is None:
                break
            descent.step(gradients)
        for fraction in np.linspace(0, 1, _FRACTIONS + 2)[:-1]:
            yield [
                box.find_nearest(x.double() * fraction + x.double().roll(1, 0) * (1 - fraction))
                for box, x in zip(boxes, descent.inputs, strict=True)
            ]


def _differentiate(model: BatchedModel, inputs: Sequence[Tensor], choice: Tensor) -> list[Tensor | None] | None:
    """Return the slopes of an element of each sample, None where none depends on the inputs.

    Args:
        model: The network.
        inputs: The samples.
        choice: Which element, as a share of all; of half of the samples, its opposite.
    """
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    outputs, _ = model.run(leaves)
    floats = [y.reshape(len(y), -1).double() for y in outputs[1:] if y.requires_grad and y.numel()]
    if not floats:
        return None
    heights = torch.cat(floats, 1)
    chosen = heights.gather(1, (choice * heights.shape[1]).long()[:, None])[:, 0]
    signed = torch.where(torch.arange(len(chosen)) // 2 % 2 == 0, chosen, -chosen)
    wanted = [x for x in leaves if x.requires_grad]
    found = iter(torch.autograd.grad(signed.nan_to_num().sum(), wanted, allow_unused=True))
    return [next(found) if x.requires_grad else None for x in leaves]
