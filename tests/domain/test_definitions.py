"""Operators that ONNX Runtime computes by their definitions: proofs hold for what these give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.domain.soundness import Subject, Verdict, faults_in
from tests.network.building import Array, parse, run

KINDS: dict[str, Any] = {"float": np.float32, "double": np.float64, "float16": np.float16, "uint32": np.uint32}
BODIES = {"Softplus": "y = Softplus(x)", "ReduceLogSumExp": "y = ReduceLogSumExp(x)"}


def subject(op_type: str, kind: str, opset: int) -> Subject:
    return Subject(parse(f"g ({kind}[4] x) => ({kind}[n] y) {{ {BODIES[op_type]} }}", opset))


def verdict(op_type: str, kind: str, opset: int, low: float, high: float) -> Verdict:
    lower, upper = (np.full(4, end, KINDS[kind]) for end in (low, high))
    return subject(op_type, kind, opset).analyse({"x": lower}, {"x": upper})


def computed(op_type: str, kind: str, opset: int, x: float) -> Array:
    model = parse(f"g ({kind}[4] x) => ({kind}[n] y) {{ {BODIES[op_type]} }}", opset)
    return run(model, [np.full(4, x, KINDS[kind])])[0]


@pytest.mark.parametrize(
    ("op_type", "kind", "safe", "beyond"),
    [
        ("Softplus", "double", (-1e300, 709.7), 709.8),
        ("Softplus", "float16", (-60000, 88.6), 88.8),
        ("ReduceLogSumExp", "float16", (-690, 700), 710),
        ("ReduceLogSumExp", "float16", (-690, 700), -800),
    ],
)
def test_exponentials_that_overflow_at_opset_18_are_no_proof(
    op_type: str, kind: str, safe: tuple[float, float], beyond: float
) -> None:
    assert np.isinf(computed(op_type, kind, 18, beyond)).all()
    with_it = min(*safe, beyond), max(*safe, beyond)
    name = subject(op_type, kind, 18).places[0].op.name
    assert not verdict(op_type, kind, 18, *with_it).proves(name)
    assert verdict(op_type, kind, 18, *safe).proves(name)
    # At other opsets a kernel computes it, if anything does.
    assert verdict(op_type, kind, 21, *with_it).proves(name)
    assert verdict(op_type, "float", 18, *with_it).proves(name)


def test_finite_numbers_have_finite_results_at_the_end_of_the_range() -> None:
    most = float(np.finfo(np.float32).max)
    assert verdict("Softplus", "float", 18, 0.0, most).proves("Softplus_y")


@pytest.mark.parametrize(
    ("op_type", "kind"), [("Softplus", "double"), ("Softplus", "float16"), ("ReduceLogSumExp", "float16")]
)
@pytest.mark.parametrize(("low", "high"), [(-720.0, -700.0), (-760.0, -690.0), (700.0, 720.0), (80.0, 95.0)])
def test_bounds_enclose_what_definitions_give(op_type: str, kind: str, low: float, high: float) -> None:
    bounds = tuple({"x": np.full(4, end, KINDS[kind])} for end in (low, high))
    rng = np.random.default_rng(0)
    tally = faults_in(subject(op_type, kind, 18), (bounds[0], bounds[1]), samples=30, rounds=3, rng=rng)
    assert tally.runs["onnxruntime"] and not tally.faults, tally.faults


def test_logarithms_of_unsigned_sums_may_be_anything_beyond_what_a_double_holds() -> None:
    assert computed("ReduceLogSumExp", "uint32", 18, 800).item() < 700
    y = verdict("ReduceLogSumExp", "uint32", 18, 0, 800).bounds["y"]
    assert y is not None and y.extremes == (0, 2**32 - 1)


def test_an_infinite_first_number_leaves_a_sum_of_exponentials_without_reference() -> None:
    """ONNX Runtime takes off the largest number, or 0 where the first one is infinite."""
    x = np.array([[-np.inf, -200, -300, -250]], np.float32)
    model = parse("g (float[1, 4] x) => (float[1, 1] y) <int64[1] a = {1}> { y = ReduceLogSumExp(x, a) }", 18)
    assert run(model, [x])[0].item() == -np.inf
    y = Subject(model).analyse({"x": x}, {"x": x}).bounds["y"]
    assert y is not None and y.extremes[0] == -np.inf and y.extremes[1] >= -200
