"""Arrays of unit tests: the ends of a span come back exactly, in few numbers, from files that repeat."""

from __future__ import annotations

import io

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ranum_falsify.witness.unit_test import Box, Span, UnitTest, arrays_of, write_arrays
from tests.witness.confirm_kit import Array


def unit_test(feeds: dict[str, Array], spans: dict[str, Box] | None, radius: float = 0.5) -> UnitTest:
    """Return a test of these inputs; inputs that have no span stay."""
    span = None
    if spans is not None:
        ends = [{name: spans.get(name, (x, x))[side] for name, x in feeds.items()} for side in (0, 1)]
        span = Span(lower=ends[0], upper=ends[1], radius=radius, fixed=0.0, runtimes=("onnxruntime",))
    return UnitTest(
        seed=0,
        feeds=feeds,
        kind="inf",
        tensor="y",
        index=(0,),
        alone=True,
        oracle="onnxruntime",
        span=span,
        seconds={},
        shown=(),
    )


def ends_of(arrays: dict[str, Array], name: str) -> tuple[Array, Array]:
    """Return the ends that the arrays describe, as the generated file computes them."""
    value = arrays[f"input:{name}"]
    if f"lower:{name}" not in arrays:
        return value, value
    low, high = (np.broadcast_to(arrays[f"{end}:{name}"], value.shape) for end in ("lower", "upper"))
    if f"reach:{name}" in arrays:
        reach = arrays[f"reach:{name}"]
        low, high = np.maximum(low, value - reach), np.minimum(high, value + reach)
    return low, high


def reloaded(arrays: dict[str, Array]) -> dict[str, Array]:
    stream = io.BytesIO()
    write_arrays(stream, arrays)
    stream.seek(0)
    with np.load(stream, allow_pickle=False) as loaded:
        return dict(loaded)


@pytest.mark.slow
@given(st.data())
def test_ends_are_exact_whatever_they_are(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64]))
    shape = data.draw(npst.array_shapes(max_dims=3, max_side=4, min_dims=0))
    width = np.dtype(dtype).itemsize * 8
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=width)  # type: ignore[arg-type]
    three = np.sort(np.stack([data.draw(npst.arrays(dtype, shape, elements=numbers)) for _ in range(5)]), axis=0)
    least, low, value, high, greatest = three
    test = unit_test({"x": value}, {"x": (low, high)}, data.draw(st.sampled_from([0.0, 2.0**-22, 0.25])))
    arrays = reloaded(arrays_of(test, data.draw(st.sampled_from([{}, {"x": (least, greatest)}]))))
    for ours, theirs in zip(ends_of(arrays, "x"), (low, high), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == dtype


@pytest.mark.parametrize("fixed", [False, True])
def test_spans_of_large_weights_cost_little(fixed: bool) -> None:
    random = np.random.default_rng(0)
    value = random.uniform(-1, 1, (200, 300)).astype(np.float32)
    least, greatest = np.full_like(value, -1), np.full_like(value, 1)
    moves = random.random(value.shape) < 0.9 if fixed else np.ones(value.shape, bool)
    reach = np.where(moves, np.float32(2 * 2.0**-4), np.float32(0))
    low, high = np.maximum(least, value - reach), np.minimum(greatest, value + reach)
    arrays = arrays_of(unit_test({"W": value}, {"W": (low, high)}, 2.0**-4), {"W": (least, greatest)})
    assert arrays["lower:W"].size == arrays["upper:W"].size == 1
    assert arrays["reach:W"].size == (value.size if fixed else 1)
    for ours, theirs in zip(ends_of(reloaded(arrays), "W"), (low, high), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    stream = io.BytesIO()
    write_arrays(stream, {name: array for name, array in arrays.items() if name != "input:W"})
    assert stream.tell() < 0.2 * value.nbytes


def test_inputs_that_stay_have_no_ends() -> None:
    x, n = np.array([1, 2], np.float32), np.array([3])
    test = unit_test({"x": x, "n": n}, {"x": (x - 1, x + 1)})
    assert sorted(arrays_of(test, {})) == ["input:n", "input:x", "lower:x", "upper:x"]
    assert sorted(arrays_of(unit_test({"x": x, "n": n}, None), {})) == ["input:n", "input:x"]


def test_bfloat16_is_widened() -> None:
    x = np.array([1.5, -3.0], ml_dtypes.bfloat16)
    arrays = reloaded(arrays_of(unit_test({"x": x}, {"x": (x, x + x.dtype.type(1))}), {}))
    assert arrays["input:x"].dtype == arrays["upper:x"].dtype == np.float32
    np.testing.assert_array_equal(arrays["input:x"], [1.5, -3.0])


@pytest.mark.parametrize("name", ["a/b:0", "../x", "π", "", " ", "a\\b", "q\"'", "x.npy", "x" * 300])
def test_names_of_inputs_are_free(name: str) -> None:
    x = np.array([[1, 2]], np.float32)
    assert list(reloaded(arrays_of(unit_test({name: x}, None), {}))) == [f"input:{name}"]


def test_files_repeat_and_shrink_where_they_can() -> None:
    random, same = np.random.default_rng(0).random(100_000, np.float32), np.zeros(100_000, np.float32)
    streams = [io.BytesIO(), io.BytesIO()]
    for stream in streams:
        write_arrays(stream, {"random": random, "same": same, "scalar": np.array(1, np.float32)})
    assert streams[0].getvalue() == streams[1].getvalue()
    assert random.nbytes < streams[0].tell() < random.nbytes + 10_000
    assert reloaded({"scalar": np.asarray(1.0)})["scalar"].shape == ()
