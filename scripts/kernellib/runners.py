"""One-operator models in ONNX Runtime and PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch import Tensor

import ranum_falsify.operators  # noqa: F401 - fills the registry
from kernellib.functions import Function
from ranum_falsify.network import read, spec_of
from ranum_falsify.network.evaluate import apply
from ranum_falsify.network.tensors import to_numpy, to_torch

__all__ = ["ELEMENT_TYPES", "Run", "runners"]

Run = Callable[[Tensor], Tensor]
"""Evaluates a kernel on a tensor."""

ELEMENT_TYPES = {
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
    torch.float32: TensorProto.FLOAT,
    torch.float64: TensorProto.DOUBLE,
}


def _model(function: Function, dtype: torch.dtype, rank: int) -> onnx.ModelProto:
    element = ELEMENT_TYPES[dtype]
    inputs, constants = ["x"], []
    if function.exponent is not None:
        inputs.append("y")
        constants.append(helper.make_tensor("y", element, [], [function.exponent]))
    node = helper.make_node(function.operator, inputs, ["z"], **function.attributes)
    ends = [helper.make_tensor_value_info(name, element, ["m", "n"][-rank:]) for name in ("x", "z")]
    graph = helper.make_graph([node], "kernel", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", function.opset)], ir_version=10)


def runners(function: Function, dtype: torch.dtype, *, rank: int = 1) -> dict[str, dict[str, Run]]:
    """Return the ways to run a function: by runtime, then by name; a runtime that cannot is left out."""
    model = _model(function, dtype, rank)
    found: dict[str, dict[str, Run]] = {}
    levels = onnxruntime.GraphOptimizationLevel
    try:
        found["onnxruntime"] = {
            "plain": _session(model, levels.ORT_DISABLE_ALL),
            "optimised": _session(model, levels.ORT_ENABLE_ALL),
        }
    except Exception:  # ONNX Runtime has no kernel for this type, and names no class for that
        pass
    op = read(model).nodes[0]
    spec = spec_of(op)
    rest = [to_torch(y) for y in spec.operands_of(op)[1:]]

    def contiguous(x: Tensor) -> Tensor:
        return apply(spec, op, [x, *rest])[0]

    def strided(x: Tensor) -> Tensor:
        return contiguous(torch.stack([x, x], -1)[..., 0])

    try:
        contiguous(torch.ones((3,) * rank, dtype=dtype))
    except RuntimeError:  # PyTorch has no kernel for this type
        return found
    return found | {"torch": {"plain": contiguous, "strided": strided}}


def _session(model: onnx.ModelProto, level: onnxruntime.GraphOptimizationLevel) -> Run:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: to_torch(session.run(None, {"x": to_numpy(x)})[0])
