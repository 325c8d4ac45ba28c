"""Arrays and tensors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranum_falsify.network.tensors import stored_once


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=4))
def test_what_memory_holds_once_stands_for_all_elements(axes: list[tuple[int, bool]]) -> None:
    shape = tuple(size for size, _ in axes)
    held = tuple(1 if repeated else size for size, repeated in axes)
    array = np.broadcast_to(np.random.default_rng(0).normal(size=held), shape)
    once = stored_once(array)
    assert once.ndim == array.ndim and np.array_equal(np.broadcast_to(once, shape), array)
    assert once.size == (1 if max(held, default=1) == 1 and array.size else array.size)


@pytest.mark.parametrize("array", [np.ones((2, 3)), np.ones((2, 3))[:, ::2], np.ones((3, 1)).T])
def test_equal_numbers_that_memory_holds_apart_stay_apart(array: np.ndarray) -> None:
    assert stored_once(array) is array
