"""Kernels may write over operands that nothing else reads: results between other operators lie in bounds, too."""

from __future__ import annotations

import numpy as np
import pytest

from tests.domain.soundness import Subject, faults_in
from tests.operators.harness import OperatorCase, model_of
from tests.operators.test_operators import CASES
from tests.verify.prove.planting import surround

FIRST = {case.domain + case.op_type: case for case in reversed(CASES)}
"""A case of each operator."""


def faults_of(case: OperatorCase) -> list[str]:
    """Return what is unsound of an operator between products, at one point."""
    try:
        model, feeds = model_of(case, case.arrays(0))
        subject = Subject(surround(model, feeds))
    except Exception:  # ONNX Runtime, or the reader, refuses such a model
        return []
    finite = {name: np.nan_to_num(x) if x.dtype.kind == "f" else x for name, x in feeds.items()}
    return faults_in(subject, (finite, finite), samples=1, rounds=0, rng=np.random.default_rng(0)).faults


def test_a_case_of_each_operator() -> None:
    faults = [fault for case in FIRST.values() for fault in faults_of(case)]
    assert not faults, "\n".join(faults)


@pytest.mark.slow
def test_all_cases() -> None:
    faults = [fault for case in CASES for fault in faults_of(case)]
    assert not faults, "\n".join(faults)
