"""Every rule encloses what the runtimes compute; `scripts/sweep_domain.py` runs the same on many more samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ranum_falsify.domain import Interval
from ranum_falsify.network import list_supported, registry
from ranum_falsify.validity import AtLeast, Constraint
from tests.domain import boxes
from tests.domain.boxes import Recipe
from tests.domain.search import Search
from tests.domain.soundness import Subject, check_case, retyped, sweep_case
from tests.network.building import parse
from tests.operators.harness import OperatorCase, Spread
from tests.operators.test_operators import CASES

BY_ROW = {
    "::".join(filter(None, (spec.domain, spec.op_type))): [
        case for case in CASES if (case.op_type, case.domain) == (spec.op_type, spec.domain)
    ]
    for spec in list_supported()
}
RECIPES = st.builds(
    Recipe,
    centre=st.sampled_from(boxes.CENTRES),
    width=st.sampled_from(boxes.WIDTHS),
    side=st.sampled_from(boxes.SIDES),
    uniform=st.booleans(),
    alike=st.booleans(),
    mask=st.sampled_from(("none", *boxes.MASKS)),
)


@pytest.mark.few(90)
@pytest.mark.parametrize("op_type", sorted(BY_ROW))
def test_rule_encloses_what_runtimes_compute(op_type: str) -> None:
    cases = BY_ROW[op_type]
    for number in range(3):
        check_case(cases[number * len(cases) // 3], seed=number, samples=8)


@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    cases=st.sampled_from(sorted(BY_ROW)),
    number=st.integers(0, 10_000),
    dtype=st.sampled_from((None, None, np.float64, np.float16, ml_dtypes.bfloat16)),
    recipes=st.lists(RECIPES, min_size=1, max_size=3),
    seed=st.integers(0, 2**31),
)
def test_rule_encloses_in_hard_boxes(cases: str, number: int, dtype: Any, recipes: list[Recipe], seed: int) -> None:
    case = BY_ROW[cases][number % len(BY_ROW[cases])]
    other = case if dtype is None else retyped(case, dtype) or case
    tally = sweep_case(other, seed=seed, given=recipes, samples=8)
    assert not tally.faults, "\n".join(tally.faults)


# the checker finds what is unsound -------------------------------------------------------------------------------


def _with(monkeypatch: pytest.MonkeyPatch, op_type: str, **changes: Any) -> None:
    """Replace parts of a row."""
    for key, spec in list(registry._ROWS.items()):
        if key == ("", op_type):
            changed = replace(spec, **changes)
            monkeypatch.setitem(registry._ROWS, key, changed)
            monkeypatch.setitem(registry._BY_NODE, spec.node, changed)


def _row_of(op_type: str) -> registry.OperatorSpec:
    spec = registry.find(op_type, "")
    assert spec is not None
    return spec


def _spoilt(op_type: str, spoil: Callable[[Interval], Interval]) -> Callable[..., Any]:
    rule = _row_of(op_type).interval
    assert rule is not None

    def spoilt(site: Any, *operands: Any) -> Any:
        return spoil(rule(site, *operands))

    return spoilt


def _ulp_less(y: Interval) -> Interval:
    inner = torch.nextafter(y.upper, torch.full_like(y.upper, -torch.inf))
    return replace(y, upper=torch.maximum(y.lower, inner))


def _faults(op_type: str, seeds: int = 6, dtype: Any = np.float32) -> list[str]:
    inputs = [Spread((3, 4), dtype)] * len(_row_of(op_type).operands)
    case = OperatorCase(op_type=op_type, inputs=inputs, opset=21)
    return [fault for seed in range(seeds) for fault in sweep_case(case, seed=seed, boxes=2).faults]


@pytest.mark.few(1)
@pytest.mark.parametrize("op_type", ["Add", "Relu", "Neg", "Sub"])
def test_bound_that_is_one_ulp_too_tight_is_found(op_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _faults(op_type)
    _with(monkeypatch, op_type, interval=_spoilt(op_type, _ulp_less))
    assert any("outside" in fault for fault in _faults(op_type))


def test_false_proof_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(AtLeast):
        def holds(self, op: Any, operands: Any) -> bool:
            return True

    _with(monkeypatch, "Sqrt", valid=(Careless("x", 0.0, "root of a negative number"),), overflow=False)
    found = _faults("Sqrt")
    assert any("said to hold" in fault for fault in found) or any("proved" in fault for fault in found)


def test_false_proof_of_a_derivative_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(AtLeast):
        def holds(self, op: Any, operands: Any) -> bool:
            return True

    careless: tuple[Constraint, ...] = (Careless("x", 0.5, "derivative"),)
    _with(monkeypatch, "Relu", gradient_valid=careless)
    assert any("(gradient)" in fault for fault in _faults("Relu"))


def test_wrong_shape_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(site: Any, x: Interval) -> Interval:
        return Interval(x.lower[:1], x.upper[:1], (1, *x.shape[1:]))

    _with(monkeypatch, "Relu", interval=rule)
    found = _faults("Relu")
    assert any("no bounds" in fault for fault in found), found


def test_rule_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(site: Any, x: Interval) -> Interval:
        raise ZeroDivisionError

    _with(monkeypatch, "Relu", interval=rule)
    assert any("ZeroDivisionError" in fault for fault in _faults("Relu"))


@pytest.mark.parametrize(("point", "faults"), [([0.1, 0.2, -0.29999998], 0), ([1.0, 1.0, 1.0], 1)])
def test_optimised_runs_count_where_rounding_breaks_nothing(point: list[float], faults: int) -> None:
    """Fused kernels may round a sum to the 0 whose reciprocal is infinite, although every other run stays clear."""
    text = "g (float[3] x) => (float y) { t = ReduceSum<keepdims = 0>(x) y = Reciprocal(t) }"
    subject = Subject(parse(text))
    bounds = {"x": np.full(3, -1, np.float32)}, {"x": np.full(3, 1, np.float32)}
    subject.runtimes["onnxruntime-optimised"] = lambda feeds: {"y": np.array(np.inf, np.float32)}
    search = Search(subject, subject.analyse(*bounds), *bounds, np.random.default_rng(0))
    search.run({"x": np.array(point, np.float32)})
    assert search.tally.runs["onnxruntime"] == 1
    assert len(search.tally.faults) == faults, search.tally.faults


def test_every_row_is_run() -> None:
    assert all(BY_ROW.values())
