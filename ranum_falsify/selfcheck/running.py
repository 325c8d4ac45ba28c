"""One-operator models in ONNX Runtime and PyTorch, and what they show of all kernels of a library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch import Tensor

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.config import CUDA, Runtime, library_of
from ranum_falsify.domain.error_bounds import reach_of_updates, unit
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import read, spec_of
from ranum_falsify.network.evaluate import apply
from ranum_falsify.network.tensors import to_numpy, to_torch, torch_dtype
from ranum_falsify.selfcheck.subjects import Subject

Array = np.ndarray[Any, np.dtype[Any]]

Session = Callable[[Array], Array]
"""Runs a model of one input, x, and one output."""

SessionOf = Callable[[bytes, bool], Session]
"""Loads a model.  The flag asks for the other way to run it: in ONNX Runtime the optimised one, in PyTorch that of an
operand that is not contiguous."""

Run = Callable[[Tensor], Tensor]
"""Evaluates a kernel on a tensor."""

Ways = dict[str, Run]
"""The ways to run a kernel, by name."""

ELEMENT_TYPES = {
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
    torch.float32: TensorProto.FLOAT,
    torch.float64: TensorProto.DOUBLE,
}


def native(model: bytes, optimised: bool) -> Session:
    """Load a model in ONNX Runtime, in this process."""
    levels, options = onnxruntime.GraphOptimizationLevel, onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda x: np.asarray(session.run(None, {"x": x})[0])


def native_torch(model: bytes, strided: bool, device: str = "cpu") -> Session:
    """Load a model of one node as its PyTorch form, in this process; `strided` operands are not contiguous.

    Raises:
        RuntimeError: PyTorch has no kernel for the type.
        RanumFalsifyError: The operator has no PyTorch form, or is ONNX Runtime's alone.
    """
    proto = onnx.load_from_string(model)
    op = read(proto).nodes[0]
    spec = spec_of(op)
    rest = [None if y is None else to_torch(y).to(device) for y in spec.operands_of(op)[1:]]

    def run(x: Array) -> Array:
        operand = to_torch(x).to(device)
        if strided:
            operand = torch.stack([operand, operand], -1)[..., 0]
        return to_numpy(apply(spec, op, [operand, *rest])[0].cpu())

    (of,) = (x.type.tensor_type for x in proto.graph.input)
    sizes = [dim.dim_value or 3 for dim in of.shape.dim]
    run(np.ones(sizes, onnx.helper.tensor_dtype_to_np_dtype(of.elem_type)))  # it may have no kernel for the type
    return run


def session_in(runtime: Runtime) -> SessionOf:
    """Return how to load models in a runtime, in this process."""
    if library_of(runtime) != "torch":
        return native
    return partial(native_torch, device="cuda") if runtime == CUDA else native_torch


def _model(subject: Subject, dtype: torch.dtype, rank: int) -> onnx.ModelProto:
    element = ELEMENT_TYPES[dtype]
    inputs, constants = ["x"], []
    if subject.exponent is not None:
        inputs.append("y")
        constants.append(helper.make_tensor("y", element, [], [subject.exponent]))
    node = helper.make_node(subject.operator, inputs, ["z"], domain=subject.op_domain, **subject.attributes)
    ends = [helper.make_tensor_value_info(name, element, ["m", "n"][-rank:]) for name in ("x", "z")]
    graph = helper.make_graph([node], "kernel", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", subject.opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets if subject.op_domain else opsets[:1], ir_version=10)


def ways_to_run(
    subject: Subject, dtype: torch.dtype, runtime: str, *, rank: int = 1, session_of: SessionOf | None = None
) -> Ways:
    """Return the ways to run a function in a runtime, in this process if no other way to load a model is given.

    There are none if the runtime has no kernel for the type.
    """
    is_torch = library_of(runtime) == "torch"
    if is_torch and subject.op_domain:
        return {}
    data = _model(subject, dtype, rank).SerializeToString()
    load = session_of or session_in(runtime)
    try:
        plain, other = load(data, False), load(data, True)
    except Exception:  # neither library names a class for a type without a kernel
        return {}
    return {"plain": _run(plain), "strided" if is_torch else "optimised": _run(other)}


def _run(session: Session) -> Run:
    return lambda x: to_torch(session(to_numpy(x)))


# how all kernels round normalisations, and sums of products in half precision -----------------------------------------

_LENGTHS = (3, 7, 8, 9, 16, 17, 64, 257)
_ROWS = 300
_EPSILON = 1e-12
_SLACK = 1.01
"""Room for the roundings of a quotient."""


def updates_statistics(session_of: SessionOf) -> bool:
    """Tell whether float32 rows are normalised as in two passes, or by Welford's updates of one number after another.

    Rows of nearly equal numbers, on which any other way of computing the variance gives greater results.
    """
    rng = np.random.default_rng(0)
    return all(_stays(op_type, n, session_of, rng) for op_type in ("LayerNormalization", "Skip") for n in _LENGTHS)


def _stays(op_type: str, n: int, session_of: SessionOf, rng: np.random.Generator) -> bool:
    g = ModelBuilder("statistics", opset=17, domains={"com.microsoft": 1}, ir_version=8)
    x, scale, bias = g.input("x", (_ROWS, n)), np.ones(n, np.float32), np.zeros(n, np.float32)
    if op_type == "Skip":
        skip, domain = np.zeros((_ROWS, n), np.float32), "com.microsoft"
        y = g.node("SkipLayerNormalization", x, skip, scale, bias, domain=domain, epsilon=_EPSILON)
    else:
        y = g.node(op_type, x, scale, bias, epsilon=_EPSILON)
    g.output(y, (_ROWS, n))
    model: bytes = g.build().SerializeToString()
    rows = draw_nearly_equal(n, _ROWS, rng)
    size = torch.from_numpy(np.abs(rows).max(-1, keepdims=True))
    limit = reach_of_updates(n, size, _EPSILON).numpy()[:, [0, *[1] * (n - 1)]]
    try:
        found = [session_of(model, other)(rows) for other in (False, True)]
    except Exception:  # the library has no such kernel, and names no class for that
        return False
    return all(bool((np.abs(y) <= _SLACK * limit).all()) for y in found)


def draw_nearly_equal(n: int, count: int, rng: np.random.Generator) -> Array:
    """Return rows `(count, n)` in float32 of numbers that are a few spacings apart, most of them equal."""
    base = (10 ** rng.uniform(-3, 7, (count, 1)) * rng.choice([-1, 1], (count, 1))).astype(np.float32)
    steps = rng.integers(-3, 4, (count, n)) * rng.choice([1, 1, 16, 1000], (count, 1))
    moved = rng.random((count, n)) < rng.random((count, 1))
    rows: Array = (base + np.spacing(np.abs(base)) * np.where(moved, steps, 0)).astype(np.float32)
    return rows


_SHAPES = {"MatMul": ((8, 512), (512, 64)), "Conv": ((2, 64, 12, 12), (32, 64, 3, 3))}
_EXACT: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "MatMul": torch.matmul,
    "Conv": torch.nn.functional.conv2d,
}


def rounds_half_sums(session_of: SessionOf) -> bool:
    """Tell whether a library rounds sums of products in half precision on the way, in some kernel.

    Sums that are rounded once stray by half a unit in the last place at most.
    """
    return any(_strays(op_type, dtype, session_of) for op_type in _SHAPES for dtype in ("float16", "bfloat16"))


def _strays(op_type: str, dtype: str, session_of: SessionOf) -> bool:
    rng = np.random.default_rng(0)
    of = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(dtype.upper()))
    x, w = (rng.uniform(0, 1, shape).astype(of) for shape in _SHAPES[op_type])
    exact = _EXACT[op_type](*(torch.from_numpy(a.astype(np.float64)) for a in (x, w))).numpy()
    g = ModelBuilder("products", opset=22, ir_version=10)
    g.output(g.node(op_type, g.input("x", list(x.shape), dtype=dtype), g.constant(w)), list(exact.shape), dtype)
    model: bytes = g.build().SerializeToString()
    try:
        found = np.stack([session_of(model, other)(x).astype(np.float64) for other in (False, True)])
    except Exception:  # the library has no kernel for the type, and names no class for that
        return False
    return bool((abs(found - exact) > 1.25 * unit(torch_dtype(x.dtype)) * exact).any())
