"""Integers of 4 and 2 bits, and floats of 8 bits and fewer, are read as wider numbers with the same values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from onnx.reference.ops.op_cast import cast_to

import ranum_falsify as rf
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.rules.cast import convert_to_float
from ranum_falsify.errors import UnsupportedTypeError
from ranum_falsify.model_builder import ModelBuilder, Tensor
from ranum_falsify.network import read
from ranum_falsify.network.narrow import NARROW_FLOATS, widen_numbers
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
    assert widen_numbers(model) is model


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
    with pytest.raises(UnsupportedTypeError, match="reads 'w', whose element type is INT4; use DequantizeLinear"):
        read(model)


# conversions ----------------------------------------------------------------------------------------------------

FLOATS: dict[str, Any] = {
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}
HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
"""All numbers of half precision, NaN and infinities among them."""


def cast(to: int, source: Any = np.float32, shape: tuple[int, ...] = (8,), **attributes: Any) -> onnx.ModelProto:
    """Return a model that converts its input to a narrow type, and the result to float32."""
    newest = to not in {TensorProto.DataType.Value(name) for name in FLOATS}
    g = ModelBuilder(opset=25, ir_version=13) if newest else ModelBuilder(opset=19, ir_version=9)
    x = g.input("x", shape, dtype=np.dtype(source).name)
    g.output(g.Cast(g.Cast(x, to=to, name="down", **attributes), to=TensorProto.FLOAT), shape)
    return g.build()


def bound(model: onnx.ModelProto, *ends: Any) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return bounds of the output over a box, and whether an operator may make NaN or infinity."""
    marks = list[bool]()
    (y,) = IntervalAnalysis(read(model)).run(
        [Interval.box(*(np.asarray(end) for end in ends))],
        lambda visited: marks.extend(out.nan or out.overflows for out in visited.outputs),
    )
    assert y is not None
    low, high = (end.double().numpy() for end in y.expand())
    return low, high, any(marks)


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("kind", FLOATS)
def test_floats_of_8_bits_are_rounded_as_the_standard_says(kind: str, saturate: int) -> None:
    ours = read(cast(getattr(TensorProto, kind), shape=HALVES.shape, saturate=saturate))(HALVES)
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = cast_to(HALVES, getattr(TensorProto, kind), bool(saturate)).astype(np.float32)
    np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_smaller_floats_saturate(name: str) -> None:
    kind = getattr(TensorProto, name.removesuffix("fn").replace("_", "").upper())
    x = torch.from_numpy(HALVES[np.isfinite(HALVES)])
    ours = convert_to_float(SimpleNamespace(saturate=None), x, NARROW_FLOATS[kind])
    np.testing.assert_array_equal(ours.numpy(), x.numpy().astype(getattr(ml_dtypes, name)).astype(np.float32))


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from([*FLOATS, "INT4", "UINT4", "INT2", "UINT2", "FLOAT8E8M0"]),
    source=st.sampled_from([np.float32, np.float16, np.float64, np.int32, np.int8]),
    saturate=st.sampled_from([0, 1]),
    scale=st.sampled_from([2.0**-12, 0.3, 4.0, 300.0, 7e4]),
    seed=st.integers(0, 2**32 - 1),
)
def test_bounds_hold_conversions(kind: str, source: Any, saturate: int, scale: float, seed: int) -> None:
    attributes = {"saturate": saturate} if "FLOAT" in kind else {}
    model = cast(getattr(TensorProto, kind), source, (40,), **attributes)
    limit = float(np.finfo(source).max if np.dtype(source).kind == "f" else np.iinfo(source).max)
    draws = np.random.default_rng(seed).normal(size=(4, 40)).round(1) * scale
    points = draws.clip(-limit, limit).astype(source)
    low, high, marked = bound(model, points.min(0), points.max(0))
    for optimised in (False, True):
        runner = session(model, optimised=optimised)
        for x in points:
            y = runner.run(None, {"x": x})[0].astype(np.float64)
            assert marked or np.isfinite(y).all()
            held = (low <= y) & (y <= high)
            assert held[np.isfinite(y)].all()


