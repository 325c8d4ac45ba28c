"""A second opinion on LSTM and GRU with a bias, where ONNX Runtime clips NaN away."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from .graph import Value


def find_hidden_nan(node: onnx.NodeProto, operands: Mapping[str, Value]) -> tuple[str, np.ndarray] | None:
    """Return the first output of an LSTM or GRU with a bias that holds NaN according to the reference evaluator.

    On ONNX Runtime, adding the bias clips to the finite range, and NaN becomes one of its ends. The other operators
    that swallow NaN cannot produce one.  The operands are known as far as the run got.
    """
    if len(node.input) < 4 or not node.input[3]:
        return None
    given = [operands.get(name) for name in node.input]
    if any(value is None for value in given[:4]):
        return None  # the run ended before this node
    if not _reference_agrees(node, given) or not _may_overflow(given):
        return None
    for name, value in zip((n for n in node.output if n), _reference(node, operands), strict=False):
        if np.isnan(value).any():
            return name, value
    return None


def _reference_agrees(node: onnx.NodeProto, operands: list[Value]) -> bool:
    """Tell whether the reference evaluator honours all attributes and inputs of an LSTM or GRU."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    names = [name.decode().lower() for name in attributes.get("activations", [])]
    # The activations that the reference evaluator computes, whatever the attribute says: 2 in a GRU, 3 in an LSTM.
    gates = operands[1].shape[1] // operands[2].shape[2]
    defaults = ["sigmoid", *["tanh"] * (gates - 2)]
    if names not in ([], defaults, 2 * defaults) or any(
        attributes.get(name) for name in ("clip", "input_forget", "activation_alpha", "activation_beta")
    ):
        return False
    steps = operands[0].shape[1 if attributes.get("layout") else 0]
    lengths = operands[4] if len(operands) > 4 else None
    return lengths is None or bool((np.asarray(lengths) == steps).all())


def _may_overflow(operands: list[Value]) -> bool:
    """Return False where no sum inside an LSTM or GRU can leave the finite range, so that NaN is impossible.

    The hidden state stays below 1, or below its start; the cell state grows by at most 1 a step.
    """
    x, w, r, b = operands[:4]
    largest = [float(np.abs(v).max(initial=0)) if v is not None else 0.0 for v in operands]
    state = max(1.0, *largest[5:7], 0.0) + max(x.shape[:2])
    peephole = largest[7] if len(largest) > 7 else 0.0
    bound = largest[0] * largest[1] * w.shape[-1] + state * largest[2] * r.shape[-1]
    bound += 2 * largest[3] + state * peephole
    limit = 65504.0 if b.dtype == np.float16 else float(np.finfo(np.float32).max)
    return not bound < limit / 2


def _reference(node: onnx.NodeProto, operands: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return a node's outputs by `onnx.reference`; none if it cannot evaluate the node."""
    from onnx.reference import ReferenceEvaluator  # costs start-up time that few models need

    def info(name: str) -> onnx.ValueInfoProto:
        kind = onnx.helper.np_dtype_to_tensor_dtype(operands[name].dtype)
        return onnx.helper.make_tensor_value_info(name, kind, operands[name].shape)

    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", [info(name) for name in operands], outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 14)], ir_version=8)
    try:
        return [np.asarray(v) for v in ReferenceEvaluator(model).run(None, dict(operands))]
    except Exception:
        # Its gaps show up as errors of any type; without a second opinion, there is no finding.
        return []
