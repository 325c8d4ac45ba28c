"""Ranges of sizes in Python: one verdict for all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from onnx import parser

import ranum_falsify as rf
from ranum_falsify.api.sizes import UNREAD, ask_each, list_sizes
from ranum_falsify.verify.search.result import Answer

GROWING = """<ir_version: 8, opset_import: ["" : 17]>
g (float[seq, 2] x) => (float[seq, 2] y) <int64[1] first = {0}, float limit = {LIMIT}> {
  s = Shape(x) n = Gather(s, first) f = Cast<to = 1>(n) d = Sub(limit, f) m = Mul(x, d) [root] y = Sqrt(m)
}"""


def _check(limit: float, sizes: range) -> rf.Result:
    model = parser.parse_model(GROWING.replace("LIMIT", str(limit)))
    return rf.check(model, box=(0, 1), dims={"seq": sizes}, n_starts=10, self_check=False)


def test_all_sizes_hold() -> None:
    result = _check(9.5, range(1, 5))
    assert result.verdict == "holds"
    assert [(one.dims, one.verdict) for one in result.answer.sizes] == [({"seq": n}, "holds") for n in range(1, 5)]


def test_one_size_that_fails_decides_and_is_that_of_the_counterexample() -> None:
    result = _check(3.5, range(1, 5))
    assert result.verdict == "violated" and result.counterexample is not None
    assert result.counterexample["x"].shape == (4, 2)
    assert "violated with seq = 4" in result.report()


def test_an_empty_range_is_an_error() -> None:
    with pytest.raises(rf.errors.UsageError, match="'seq' has an empty range"):
        _check(9.5, range(4, 4))


def test_time_that_others_leave_goes_to_those_that_had_too_little() -> None:
    asked: list[tuple[int, float]] = []

    def ask(one: Mapping[str, int], share: float | None) -> Answer:
        """Takes 0.2 seconds at size 1, and none at the others."""
        assert share is not None
        asked.append((one["seq"], share))
        if one["seq"] == 1 and share < 0.2:
            return UNREAD
        return Answer(verdict="holds")

    sizes = list_sizes({"seq": range(1, 65)})
    answers = ask_each(sizes, 6.0, ask, lambda answer: answer)
    assert {answer.verdict for answer in answers} == {"holds"} and len(answers) == len(sizes)
    assert [one for one, _ in asked].count(1) == 2 and asked[-1][1] > 5


def test_no_size_is_asked_again_without_time() -> None:
    def ask(one: Mapping[str, int], share: float | None) -> Answer:
        time.sleep(share or 0)
        return UNREAD

    began = time.monotonic()
    answers = ask_each(list_sizes({"seq": range(1, 5)}), 0.4, ask, lambda answer: answer)
    assert [answer.verdict for answer in answers] == ["unknown"] * 4
    assert time.monotonic() - began < 10


@pytest.mark.slow
def test_the_first_size_of_many_is_not_short_of_time() -> None:
    model = parser.parse_model(GROWING.replace("LIMIT", "99.5"))
    result = rf.check(model, box=(0, 1), dims={"seq": range(1, 65)}, timeout=20)
    assert result.verdict == "holds"
