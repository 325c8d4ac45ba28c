"""Losses and layers of PyTorch, forward and backward, in float32 and bfloat16: verdicts, and the truth of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from itertools import product

import pytest
import torch
from torch import Tensor, nn

import ranum_falsify as rf
from ranum_falsify.api.eager import run_module
from ranum_falsify.api.exporting import export
from ranum_falsify.api.tracing import TrainingStep, find_tensors, name_arguments
from tests.api.losses import LOSSES, Loss

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CHECKS = [(name, dtype, gradient) for name, dtype, gradient in product(LOSSES, DTYPES, (False, True))]
TRIALS = 1000
UNDECIDED = {("std", True)}
"""Violated for numbers below 1e-38 alone, which the search does not come upon."""

UNDECIDED_IN_HALVES = {
    ("scaled_dot_product_attention, mask", True),
    ("batch_norm, training", False),
    ("batch_norm, training", True),
    ("layer_norm", True),
    ("group_norm", True),
}
"""Kernels for halves round at other steps than any formula that is known."""


def make(loss: Loss, dtype: torch.dtype) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return loss.module().to(dtype), tuple(x.to(dtype) if x.is_floating_point() else x for x in loss.args)


def draw(loss: Loss, module: nn.Module, args: tuple[Tensor, ...]) -> Iterator[dict[str, Tensor]]:
    """Inputs in the box: any, corners, all of a tensor alike, and what is 0 or tiny."""
    generator = torch.Generator().manual_seed(0)
    kinds = ("any", "corner", "alike", "sparse", "tiny", "end")
    for trial in range(TRIALS):
        found = {}
        for name, x in zip(inspect.signature(module.forward).parameters, args, strict=True):
            low, high = loss.box.get(name, (0.0, 0.0))
            if name not in loss.box:
                found[name] = x
                continue
            share = torch.rand(x.shape, generator=generator)
            if not x.is_floating_point():
                found[name] = (low + share * (high - low + 1)).floor().clamp(low, high).to(x.dtype)
                continue
            kind = kinds[int(torch.randint(len(kinds), (), generator=generator))]
            if kind == "corner":
                share = share.round()
            elif kind == "alike":
                share = share.flatten()[:1].expand_as(share)
            elif kind == "end":
                share = torch.full_like(share, trial % 2)
            value = low + share * (high - low)
            if kind == "sparse":
                value = torch.where(torch.rand(x.shape, generator=generator) < 0.7, 0.0, value)
            elif kind == "tiny":
                value = value * 10.0 ** -float(torch.randint(45, (), generator=generator))
            found[name] = value.clamp(low, high).to(x.dtype)
        yield found


def run(module: nn.Module, inputs: Mapping[str, Tensor]) -> list[Tensor]:
    """What a module returns, and its gradients in what requires them."""
    outputs = find_tensors(module(**inputs))
    wanted = [x for x in (*inputs.values(), *module.parameters()) if x.requires_grad]
    loss = [y.sum() for y in outputs if y.requires_grad]
    gradients = torch.autograd.grad(loss, wanted, allow_unused=True) if loss else ()
    return [*outputs, *(x for x in gradients if x is not None)]


@pytest.mark.few(4)
@pytest.mark.parametrize(("name", "dtype", "gradient"), CHECKS)
def test_verdicts_are_true(name: str, dtype: str, gradient: bool) -> None:
    loss = LOSSES[name]
    module, args = make(loss, DTYPES[dtype])
    result = rf.check(module, args, box=loss.box, gradient=gradient, fail_on="any", timeout=120, self_check=False)
    is_valid = loss.backward if gradient else loss.forward
    if (name, gradient) in UNDECIDED or (dtype == "bfloat16" and (name, gradient) in UNDECIDED_IN_HALVES):
        assert result.verdict == "unknown"
        return
    assert result.verdict == ("holds" if is_valid else "violated"), result
    if result.counterexample is not None:
        exported = export(*make(loss, DTYPES[dtype]), gradient=gradient)
        assert run_module(exported, result.counterexample).faults
        return
    leaves = TrainingStep(module, name_arguments(module, args)).leaves if gradient else set()
    for inputs in draw(loss, module, args):
        given = {key: x.requires_grad_(key in leaves) for key, x in inputs.items()}
        assert all(bool(y.isfinite().all()) for y in run(module, given)), inputs
