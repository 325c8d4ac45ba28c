"""Steps: inside the box, downhill, and unharmed by gradients that are no numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ranum_falsify.verify.search.descent import Descent, StepSizes
from ranum_falsify.verify.search.starts import Box, sample_starts

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def start(lower: Tensor, upper: Tensor, count: int = 8) -> Descent:
    box = Box(lower, upper)
    return Descent([box], sample_starts([box], count, generator()), StepSizes(), generator())


def assert_inside(descent: Descent) -> None:
    for x, box in zip(descent.inputs, descent.boxes, strict=True):
        assert bool(((box.lower <= x) & (x <= box.upper)).all())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 0.0, 1e-7, 1e4])
def test_steps_stay_in_the_box(dtype: torch.dtype, value: float) -> None:
    largest = torch.finfo(dtype).max
    for bound in (1.0, largest):
        descent = start(torch.full((3,), -bound, dtype=dtype), torch.full((3,), bound, dtype=dtype))
        for _ in range(5):
            gradient = torch.full_like(descent.inputs[0], value)
            gradient[:, 1] = 1.0
            descent.step([gradient])
            assert_inside(descent)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_gradient_that_is_infinite_once_does_no_lasting_harm(dtype: torch.dtype) -> None:
    descent = start(torch.full((2,), -1.0, dtype=dtype), torch.full((2,), 1.0, dtype=dtype))
    descent.step([torch.full_like(descent.inputs[0], torch.inf)])
    for _ in range(30):
        descent.step([-torch.ones_like(descent.inputs[0])])
    assert bool((descent.inputs[0] > 0).any())


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_bold_starts_reach_a_minimum_inside_and_careful_ones_come_nearer(scale: float) -> None:
    descent = start(torch.full((4,), -1.0), torch.full((4,), 1.0), count=16)
    before = (descent.inputs[0] - 0.3).abs()
    for _ in range(150):
        descent.step([2 * scale * (descent.inputs[0] - 0.3)])
    after = (descent.inputs[0] - 0.3).abs()
    assert bool((after <= before.clamp_min(0.01)).all())
    assert (after.amax(1) < 0.01).sum() >= 12


def test_start_at_a_corner_leaves_it_only_inward() -> None:
    box = Box(torch.zeros(2), torch.ones(2))
    descent = Descent([box], [torch.zeros(4, 2)], StepSizes(), generator())
    descent.step([torch.ones(4, 2)])
    assert torch.equal(descent.inputs[0], torch.zeros(4, 2))
    for _ in range(5):
        descent.step([-torch.ones(4, 2)])
    assert bool((descent.inputs[0] > 0).all())


def test_inputs_without_gradient_stay() -> None:
    boxes = [Box(torch.zeros(2), torch.ones(2)), Box(torch.zeros(3, dtype=torch.int64), torch.full((3,), 5))]
    starts = sample_starts(boxes, 6, generator())
    descent = Descent(boxes, starts, StepSizes(), generator())
    descent.step([torch.ones(6, 2), None])
    assert torch.equal(descent.inputs[1], starts[1])
    descent.step([None, None])


def test_starts_do_not_influence_each_other() -> None:
    box = Box(torch.full((3,), -1.0), torch.full((3,), 1.0))
    starts = sample_starts([box], 6, generator())
    one, other = (Descent([box], starts, StepSizes(), generator()) for _ in range(2))
    gradient = torch.randn(6, 3, generator=generator())
    for _ in range(4):
        one.step([gradient])
        changed = gradient.clone()
        changed[2] = torch.tensor([torch.inf, torch.nan, -5.0])
        other.step([changed])
    keep = torch.arange(6) != 2
    assert torch.equal(one.inputs[0][keep], other.inputs[0][keep])
    assert not torch.equal(one.inputs[0][2], other.inputs[0][2])


def test_replaced_starts_forget_their_past() -> None:
    descent = start(torch.full((2,), -1.0), torch.full((2,), 1.0), count=4)
    for _ in range(5):
        descent.step([torch.ones(4, 2)])
    which = torch.tensor([True, False, False, False])
    before = descent.inputs[0].clone()
    descent.replace(which, [torch.zeros(4, 2)])
    assert torch.equal(descent.inputs[0][0], torch.zeros(2))
    assert torch.equal(descent.inputs[0][1:], before[1:])
    descent.step([torch.zeros(4, 2)])
    assert torch.equal(descent.inputs[0][0], torch.zeros(2))


def test_empty_inputs_are_left_alone() -> None:
    box = Box(torch.zeros(0, 2), torch.zeros(0, 2))
    descent = Descent([box], sample_starts([box], 3, generator()), StepSizes(), generator())
    descent.step([torch.zeros(3, 0, 2)])
    assert descent.inputs[0].shape == (3, 0, 2)
