"""Which entries of the measured table a row names: those that its bounds ask for, and that were measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import torch

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.kernels import envelope, families
from ranum_falsify.network import OperatorSpec, find, list_supported, read
from ranum_falsify.network.tensors import torch_dtype
from tests.operators import harness
from tests.operators.test_operators import CASES

MEASURED = {function for record in families() for function in record.rows}


@contextmanager
def asked() -> Iterator[set[str]]:
    """Collect the functions whose envelopes are asked for."""
    found: set[str] = set()
    code = envelope.__code__

    def see(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is code:
            found.add(frame.f_locals["function"])

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield found
    finally:
        sys.setprofile(before)


def kernels_of(spec: OperatorSpec) -> set[str]:
    """Return the functions that the bounds of a row's cases ask for, an activation's aside."""
    found: set[str] = set()
    for case in CASES:
        if case.spec is spec:
            graph = read(harness.model_of(case, case.arrays())[0])
            boxes = [
                Interval.fill(0, 1, tuple(details.shape), torch_dtype(details.dtype)) for details in graph.input_details
            ]
            with torch.no_grad(), asked() as names:
                IntervalAnalysis(graph).run(boxes)
            part = find(case.attributes.get("activation", ""), "")
            found |= names.difference(part.kernel if part else ())
    return found


@pytest.mark.few(90)
@pytest.mark.parametrize("spec", [pytest.param(s, id=f"{s.domain}{s.op_type}") for s in list_supported()])
def test_a_row_names_the_kernels_that_its_bounds_rest_on(spec: OperatorSpec) -> None:
    assert set(spec.kernel) == kernels_of(spec)


@pytest.mark.parametrize("spec", [pytest.param(s, id=s.op_type) for s in list_supported() if s.kernel])
def test_kernels_of_a_row_were_measured(spec: OperatorSpec) -> None:
    assert set(spec.kernel) <= MEASURED
