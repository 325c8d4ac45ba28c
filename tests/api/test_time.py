"""The timeout of the Python API: for reading, for turns of proof and search, for what comes after the verdict."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import ranum_falsify as rf
from ranum_falsify.api.timekeeper import TimeUp, time_limit

# |a|^2 |b|^2 is at least (a b)^2.
HARD = parser.parse_model("""
<ir_version: 10, opset_import: ["" : 21]>
g (float[8] x) => (float[1] y) <float c = {0.05}, int64[2] parts = {4, 4}> {
  a, b = Split(x, parts) p = ReduceSumSquare(a) q = ReduceSumSquare(b) m = Mul(a, b) t = ReduceSum(m)
  s = Mul(t, t) n = Mul(p, q) d = Sub(n, s) e = Add(d, c) [log] y = Log(e)
}
""")
SLACK = 20.0
"""Seconds that a busy machine may take longer."""


def _chain(count: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Add", [f"t{i}" if i else "x", "c"], [f"t{i + 1}"]) for i in range(count)]
    ends = [helper.make_tensor_value_info(name, 1, [4]) for name in ("x", f"t{count}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(np.ones(1, np.float32), "c")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_reading_ends_with_the_timeout() -> None:
    began = time.monotonic()
    result = rf.check(_chain(30_000), box=(0, 1), timeout=0.5)
    assert time.monotonic() - began < SLACK
    assert (result.verdict, result.answer.interrupted) == ("unknown", "timeout while reading")
    assert str(result).startswith("unknown (ended early: timeout while reading)")
    assert not result.operators and result.to_json()["assumptions"] is None
    with pytest.raises(rf.errors.UsageError, match=r"timeout=0\.5: was up before all was read"):
        result.explain("n")


class _Slow:
    """Something whose end takes longer than the time limit around it."""

    def __del__(self) -> None:
        _wait(1.0)


def _wait(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.001)


def test_an_alarm_that_python_drops_is_not_the_last() -> None:
    with pytest.raises(TimeUp), time_limit(0.2):
        _Slow()  # what the first alarm raises ends in `__del__`, where nobody can catch it
        _wait(SLACK)


@pytest.mark.slow
def test_rounds_go_on_while_nothing_is_decided() -> None:
    result = rf.check(HARD, box=(-3, 3), timeout=4, prove_timeout=0.2, self_check=False)
    assert (result.verdict, result.answer.interrupted) == ("unknown", "timeout")
    assert result.answer.starts > 300


def test_a_number_of_starts_is_one_round() -> None:
    began = time.monotonic()
    result = rf.check(HARD, box=(-3, 3), timeout=100, prove_timeout=0.2, n_starts=10, n_steps=5, self_check=False)
    assert (result.verdict, result.answer.interrupted) == ("unknown", "")
    assert time.monotonic() - began < SLACK


def test_nothing_goes_on_once_something_is_found() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y) { [log] y = Log(x) }""")
    began = time.monotonic()
    assert rf.check(model, box=(-1, 1), timeout=100, self_check=False).verdict == "violated"
    assert time.monotonic() - began < SLACK


def test_an_inner_limit_leaves_the_outer_one() -> None:
    with pytest.raises(TimeUp), time_limit(0.3):
        with time_limit(100):
            pass
        time.sleep(SLACK)


def test_an_inner_limit_cannot_be_longer() -> None:
    began = time.monotonic()
    with pytest.raises(TimeUp), time_limit(0.3), time_limit(100):
        time.sleep(SLACK)
    assert time.monotonic() - began < SLACK


def test_an_alarm_waits_for_a_module_that_is_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.4)\nprinting = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TimeUp), time_limit(0.1):
        importlib.import_module("slow_to_import")
        _wait(SLACK)
    assert sys.modules.pop("slow_to_import").printing == 1
