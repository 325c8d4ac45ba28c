"""A box is cut until every part of it is decided, and no point of it is left out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from ranum_falsify.domain import Interval
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.verify.prove.applications import Box
from ranum_falsify.verify.prove.bisection import cut, is_narrow


def box(low: object, high: object, dtype: type[np.generic] = np.float32) -> Interval:
    return Interval.box(np.array(low, dtype), np.array(high, dtype))


def soon() -> Deadline:
    return Deadline.after(10.0)


def ends(x: Interval) -> tuple[float, float]:
    low, high = x.expand()
    return float(low.double().min()), float(high.double().max())


class TestNarrow:
    def test_elements_with_a_width_count(self) -> None:
        many = np.zeros(1000)
        assert not is_narrow({"x": box(many, many)})  # nothing to cut
        some = many.copy()
        some[:64] = 1
        assert is_narrow({"x": box(many, some)})
        assert not is_narrow({"x": box(many, some), "y": box(0.0, 1.0)})
        assert is_narrow({"x": box(many, many), "y": box(0.0, 1.0)})

    def test_integers_that_torch_does_not_compute_with(self) -> None:
        assert is_narrow({"x": box([0], [5], np.int8)})
        assert not is_narrow({"x": box([0], [5], np.uint16)})
        assert not is_narrow({"x": box([0.0], [1.0]), "y": box([0], [5], np.uint16)})


class TestCut:
    def undecided(self, whole: Box, width: float) -> list[dict[str, tuple[float, float]]]:
        """Cut until every part is no wider than `width`; return these parts."""
        parts: list[dict[str, tuple[float, float]]] = []

        def decide(part: Box) -> bool:
            found = {name: ends(x) for name, x in part.items()}
            if any(high - low > width for low, high in found.values()):
                return False
            parts.append(found)
            return True

        assert cut(whole, decide, deadline=soon())
        return parts

    @pytest.mark.parametrize(
        ("low", "high", "dtype"),
        [(0, 7, np.int64), (-100, 100, np.int8), (-128, 127, np.int8), (0, 255, np.uint8), (-3, -1, np.int32)],
    )
    def test_each_integer_is_in_one_part(self, low: int, high: int, dtype: type[np.generic]) -> None:
        parts = self.undecided({"n": box([low], [high], dtype)}, 0)
        assert sorted(part["n"] for part in parts) == [(n, n) for n in range(low, high + 1)]

    def test_parts_of_floats_meet(self) -> None:
        parts = sorted(part["x"] for part in self.undecided({"x": box([-1.0], [3.0])}, 0.5))
        assert (parts[0][0], parts[-1][1]) == (-1.0, 3.0)
        assert all(left[1] == right[0] for left, right in itertools.pairwise(parts))

    def test_the_largest_floats_have_a_middle(self) -> None:
        most = float(np.finfo(np.float32).max)
        assert len(self.undecided({"x": box([-most], [most])}, most)) == 2

    def test_variables_are_cut_in_turn(self) -> None:
        # A width that is a thousand times as large is no reason to cut only there.
        parts = self.undecided({"x": box([0.0], [1.0]), "y": box([0.0], [1000.0])}, 1000.0)
        assert len(parts) == 1

        seen: list[tuple[float, float]] = []

        def decide(part: Box) -> bool:
            seen.append((ends(part["x"])[1] - ends(part["x"])[0], ends(part["y"])[1] - ends(part["y"])[0]))
            return len(seen) > 2

        assert cut({"x": box([0.0], [1.0]), "y": box([0.0], [1000.0])}, decide, deadline=soon())
        assert seen[:3] == [(1.0, 1000.0), (0.5, 1000.0), (0.5, 500.0)]

    def test_what_cannot_be_cut_stays_open(self) -> None:
        one = np.float32(1.0)
        assert not cut({"x": box([one], [np.nextafter(one, np.float32(2))])}, lambda part: False, deadline=soon())
        assert not cut({"x": box([1.0], [1.0])}, lambda part: False, deadline=soon())
        assert not cut({"x": box(np.zeros((0,)), np.zeros((0,)))}, lambda part: False, deadline=soon())

    def test_time_that_is_up_decides_nothing(self) -> None:
        assert not cut({"x": box([0.0], [1.0])}, lambda part: True, deadline=Deadline.after(0))

    def test_the_box_itself_is_left_alone(self) -> None:
        x = box([0.0], [4.0])
        assert cut({"x": x}, lambda part: ends(part["x"])[1] - ends(part["x"])[0] <= 1, deadline=soon())
        assert torch.equal(x.expand()[0], torch.zeros(1)) and torch.equal(x.expand()[1], torch.full((1,), 4.0))
