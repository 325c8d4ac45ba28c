"""Points on which ONNX Runtime is watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ranum_falsify.network.tensors import stored_once
from ranum_falsify.properties.problem.problem import InputVariable
from ranum_falsify.verify.prove.evaluation import make_points
from tests.verify.prove.test_watch import run_alone
from tests.verify.search.search_kit import network


def variable(dtype: Any, low: Any, high: Any) -> InputVariable:
    lower, upper = (np.full(3, end, dtype) for end in (low, high))
    return InputVariable(name="x", shape=(3,), dtype=np.dtype(dtype), lower=lower, upper=upper)


BOXES: Mapping[str, tuple[Any, Any, Any]] = {
    "float32": (np.float32, -3.4e38, 3.4e38),
    "float64": (np.float64, -1.7e308, 1.7e308),
    "one float": (np.float32, 1.1, 1.1),
    "neighbours": (np.float16, 1.0, np.nextafter(np.float16(1), np.float16(2))),
    "bfloat16": (ml_dtypes.bfloat16, -1.0, 1.0),
    "all of int64": (np.int64, -(2**63), 2**63 - 1),
    "all of uint64": (np.uint64, 0, 2**64 - 1),
    "int8": (np.int8, -128, 127),
    "indices": (np.int64, 3, 5),
    "both": (np.bool_, False, True),
    "false": (np.bool_, False, False),
}


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
def test_points_lie_in_the_box(box: tuple[Any, Any, Any]) -> None:
    given = variable(*box)
    points = [point["x"] for point in make_points([given])]
    assert all(x.dtype == given.dtype and x.shape == given.shape for x in points)
    assert all(bool(((given.lower <= x) & (x <= given.upper)).all()) for x in points)
    assert len(points) == (1 if (given.lower == given.upper).all() else 64)


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
def test_points_are_the_same_where_memory_holds_a_bound_once(box: tuple[Any, Any, Any]) -> None:
    given = variable(*box)
    lower, upper = (np.broadcast_to(end[:1], (3,)) for end in (given.lower, given.upper))
    once = replace(given, lower=lower, upper=upper)
    for one, other in zip(make_points([given]), make_points([once]), strict=True):
        assert one["x"].dtype == other["x"].dtype and np.array_equal(one["x"], other["x"])
    assert stored_once(next(make_points([once]))["x"]).shape == (1,)


def test_the_first_point_is_a_plain_one() -> None:
    plain = {name: float(next(make_points([variable(*box)]))["x"][0]) for name, box in BOXES.items()}
    assert plain["float32"] == 0 and plain["bfloat16"] == 0 and plain["neighbours"] == 1
    assert plain["all of int64"] == plain["all of uint64"] == plain["int8"] == 1 and plain["indices"] == 3


def test_random_points_of_integers_spread_over_the_box() -> None:
    points = [float(point["x"].astype(np.float64).mean()) for point in make_points([variable(*BOXES["all of int64"])])]
    assert min(points[3:]) < 0 < max(points[3:]) and max(map(abs, points[3:])) > 2.0**60


def test_points_are_of_many_kinds() -> None:
    points = [point["x"] for point in make_points([variable(np.float32, -3.0, 5.0)])]
    values = set(np.concatenate(points).tolist())
    assert {0.0, 1.0, -1.0, 0.5, -3.0, 5.0} <= values
    assert {
        float(np.nextafter(np.float32(-3), np.float32(0))),
        float(np.nextafter(np.float32(5), np.float32(0))),
    } <= values
    assert any((x == 1.0).sum() in (1, 2) for x in points), "few elements are off the centre"
    assert len({x.tobytes() for x in points}) > 60


def test_ends_may_be_infinite_where_they_are_the_same() -> None:
    given = InputVariable(
        name="x",
        shape=(2,),
        dtype=np.dtype(np.float32),
        lower=np.array([-np.inf, 0], np.float32),
        upper=np.array([-np.inf, 1], np.float32),
    )
    assert all(point["x"][0] == -np.inf and 0 <= point["x"][1] <= 1 for point in make_points([given]))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1, 3), (0, 3)])
def test_onnx_runtime_gets_all_elements_of_what_memory_holds_once(dtype: Any, shape: tuple[int, ...]) -> None:
    kind = {"bool": "bool", "int64": "int64", "bfloat16": "bfloat16"}.get(np.dtype(dtype).name, "float")
    graph = network(f"({kind}{list(shape) or ''} x) => (y) {{ y = Identity(x) }}")
    given = np.broadcast_to(np.ones((1,) * len(shape), dtype), shape)
    (shown,) = run_alone(graph, {"x": given}).values()
    assert shown.dtype == given.dtype and np.array_equal(shown, given) and shown.shape == shape
