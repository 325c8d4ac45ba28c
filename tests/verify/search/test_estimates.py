"""Estimates of derivatives change no value, and lead the search through functions that have no slope."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import ranum_falsify as rf
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.model_builder import Tensor as Symbol
from ranum_falsify.verify.search.slopes import Estimates

FLAT: dict[str, Callable[[Tensor], Tensor]] = {
    "sign": torch.sign,
    "floor": torch.floor,
    "rounded quotient": lambda x: (x / 0.1).round() * 0.1,
    "quantised": lambda x: (x * 8).round().clamp(-100, 100).to(torch.int32).to(torch.int8).float(),
    "comparison": lambda x: (x >= 0.25).to(x.dtype),
    "reversed comparison": lambda x: (0.25 < x).double(),
    "conjunction": lambda x: torch.logical_and(x > -1, torch.logical_not(x < 0.5)).to(x.dtype),
    "choice": lambda x: torch.where(x > 0, 3.0, torch.full_like(x, -2)),
    "moved booleans": lambda x: (x > 0).reshape(-1).unsqueeze(0).to(x.dtype) @ torch.ones(6, 2),
}


@pytest.mark.parametrize("kind", FLAT)
@pytest.mark.parametrize("batched", [False, True])
def test_flat_functions_keep_their_values_and_get_slopes(kind: str, batched: bool) -> None:
    function = torch.func.vmap(FLAT[kind]) if batched else FLAT[kind]
    x = torch.linspace(-1.5, 1.5, 6).requires_grad_()
    x = x.expand(4, 6) if batched else x
    with Estimates() as estimates:
        y = function(x)
    torch.testing.assert_close(y, function(x), rtol=0, atol=0)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert estimates.used
    assert (slope >= 0).all()
    assert (slope > 0).any()


def test_true_derivatives_stay_where_nothing_is_flat() -> None:
    x = torch.linspace(-1.5, 1.5, 6).requires_grad_()
    with Estimates() as estimates:
        y = torch.where(torch.tensor([True, False] * 3), x.exp(), x.double().float() ** 2)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(slope, torch.where(torch.tensor([True, False] * 3), x.exp(), 2 * x).detach())
    assert not estimates.used


def test_choices_between_infinities_have_no_slope_of_their_own() -> None:
    x = torch.linspace(-1.5, 1.5, 6).requires_grad_()
    with Estimates():
        y = torch.where(x > 0, x, -torch.inf)
    (slope,) = torch.autograd.grad(y.exp().sum(), x)
    assert torch.isfinite(slope).all()


GROUPS = 12
WIDTH = 6

# Each is 1 where its operand is near the greatest value that it has, 0.75, and less elsewhere.
LAYERS: dict[str, Callable[[ModelBuilder, Symbol], Symbol]] = {
    "Sign": lambda m, z: (m.Sign(z) + 1.0) * 0.5,
    "Where": lambda m, z: m.Where(m.Greater(z, 0.0), 1.0, 0.0),
    "Cast": lambda m, z: m.Cast(m.Not(m.LessOrEqual(z, 0.0)), to=1),
    "Floor": lambda m, z: m.Floor(z) + 1.0,
    "QuantizeLinear": lambda m, z: m.DequantizeLinear(
        m.QuantizeLinear(z, np.float32(1), np.int8(0)), np.float32(1), np.int8(0)
    ),
}


def binary_network(layer: str) -> ModelBuilder:
    """Return a network whose logarithm fails where all of some groups of inputs are near a vertex of their own."""
    signs = np.where(np.random.default_rng(7).random((GROUPS * WIDTH, 1)) < 0.5, -1.0, 1.0)
    weights = (signs * np.kron(np.eye(GROUPS), np.ones((WIDTH, 1)))).astype(np.float32)
    least = np.maximum(weights, 0).sum(0) - np.float32(0.75)
    builder = ModelBuilder()
    x = builder.input("x", (1, GROUPS * WIDTH))
    active = LAYERS[layer](builder, x @ weights - least)
    builder.output(builder.Log(np.float32(GROUPS) - builder.ReduceSum(active, np.array([1])), name="log"))
    return builder


@pytest.mark.parametrize("layer", LAYERS)
def test_search_passes_layers_without_slopes(layer: str) -> None:
    result = rf.check(binary_network(layer).build(), box=(0, 1), n_starts=60, timeout=60)
    assert [op.op_type for op in result.operators if op.verdict == "violated"] == ["Log"]
