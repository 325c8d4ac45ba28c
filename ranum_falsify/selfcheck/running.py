"""One-operator models in ONNX Runtime and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
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
from ranum_falsify.network import read, spec_of
from ranum_falsify.network.evaluate import apply
from ranum_falsify.network.tensors import to_numpy, to_torch
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
