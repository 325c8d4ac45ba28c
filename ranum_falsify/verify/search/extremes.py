"""Points that drive the tensors of a network to their extremes: where bounds are narrow, they are left there first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect
from torch import Tensor

from ranum_falsify.network import Graph
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import InputVariable
from ranum_falsify.verify.search.converter import TorchModel
from ranum_falsify.verify.search.device import bytes_per_sample

_MOST = 8
"""Tensors, spread over the network, of each of which one element is driven up and down."""

_BYTES = 1 << 29
"""Memory for the samples of one run, forward and backward."""


def find_extremes(
    call: NetworkCall, model: TorchModel, variables: Sequence[InputVariable]
) -> list[Mapping[str, np.ndarray]]:
    """Return points by variable: ends of the box where the gradient of an element of a tensor points.

    The gradients, two for each tensor, are those at random points, from one run of as many as memory is given for.
    There are none where arguments are no variables, where samples of a batch do not keep apart, or where two do not
    fit.
    """
    if not model.batches or model.graph is not call.graph or None in call.variables:
        return []
    nodes = _list_nodes(model.graph)
    names = {v.name: v for v in variables}
    box = [names[str(name)] for name in call.variables]
    ends = [(to_torch(v.lower), to_torch(v.upper)) for v in box]
    generator, found = torch.Generator().manual_seed(0), list[Mapping[str, np.ndarray]]()
    most = _BYTES // (2 * bytes_per_sample([model.graph]))
    if not most:
        return []
    for part in (nodes[first : first + most] for first in range(0, len(nodes), most)):
        starts = [_draw(low, high, 2 * len(part), generator) for low, high in ends]
        if not _climbs(model, part, starts):
            break
        points = [_move(x, low, high) for x, (low, high) in zip(starts, ends, strict=True)]
        rows = range(2 * len(part))
        found += [{v.name: to_numpy(x[row][None]) for v, x in zip(box, points, strict=True)} for row in rows]
    return found


def _list_nodes(graph: Graph) -> list[Operation]:
    single = [op for op in graph.order if not isinstance(op, (Input, OutputSelect)) and op.name in graph.details]
    nodes = [op for op in single if np.dtype(graph.details[op.name].dtype).kind == "f"]
    return nodes[:: -(-len(nodes) // _MOST) or 1]


def _draw(low: Tensor, high: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return random points of a box, a batch along dimension 0."""
    if not low.is_floating_point():
        return low.expand(count, *low.shape[1:])
    share = torch.rand((count, *low.shape[1:]), generator=generator).to(low.dtype)
    return torch.minimum(torch.maximum(low * (1 - share) + high * share, low), high).requires_grad_()


def _move(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the ends of the box to which the gradients at some points, which are left as they are, point."""
    start = x.detach()
    return start if x.grad is None else torch.where(x.grad > 0, high, torch.where(x.grad < 0, low, start))


def _climbs(model: TorchModel, nodes: Sequence[Operation], starts: Sequence[Tensor]) -> bool:
    """Let the gradients of an element of each tensor, up and down, flow into samples of their own; tell if any do."""
    probes = dict.fromkeys(map(id, nodes), lambda op, operands, outputs: outputs[0])
    with torch.enable_grad():
        _, seen = model.observe(starts, probes, outputs=False, batch=True)
        total = torch.zeros((), dtype=torch.float64)
        for number, tensor in enumerate(seen):
            rows = tensor.flatten(1)
            if rows.shape[1]:
                element = number % rows.shape[1]
                total = total + rows[number, element].double() - rows[number + len(seen), element].double()
        if not total.requires_grad:
            return False
        total.backward()
    return True
