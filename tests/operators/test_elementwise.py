"""Which operators work element by element: their results move with their operands; in others, elements meet."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ranum_falsify.network import OperatorSpec, list_supported, read, spec_of
from tests.operators import harness
from tests.operators.harness import OperatorCase
from tests.operators.test_operators import CASES

Arrays = list[np.ndarray | None]

# Rows of whose cases no element changes another one of the result, and why they are not elementwise all the same.
ALIKE: dict[str, str] = {
    "CastLike": "its second operand has any shape",
    "Concat": "a case has a single operand, which is the result",
    "DequantizeLinear": "scales lie along an axis, which is no broadcasting",
    "Imputer": "what is filled in may differ from column to column",
    "EyeLike": "it reads no element at all, but what it gives depends on the place",
    "QuantizeLinear": "scales lie along an axis, which is no broadcasting",
    "Scaler": "offsets and scales may differ from column to column",
}


def in_a_row(arrays: Arrays) -> Arrays | None:
    """Return operands as vectors of one length, and numbers; None where they have no common shape."""
    shapes = [a.shape for a in arrays if a is not None and a.size > 1]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        return None
    return [a if a is None else a.reshape(()) if a.size == 1 else np.broadcast_to(a, shape).reshape(-1) for a in arrays]


def moved(arrays: Arrays, order: np.ndarray) -> Arrays:
    return [a if a is None or a.size == 1 else a[order] for a in arrays]


def result(case: OperatorCase, arrays: Arrays) -> np.ndarray | None:
    """Return the first output; None where it differs between runs."""
    model, feeds = harness.model_of(dataclasses.replace(case, inputs=arrays), arrays)
    graph = read(model)
    if any(spec_of(op).is_random(op) for op in graph.nodes):
        return None
    output: np.ndarray = graph(*feeds.values(), squeeze=False)[0]
    return output


def both_ways(case: OperatorCase) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the results of moved operands, and the moved results; None where that cannot be asked."""
    arrays = in_a_row(case.arrays())
    if arrays is None or all(a is None or a.size == 1 for a in arrays):
        return None
    order = np.random.default_rng(1).permutation(max(a.size for a in arrays if a is not None))
    first, second = result(case, arrays), result(case, moved(arrays, order))
    if first is None or second is None or first.shape != order.shape:
        return None
    return second, first[order]


# Each case but one that draws.
MOVING = [case for case in CASES if case.spec.elementwise and case.name != "training"]


@pytest.mark.few(220)
@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in MOVING])
def test_results_of_elementwise_operators_move_with_their_operands(case: OperatorCase) -> None:
    found = both_ways(case)
    assert found is not None, "a case of a single element, or one that draws, shows nothing"
    harness.compare(*found, case.tolerance)


def is_local(case: OperatorCase) -> bool | None:
    """Tell whether an element of the operands changes no other of the result; None where that cannot be asked."""
    arrays = case.arrays()
    wide = [position for position, a in enumerate(arrays) if a is not None and a.size > 1]
    if len({arrays[position].shape for position in wide}) != 1 or case.spec.static:  # type: ignore[union-attr]
        return None
    first = result(case, arrays)
    for position in wide if first is not None else ():
        changed = list(arrays)
        changed[position] = other = np.array(arrays[position])
        other.flat[0] = other.flat[0] + 1 if other.dtype.kind != "b" else not other.flat[0]
        second = result(case, changed)
        if second is None or first is None or second.shape != other.shape:
            return False
        if not np.array_equal(first.flat[1:], second.flat[1:], equal_nan=first.dtype.kind == "f"):
            return False
    return None if first is None else True


@pytest.mark.parametrize("spec", [pytest.param(s, id=s.op_type) for s in list_supported() if not s.elementwise])
def test_elements_meet_in_other_operators(spec: OperatorSpec) -> None:
    known = [is_local(case) for case in CASES if case.spec is spec]
    assert (True in known and False not in known) == (spec.op_type in ALIKE)


def test_every_elementwise_row_is_checked() -> None:
    assert {(s.op_type, s.domain) for s in list_supported() if s.elementwise} <= {(c.op_type, c.domain) for c in MOVING}
