"""One-operator models in ONNX Runtime and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch import Tensor

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.config import CUDA, library_of
from ranum_falsify.network import read, spec_of
from ranum_falsify.network.evaluate import apply
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.selfcheck.subjects import Subject

Array = np.ndarray[Any, np.dtype[Any]]

Session = Callable[[Array], Array]
"""Runs a model of one input, x, and one output."""

SessionOf = Callable[[bytes, bool], Session]
"""Loads a model in ONNX Runtime; the flag tells whether to optimise it."""

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
    """Load a model in this process."""
    levels, options = onnxruntime.GraphOptimizationLevel, onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda x: np.asarray(session.run(None, {"x": x})[0])


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
    subject: Subject, dtype: torch.dtype, runtime: str, *, rank: int = 1, session_of: SessionOf = native
) -> Ways:
    """Return the ways to run a function in a runtime; none, if the runtime has no kernel for the type.

    Args:
        subject: The function.
        dtype: Element type of the operand.
        runtime: `onnxruntime`, `torch` or `torch-cuda`.
        rank: Number of axes of the operand.
        session_of: How to load a model in ONNX Runtime.
    """
    model = _model(subject, dtype, rank)
    is_torch = library_of(runtime) == "torch"
    device = torch.device("cuda" if runtime == CUDA else "cpu")
    return _of_torch(subject, dtype, model, rank, device) if is_torch else _of_onnxruntime(model, session_of)


def _of_onnxruntime(model: onnx.ModelProto, session_of: SessionOf) -> Ways:
    data = model.SerializeToString()
    try:
        return {"plain": _run(session_of(data, False)), "optimised": _run(session_of(data, True))}
    except Exception:  # ONNX Runtime has no kernel for this type, and names no class for that
        return {}


def _run(session: Session) -> Run:
    return lambda x: to_torch(session(to_numpy(x)))


def _of_torch(subject: Subject, dtype: torch.dtype, model: onnx.ModelProto, rank: int, device: torch.device) -> Ways:
    if subject.op_domain:
        return {}
    op = read(model).nodes[0]
    spec = spec_of(op)
    rest = [to_torch(y).to(device) for y in spec.operands_of(op)[1:]]

    def contiguous(x: Tensor) -> Tensor:
        return apply(spec, op, [x.to(device), *rest])[0].cpu()

    def strided(x: Tensor) -> Tensor:
        return contiguous(torch.stack([x.to(device), x.to(device)], -1)[..., 0])

    try:
        contiguous(torch.ones((3,) * rank, dtype=dtype))
    except RuntimeError:  # PyTorch has no kernel for this type
        return {}
    return {"plain": contiguous, "strided": strided}
