"""Bounds of integers near the ends of their types, which kernels round, misorder, cut or wrap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.domain.boxes import Array
from tests.domain.search import faults_in
from tests.domain.subjects import Subject
from tests.network.building import parse

WORD = {kind: getattr(np, kind) for kind in ("int8", "uint8", "int32", "uint32", "int64", "uint64")}
# Where float32 and float64 begin to round, halves of words begin, and squares leave the type.
LANDMARKS = (0, 2**24, 2**31, 2**32, 2**53, 2**62, 2**63, 2**64)

NODES = {
    "int64": [
        "y = Sign(x)",
        "y = Max(x, z)",
        "y = Min(x, z)",
        "y = ReduceMax<axes = [0], keepdims = 0>(x)",
        "y = ReduceMin<axes = [1], keepdims = 1>(x)",
        "i = Constant<value_int = 1>() r = Gather(x, i) e = Gather(r, i) y = ReduceMean(e)",
        "a = Constant<value = int64[0] {}>() y = ReduceSum<noop_with_empty_axes = 1>(x, a)",
        "y = ReduceL1<axes = [0, 1]>(x)",
        "y = Mod<fmod = 1>(x, z)",
        "y = Mod(x, z)",
        "y = Clip(x, lowest)",
        "y = Abs(x)",
        "y = CumSum(x, axis)",
    ],
    "uint64": ["y = Sign(x)", "y = Max(x, z)", "y = Mod<fmod = 1>(x, z)"],
    "int32": [
        "y = ReduceL1<axes = [0]>(x)",
        "y = Gemm<alpha = 2.0>(x, z)",
        's = Constant<value_floats = [2.0, 2.0]>() y = Resize<mode = "linear">(x, , s)',
    ],
    "int8": ["y = Div(x, z)", "y = Mod(x, z)"],
    "uint32": ["y = Mod<fmod = 1>(x, z)"],
}


def numbers(dtype: Any, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Array, Array]:
    """Return bounds near landmarks of a type, in Python's integers clipped to it."""
    limits = np.iinfo(dtype)
    count = int(np.prod(shape))
    centre = rng.choice(np.array(LANDMARKS, object), count) * rng.choice(np.array([-1, 1], object), count)
    low = centre + rng.integers(-3, 2, count).astype(object)
    high = low + rng.choice(np.array([0, 4, 2**31, 2**40], object), count)
    ends = (np.clip(end, int(limits.min) + (limits.bits > 16), int(limits.max)) for end in (low, high))
    lower, upper = (np.asarray(end).astype(dtype).reshape(shape) for end in ends)
    return lower, upper


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("kind", "node"), [(kind, node) for kind, nodes in NODES.items() for node in nodes], ids=lambda value: value[:40]
)
def test_bounds_enclose_integers_that_kernels_do_not_take_as_they_are(kind: str, node: str) -> None:
    inputs = f"{kind}[4, 4] x" + (f", {kind}[4, 4] z" if "z)" in node else "")
    inputs += f", {kind} lowest" if "lowest" in node else ""
    constant = "axis = Constant<value_int = 1>() " if "axis)" in node else ""
    subject = Subject(parse(f"g ({inputs}) => ({kind} y) {{ {constant}{node} }}"))
    rng = np.random.default_rng(7)
    for _ in range(20):
        boxes = {
            name: numbers(WORD[kind], () if name == "lowest" else (4, 4), rng) for name in subject.graph.input_names
        }
        lower, upper = ({name: box[end] for name, box in boxes.items()} for end in (0, 1))
        tally = faults_in(subject, (lower, upper), samples=6, rounds=0, rng=rng)
        assert not tally.faults, tally.faults[:2]
        assert tally.samples or "Resize" in node or "Mod" in node or "Div" in node