def test_overflow_in_8_bits_is_found() -> None:
    model = cast(TensorProto.FLOAT8E4M3FN, saturate=0)
    assert rf.check(model, box=(-464, 464), n_starts=1).verdict == "holds"
    result = rf.check(model, box=(-1000, 1000), n_starts=16)
    assert [op.verdict for op in result.operators if op.node == "down"] == ["violated"]
    assert rf.check(cast(TensorProto.FLOAT8E4M3FN), box=(-1000, 1000), n_starts=1).verdict == "holds"


def test_weights_of_8_bits_have_their_values() -> None:
    g, x = builder()
    w = np.linspace(-3, 3, 32).reshape(8, 4).astype(ml_dtypes.float8_e4m3fn)
    zero = g.constant(np.zeros(4, ml_dtypes.float8_e4m3fn), "zero")
    g.output(x @ g.DequantizeLinear(g.constant(w, "w"), np.full(4, 0.1, np.float32), zero, axis=1), (4, 4))
    model = g.build()
    np.testing.assert_allclose(read(model)(X), X @ (0.1 * w.astype(np.float32)), rtol=1e-5, atol=1e-5)
    assert rf.check(model, box=(-1, 1), n_starts=1).verdict == "holds"


@pytest.mark.parametrize(("opset", "axis"), [(19, 0), (19, -1), (23, 1)])
def test_quantisation_to_floats_of_8_bits(opset: int, axis: int) -> None:
    g = ModelBuilder(opset=opset, ir_version=9)
    x = g.input("x", X.shape)
    scale = np.linspace(0.01, 1, X.shape[axis], dtype=np.float32)
    zero = g.constant(np.zeros(len(scale), ml_dtypes.float8_e5m2), "zero")
    g.output(g.DequantizeLinear(g.QuantizeLinear(x, scale, zero, axis=axis), scale, zero, axis=axis), X.shape)
    model = g.build()
    theirs = session(model).run(None, {"x": X})[0]
    np.testing.assert_array_equal(read(model)(X), theirs)
    low, high, marked = bound(model, X, X)
    assert not marked and (low <= theirs).all() and (theirs <= high).all()


def test_a_zero_point_of_floats_is_zero() -> None:
    g, x = builder()
    one = g.constant(np.array(1, ml_dtypes.float8_e4m3fn), "one")
    g.output(g.Cast(g.QuantizeLinear(x, 0.5, one, name="q"), to=TensorProto.FLOAT), X.shape)
    with pytest.raises(
        UnsupportedTypeError, match="node 'q' \\(QuantizeLinear\\): its zero point is not the constant 0"
    ):
        read(g.build())


def test_infinity_saturates() -> None:
    g = ModelBuilder(opset=19, ir_version=9)
    x = g.input("x", (4,))
    hidden = g.Where(np.array([True, True, False, False]), x, np.float32(np.inf))
    y = g.Cast(g.Cast(hidden, to=TensorProto.FLOAT8E4M3FN), to=TensorProto.FLOAT)
    g.output(g.Log(g.Sub(np.float32(100), y), name="log"), (4,))
    result = rf.check(g.build(), box=(0, 1), n_starts=1)
    assert [op.verdict for op in result.operators if op.node == "log"] == ["violated"]


def test_bits_of_narrow_types_are_refused() -> None:
    g = ModelBuilder(opset=26, ir_version=13)
    x = g.input("x", (4,))
    down = g.Cast(x, to=TensorProto.FLOAT8E5M2)
    g.output(g.Cast(g.BitCast(down, to=TensorProto.INT8, name="bits"), to=TensorProto.FLOAT), (4,))
    with pytest.raises(UnsupportedTypeError, match=r"'bits' .* whose element type is FLOAT8E5M2"):
        read(g.build())
