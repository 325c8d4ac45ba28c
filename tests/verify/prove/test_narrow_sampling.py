"""Resize and Slice at what ONNX Runtime's kernels do in their own way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ranum_falsify.errors import ModelError
from ranum_falsify.network import read
from tests.domain.soundness import sweep_case
from tests.operators.cases.resize import resized
from tests.operators.harness import Spread
from tests.verify.prove.test_narrow_misses import assert_open, make

LOW = -0.577
HIDING = "q = Mul(x, x)\ns = Sub(one, q)\na = Mul(x, s)\n"
"""A factor x (1 - x^2), which is 0 at the ends and the centre of the box, and least or greatest near 0.577."""


@pytest.mark.slow
@pytest.mark.parametrize("ends", [(-100, -100), (-3, -(2**63)), (1, -(2**31) - 5)])
def test_a_backward_slice_from_before_the_front_keeps_the_first(ends: tuple[int, int]) -> None:
    constants = {"one": np.float32(1), "c": np.float32(0.2), "axis": np.array([0]), "step": np.array([-1])}
    constants |= {"start": np.array(ends[:1]), "end": np.array(ends[1:])}
    model = make(
        f"{HIDING}sl = Slice(a, start, end, axis, step)\nr = ReduceSum(sl)\nd = Add(r, c)\ny = Log(d)",
        {"x": np.zeros((2, 2), np.float32)},
        {name: np.asarray(value) for name, value in constants.items()},
        r={"keepdims": 0},
    )
    assert_open(model, {"x": (-1, 1)}, {"x": np.full((2, 2), LOW, np.float32)})


@pytest.mark.slow
def test_an_axis_whose_size_stays_is_copied_by_antialiasing_kernels() -> None:
    constants = {
        "one": np.float32(1),
        "roi": np.array([0, 0, 0, 0.5, 1, 1, 1, 2], np.float32),
        "sizes": np.array([1, 1, 6, 8]),
        "start": np.array([6]),
        "end": np.array([8]),
        "axis": np.array([3]),
        "c": np.float32(0.2),
    }
    crop = {"antialias": 1, "coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}
    model = make(
        f"{HIDING}y = Resize(a, roi, , sizes)\nedge = Slice(y, start, end, axis)\nd = Sub(c, edge)\nout = Log(d)",
        {"x": np.zeros((1, 1, 4, 8), np.float32)},
        {name: np.asarray(value) for name, value in constants.items()},
        y=crop,
    )
    assert_open(model, {"x": (-1, 1)}, {"x": np.full((1, 1, 4, 8), -LOW, np.float32)})


CROP: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.5}
BYTES = Spread((1, 2, 5, 4), np.int8, low=-128, high=127)
UNSIGNED = Spread((7, 2, 7, 2), np.uint8, low=0, high=255)
SMALL: Any = np.array([[[[1e-6, 2, 2, 2]]]], np.float32)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "case",
    [
        resized("crop-of-batch", roi=(0.3, 0, 0, 0, 1, 0.5, 1, 1), sizes=(1, 2, 6, 8), mode="linear", **CROP),
        resized("crop-that-stays", x=Spread((3,)), roi=(0, 1.5), sizes=(3,), nearest_mode="floor", **CROP),
        resized("cubic", x=SMALL, sizes=(1, 1, 8, 4), mode="cubic", cubic_coeff_a=0.3),
        resized("antialias-stays", x=Spread((2, 1)), scales=(1.3, 2.6), mode="linear", antialias=1),
        resized("antialias-int8", x=BYTES, scales=(1, 1, 2, 1.3), mode="linear", antialias=1),
        resized("antialias-uint8", x=UNSIGNED, sizes=(7, 2, 8, 6), mode="cubic", antialias=1),
        resized("ratio", sizes=(2, 8, 2), axes=[1, 2, -1], keep_aspect_ratio_policy="not_smaller"),
        resized("cubic-of-channels", x=BYTES, scales=(1, 1.6, 1, 1), mode="cubic"),
    ],
    ids=lambda case: case.name,
)
def test_bounds_hold_what_kernels_of_resize_make(case: Any) -> None:
    for seed in range(4):
        assert not sweep_case(case, seed=seed).faults


def test_one_axis_named_twice_is_refused() -> None:
    model = make(
        "y = Resize(x, , , sizes)", {"x": np.zeros((2, 3), np.float32)}, {"sizes": np.array([4, 6])}, axes=[1, -1]
    )
    with pytest.raises(ModelError, match="name an axis twice"):
        read(model)
