"""How much the elements of a tensor matter for the validity of operators, by the derivatives of their margins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.domain import Interval
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.targets import Target, targets_of
from ranum_falsify.repair.abstraction.ranges import Ranges
from ranum_falsify.verify.search.converter import convert
from ranum_falsify.verify.search.target_state import margins_of

_POINTS = 8
"""Points at which derivatives are taken."""

_LEAST = 1e-30
"""The least margin whose logarithm is taken."""

_SPREAD = 2.0
"""From which ratio on costs of elements differ."""


def rate_elements(problem: Problem, ranges: Ranges, tensors: Sequence[str]) -> Mapping[str, Tensor]:
    """Return by how much each element of inputs moves margins of the operators in question.

    Where no weights are fixed, uniform ranges make all elements alike, and nothing is computed.

    Args:
        problem: A problem with one application of a network.
        ranges: Bounds of all inputs of the network, within which points are drawn.
        tensors: Names of the inputs to rate; others are left out.
    """
    graph = problem.calls[0].graph
    if not _has_fixed_weights(graph):
        return {}
    try:
        with torch.enable_grad():
            found = _differentiate(problem, graph, ranges)
    except (RanumFalsifyError, RuntimeError, NotImplementedError):
        return {}  # costs only steer; a model that PyTorch cannot run has none
    rated = {name: found[name].sqrt() for name in tensors if name in found}
    return {name: costs for name, costs in rated.items() if bool(costs.amax() > _SPREAD * costs.amin())}


def _has_fixed_weights(graph: Graph) -> bool:
    arrays = (x for op in graph.nodes for x in spec_of(op).operands_of(op) if isinstance(x, np.ndarray))
    return any(x.dtype.kind == "f" and x.size > 1 and bool((x != x.flat[0]).any()) for x in arrays)


def _differentiate(problem: Problem, graph: Graph, ranges: Ranges) -> dict[str, Tensor]:
    """Return for each float input by how much its elements change margins, relative to these, at random points."""
    targets = [t for number, goal in enumerate(problem.goals) for t in targets_of(number, goal) if not t.is_remote]
    of_operators: dict[int, list[Target]] = {}
    for target in targets:
        of_operators.setdefault(id(target.op), []).append(target)
    probes = {key: margins_of(found) for key, found in of_operators.items()}
    model, generator = convert(graph), torch.Generator().manual_seed(0)
    costs: dict[str, Tensor] = {}
    for _ in range(_POINTS):
        point = {name: _draw(ranges[name], generator) for name in graph.input_names}
        floating = {name: x for name, x in point.items() if x.requires_grad}
        _, observed = model.observe(list(point.values()), probes, outputs=False)
        # Random signs: what two margins share must not cancel.
        signs = [torch.randint(0, 2, margins.shape, generator=generator) * 2 - 1 for margins in observed]
        terms = [(s * m.abs().clamp_min(_LEAST).log()).sum() for s, m in zip(signs, observed, strict=True)]
        if not any(term.requires_grad for term in terms):
            continue
        slopes = torch.autograd.grad(torch.stack(terms).sum(), list(floating.values()), allow_unused=True)
        for name, slope in zip(floating, slopes, strict=True):
            if slope is not None:
                costs[name] = costs.get(name, 0.0) + slope.double().nan_to_num(0.0, 0.0, 0.0).square()
    return costs


def _draw(x: Interval, generator: torch.Generator) -> Tensor:
    lower, upper = x.expand()
    share = torch.rand(x.shape, generator=generator, dtype=torch.float64)
    drawn = (lower + share * (upper.double() - lower.double())).to(lower.dtype)
    return drawn.requires_grad_(drawn.is_floating_point())
