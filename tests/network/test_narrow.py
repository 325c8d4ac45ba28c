"""Integers of 4 and 2 bits are read as integers of 8 bits with the same values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

import ranum_falsify as rf
from ranum_falsify.building import ModelBuilder, Tensor
from ranum_falsify.errors import UnsupportedTypeError
from ranum_falsify.network import read
from ranum_falsify.network.narrow import widen_integers
from tests.network.building import session

X = np.linspace(-40, 40, 32, dtype=np.float32).reshape(4, 8)
KINDS: dict[str, tuple[int, int, int]] = {
    "int4": (TensorProto.INT4, -8, 7),
    "uint4": (TensorProto.UINT4, 0, 15),
    "int2": (TensorProto.INT2, -2, 1),
    "uint2": (TensorProto.UINT2, 0, 3),
}
RUN = ("int4", "uint4")
"""Those that ONNX Runtime runs in every network here."""


def builder(kind: str = "int4") -> tuple[ModelBuilder, Tensor]:
    made = ModelBuilder(opset=21, ir_version=10) if kind in RUN else ModelBuilder(opset=25, ir_version=13)
    return made, made.input("x", X.shape)


def narrow(g: ModelBuilder, kind: str, values: Any, name: str) -> Tensor:
    return g.constant(np.asarray(values).astype(getattr(ml_dtypes, kind)), name)


def weights(kind: str) -> onnx.ModelProto:
    """Return a layer whose weights are stored in a narrow type."""
    g, x = builder(kind)
    _, least, greatest = KINDS[kind]
    w = narrow(g, kind, np.arange(32).reshape(8, 4) % (greatest - least + 1) + least, "w")
    zeros = narrow(g, kind, [1, 0, 1, 0], "zeros")
    g.output(x @ g.DequantizeLinear(w, np.full(4, 0.1, np.float32), zeros, axis=1), (4, 4))
    return g.build()


def activations(kind: str, *, zero: int | None = 1) -> onnx.ModelProto:
    """Return a model that quantises its input to a narrow type, and back."""
    g, x = builder(kind)
    number, *_ = KINDS[kind]
    if zero is None:
        q = g.QuantizeLinear(x, 2.5, output_dtype=number)
        g.output(g.DequantizeLinear(q, 2.5), X.shape)
    else:
        z = narrow(g, kind, zero, "zero")
        g.output(g.DequantizeLinear(g.QuantizeLinear(x, 2.5, z), 2.5, z), X.shape)
    return g.build()


@pytest.mark.parametrize("kind", RUN)
def test_weights_have_their_values(kind: str) -> None:
    model = weights(kind)
    (ours,) = read(model)(X, squeeze=False)
    np.testing.assert_allclose(ours, session(model).run(None, {"x": X})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zero", [1, None])
@pytest.mark.parametrize("kind", KINDS)
def test_quantisation_saturates_at_the_ends_of_the_narrow_type(kind: str, zero: int | None) -> None:
    model = activations(kind, zero=zero)
    (ours,) = read(model)(X, squeeze=False)
    _, least, greatest = KINDS[kind]
    assert (ours.min(), ours.max()) == (2.5 * (least - (zero or 0)), 2.5 * (greatest - (zero or 0)))
    if kind in RUN:
        np.testing.assert_array_equal(ours, session(model).run(None, {"x": X})[0])


@settings(max_examples=10, deadline=None)
@given(ends=st.tuples(*[st.floats(-30, 30, width=32)] * 2), kind=st.sampled_from(RUN), seed=st.integers(0, 2**32 - 1))
def test_bounds_hold_what_runtimes_compute(ends: tuple[float, float], kind: str, seed: int) -> None:
    low, high = min(ends), max(ends)
    model = activations(kind)
    result = rf.check(model, box=(low, high), n_starts=1)
    assert result.verdict == "holds"
    (bounds,) = [op.bounds["x"] for op in result.operators if op.op_type == "DequantizeLinear"]
    points = np.random.default_rng(seed).uniform(low, high, (20, *X.shape)).astype(np.float32).clip(low, high)
    levels = onnxruntime.GraphOptimizationLevel
    for level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        runner = onnxruntime.InferenceSession(model.SerializeToString(), options)
        for point in points:
            steps = runner.run(None, {"x": point})[0] / 2.5 + 1
            assert (bounds[0] <= steps).all() and (steps <= bounds[1]).all()


def test_hazards_behind_narrow_weights_are_found() -> None:
    model = weights("int4")
    model.graph.node.add(op_type="Reciprocal", input=[model.graph.output[0].name], output=["r"], name="r")
    model.graph.output[0].name = "r"
    assert rf.check(model, box=(-1, 1), timeout=60).verdict == "violated"


def test_other_models_stay_as_they_are() -> None:
    g, x = builder()
    g.output(g.DequantizeLinear(g.QuantizeLinear(x, 2.5, np.int8(0)), 2.5, np.int8(0)), X.shape)
    model = g.build()
    assert widen_integers(model) is model


def test_onnx_runtime_s_own_quantisation_saturates_too() -> None:
    model = activations("int4")
    for node in model.graph.node:
        node.domain = "com.microsoft"
    model.opset_import.add(domain="com.microsoft", version=1)
    (ours,) = read(model)(X, squeeze=False)
    np.testing.assert_array_equal(ours, session(model).run(None, {"x": X})[0])


def test_other_operators_of_other_domains_are_refused() -> None:
    model = weights("int4")
    model.graph.node[0].domain, model.graph.node[0].op_type = "com.microsoft", "Unpack"
    with pytest.raises(UnsupportedTypeError, match="reads 'w', which holds integers of fewer than 8 bits"):
        read(model)


def test_other_roundings_are_refused() -> None:
    g, x = builder()
    g.output(g.Cast(g.Cast(x, to=TensorProto.INT4, name="down"), to=TensorProto.FLOAT), X.shape)
    with pytest.raises(UnsupportedTypeError, match="node 'down' \\(Cast\\): only QuantizeLinear"):
        read(g.build())
