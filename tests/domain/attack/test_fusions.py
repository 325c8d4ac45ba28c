"""Where ONNX Runtime's optimiser changes what a model computes, nothing is proved that the default run contradicts.

`scripts/scan_fusions.py` compares many more models.
"""

from __future__ import annotations

import numpy as np
import pytest

from ranum_falsify.operators.rows.microsoft import products
from tests.domain.attack.fusions import compare, compare_at, inputs_of
from tests.network.building import parse

BESIDE_VECTOR = (
    "g (float[2,3] x) => (float[3] y) <float[2] v = {1, 2}> { t = Transpose<perm = [1, 0]>(x) y = MatMul(t, v) }"
)
"""ONNX Runtime ignores this transpose."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 320, 80))
def test_what_differs_is_open(first: int) -> None:
    seen = [(seed, compare(seed)) for seed in range(first, first + 80)]
    faults = {seed: found.difference.fault for seed, found in seen if found.difference and found.difference.fault}
    assert not faults
    assert sum(bool(found.runs) for _, found in seen) > 60


def test_what_differs_is_found_and_named() -> None:
    model = parse(BESIDE_VECTOR)
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    found = compare_at(model, inputs_of(feeds, np.random.default_rng(0)))
    if found.difference is None:
        pytest.skip("this version of ONNX Runtime transposes")
    assert (found.difference.kind, found.difference.fault) == ("values", "")
    assert found.difference.rewritten == "MatMul Transpose -> com.microsoft.FusedMatMul"


def test_what_is_proved_although_it_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_turn_first", lambda x, op, rank: x.mT if op.transpose_a else x)
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    found = compare_at(parse(BESIDE_VECTOR), inputs_of(feeds, np.random.default_rng(0)))
    if found.difference is None:
        pytest.skip("this version of ONNX Runtime transposes")
    assert found.difference.fault.startswith("y is (3,) ")


def test_what_the_default_level_alone_refuses_is_a_difference_and_open() -> None:
    # The optimiser gives up on limits in double precision, which it means to fuse.
    text = "g (double[2] x) => (double[2] y) <double low = {0.5}> { r = Relu(x) y = Clip(r, low) }"
    found = compare_at(parse(text), inputs_of({"x": np.ones(2)}, np.random.default_rng(0)))
    if found.difference is None:
        pytest.skip("this version of ONNX Runtime loads it")
    assert (found.difference.kind, found.difference.fault) == ("refused", "")
    assert found.difference.rewritten.startswith("refused: relu_clip_fusion")
