"""Starting points: inside the box whatever it is, as many as asked for, the same for the same seed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.verify.search.starts import Box, sample_starts

COUNTS = (1, 2, 3, 4, 5, 40)
BOXES = {
    "float32": (np.float32, -3e38, 3e38),
    "float64": (np.float64, -1.7e308, 1.7e308),
    "float16": (np.float16, -65504, 65504),
    "bfloat16": (ml_dtypes.bfloat16, -3e38, 3e38),
    "one-point": (np.float32, 2.5, 2.5),
    "denormal": (np.float32, 0, 1e-45),
    "neighbours": (np.float32, 1.0, np.nextafter(np.float32(1), np.float32(2))),
    "away-from-zero": (np.float32, 1e-3, 1e3),
    "int8": (np.int8, -3, 5),
    "int64": (np.int64, -(2**63), 2**63 - 1),
    "uint8": (np.uint8, 0, 255),
    "uint16": (np.uint16, 3, 65535),
    "uint32": (np.uint32, 0, 2**32 - 1),
    "uint64": (np.uint64, 5, 2**64 - 1),
    "bool": (np.bool_, False, True),
    "true": (np.bool_, True, True),
}


def box(name: str, shape: tuple[int, ...] = (2, 3)) -> Box:
    dtype, lower, upper = BOXES[name]
    return Box(to_torch(np.full(shape, lower, dtype)), to_torch(np.full(shape, upper, dtype)))


def draw(*boxes: Box, count: int = 40, seed: int = 0, first: bool = True) -> list[torch.Tensor]:
    return sample_starts(boxes, count, torch.Generator().manual_seed(seed), first=first)


def assert_inside(x: torch.Tensor, within: Box) -> None:
    values, lower, upper = to_numpy(x), to_numpy(within.lower), to_numpy(within.upper)
    assert values.dtype == lower.dtype
    assert ((lower <= values) & (values <= upper)).all()


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2)], ids=str)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", BOXES)
def test_starts_stay_in_the_box(name: str, first: bool, shape: tuple[int, ...]) -> None:
    within = box(name, shape)
    for count in COUNTS:
        (x,) = draw(within, count=count, first=first)
        assert x.shape == (count, *shape)
        assert_inside(x, within)


@pytest.mark.parametrize("name", BOXES)
def test_both_ends_are_among_the_starts(name: str) -> None:
    within = box(name)
    (x,) = draw(within, count=4)
    rows = to_numpy(x)
    for end in (within.lower, within.upper):
        assert any((row == to_numpy(end)).all() for row in rows)


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=4), st.integers(0, 2**32))
def test_starts_stay_in_boxes_that_differ_by_element(bounds: list[tuple[float, float]], seed: int) -> None:
    lower, upper = np.sort(np.array(bounds, np.float32), axis=1).T
    within = Box(to_torch(lower.copy()), to_torch(upper.copy()))
    (x,) = draw(within, count=20, seed=seed)
    assert_inside(x, within)


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False), min_size=6, max_size=6))
def test_projection_is_inside_and_changes_nothing_there(values: list[float]) -> None:
    for name in ("float32", "denormal", "away-from-zero"):
        within = box(name)
        with np.errstate(over="ignore"):
            x = to_torch(np.array(values).astype(np.float32).reshape(1, 2, 3))
        projected = within.project(x)
        assert_inside(projected, within)
        assert torch.equal(within.project(projected), projected)


def test_several_inputs_have_their_own_shapes_and_types() -> None:
    boxes = box("float32", (3,)), box("int8", (2, 2)), box("bool", ())
    starts = draw(*boxes)
    for x, within in zip(starts, boxes, strict=True):
        assert x.shape == (40, *within.lower.shape)
        assert_inside(x, within)


def test_special_values_of_one_input_meet_ordinary_ones_of_another() -> None:
    unit = Box(torch.full((8,), -1.0), torch.full((8,), 1.0))
    x, y = draw(unit, unit, count=400, first=False)
    constant, other = ((v == v[:, :1]).all(1) for v in (x, y))
    assert (constant & ~other).any() and (other & ~constant).any()


def test_same_seed_same_starts() -> None:
    boxes = box("float32"), box("int8")
    for again, x in zip(draw(*boxes, seed=7), draw(*boxes, seed=7), strict=True):
        assert torch.equal(again, x)
    assert not torch.equal(draw(*boxes, seed=8)[0], draw(*boxes, seed=7)[0])


def test_portfolio_holds_the_points_that_defects_sit_at() -> None:
    unit = Box(torch.full((16,), -1.0), torch.full((16,), 2.0))
    (x,) = draw(unit, count=200)
    assert (x == 0).all(1).any()
    assert (x == 0.5).all(1).any(), "the centre"
    assert (((x == -1) | (x == 2)).all(1) & (x != x[:, :1]).any(1)).any(), "a mixed corner"
    assert ((x == x[:, :1]).all(1) & (x[:, 0] > 0.1) & (x[:, 0] < 1.9)).any(), "a constant"
    assert (((x == 0).sum(1) > 8) & (x != 0).any(1)).any(), "a sparse one"
    assert (x.abs().amax(1) < 1e-3).any(), "a small one"
    pairs = x[:, :, None] == x[:, None, :]
    assert ((pairs.sum((1, 2)) > 16) & (x != x[:, :1]).any(1)).any(), "equal elements, so that differences cancel"


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 1), (-1, 0)])
def test_some_start_has_the_smallest_normal_numbers(low: float, high: float) -> None:
    within = Box(torch.full((2, 3), float(low)), torch.full((2, 3), float(high)))
    (x,) = draw(within)
    sizes = x.abs().flatten(1)
    assert bool((sizes == torch.finfo(x.dtype).tiny).all(1).any())
