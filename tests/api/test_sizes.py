"""Ranges of sizes in Python: one verdict for all of them."""

from __future__ import annotations

import pytest
from onnx import parser

import ranum_falsify as rf

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
    assert [(one.sizes, one.verdict) for one in result.answer.sizes] == [({"seq": n}, "holds") for n in range(1, 5)]


def test_one_size_that_fails_decides_and_is_that_of_the_counterexample() -> None:
    result = _check(3.5, range(1, 5))
    assert result.verdict == "violated" and result.counterexample is not None
    assert result.counterexample["x"].shape == (4, 2)
    assert "violated with seq = 4" in result.report()


def test_an_empty_range_is_an_error() -> None:
    with pytest.raises(rf.errors.UsageError, match="'seq' has an empty range"):
        _check(9.5, range(4, 4))
