"""Random recurrent layers, run as they are and written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from ranum_falsify.rewrite.apply import apply_pass
from ranum_falsify.rewrite.catalogue import find_pass
from ranum_falsify.rewrite.model import count_operators
from tests.rewrite.sweeping import session

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
PARAMETERS = {"Affine": 2, "Elu": 1, "HardSigmoid": 2, "LeakyRelu": 1, "ScaledTanh": 2, "ThresholdedRelu": 1}
_GREATEST = 1e4
_BATCH_FIRST = {4: (2, 0, 1, 3), 3: (1, 0, 2)}  # by rank
PLAIN = ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")


def recurrent_model(op_type: str, rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one layer, and inputs for it."""
    ways, time, batch, size, hidden = (int(n) for n in rng.integers(1, [3, 6, 4, 4, 5]))
    direction = "bidirectional" if ways == 2 else str(rng.choice(["forward", "reverse"]))
    opset = int(rng.choice([9, 10, 11, 14, 21, 22]))
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    gates = GATES[op_type] * hidden

    def some(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    feeds = {"x": some(time, batch, size)}
    constants = {"w": some(ways, gates, size), "r": some(ways, gates, hidden)}
    operands = ["x", "w", "r", "", "", "", "", ""]
    if rng.random() < 0.7:
        operands[3], constants["b"] = "b", some(ways, 2 * gates)
    if rng.random() < 0.2:
        operands[4], constants["lengths"] = "lengths", np.full(batch, time, np.int32)
    for position, name in [(5, "h"), *([(6, "c")] if op_type == "LSTM" else [])]:
        if rng.random() < 0.4:
            operands[position], feeds[name] = name, some(ways, batch, hidden)
    if op_type == "LSTM" and rng.random() < 0.3:
        operands[7], constants["p"] = "p", some(ways, 3 * hidden)
    if op_type == "LSTM" and rng.random() < 0.2:
        attributes["input_forget"] = 1
    if op_type == "GRU" and rng.random() < 0.5:
        attributes["linear_before_reset"] = 1
    if rng.random() < 0.25:
        attributes["clip"] = float(rng.uniform(0.1, 2))
    if rng.random() < 0.4:
        attributes |= _activations(rng, op_type, ways, opset)
    outputs = ["y", "y_h", "y_c"][: 3 if op_type == "LSTM" else 2]
    outputs = [name if rng.random() < 0.8 else "" for name in outputs]
    outputs = outputs if any(outputs) else ["y"]
    while not operands[-1]:
        operands.pop()
    node = helper.make_node(op_type, operands, outputs, name="layer", **attributes)
    return _wrap(node, feeds, constants, opset, rng), feeds


def _activations(rng: np.random.Generator, op_type: str, ways: int, opset: int) -> dict[str, Any]:
    names = [*PLAIN, *(name for name in PARAMETERS if name != "ThresholdedRelu" or opset >= 10)]
    chosen = [str(rng.choice(names)) for _ in range(ways * FUNCTIONS[op_type])]
    takes = [PARAMETERS.get(name, 0) for name in chosen]
    alphas, betas = ([float(rng.uniform(0.1, 0.9)) for n in takes if n >= least] for least in (1, 2))
    if op_type != "RNN" and rng.random() < 0.3:  # ONNX Runtime's RNN minds the case
        chosen = [name.upper() for name in chosen]
    given: dict[str, Any] = {"activations": chosen}
    return given | ({"activation_alpha": alphas} if alphas else {}) | ({"activation_beta": betas} if betas else {})


def _wrap(
    node: onnx.NodeProto,
    feeds: dict[str, np.ndarray],
    constants: dict[str, np.ndarray],
    opset: int,
    rng: np.random.Generator,
) -> onnx.ModelProto:
    is_symbolic = rng.random() < 0.3
    inputs = []
    for name, array in feeds.items():
        shape: list[int | str] = list(array.shape)
        shape[1] = "B" if is_symbolic else shape[1]
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    kind = onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor(elem_type=TensorProto.FLOAT))
    outputs = [onnx.ValueInfoProto(name=name, type=kind) for name in node.output if name]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "layer", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def check_recurrent(op_type: str, seed: int) -> str:
    """What is wrong with writing out a layer; "" if nothing is."""
    rng = np.random.default_rng((GATES[op_type], seed))
    model, feeds = recurrent_model(op_type, rng)
    loaded = session(model)
    assert loaded is not None
    expected = [np.asarray(array) for array in loaded.run(None, feeds)]
    fault = _check(op_type, model, feeds, expected)
    if fault or model.opset_import[0].version < 14:
        return fault
    # ONNX Runtime does not run layers whose batch comes first, so that the same layer turned says what is right.
    _put_batch_first(model)
    turned = {name: np.ascontiguousarray(array.swapaxes(0, 1)) for name, array in feeds.items()}
    return _check(op_type, model, turned, [array.transpose(_BATCH_FIRST[array.ndim]) for array in expected])


def _put_batch_first(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("layout", 1))
    for value in (*model.graph.input, *model.graph.output):
        dims = value.type.tensor_type.shape.dim
        turned = onnx.TensorShapeProto(dim=[dims[axis] for axis in _BATCH_FIRST[len(dims)]])
        value.type.tensor_type.shape.CopyFrom(turned)


def _check(op_type: str, model: onnx.ModelProto, feeds: dict[str, np.ndarray], expected: Sequence[np.ndarray]) -> str:
    applied = apply_pass(find_pass(f"unroll_{op_type.lower()}"), ir.from_proto(model))
    if applied.model is None:
        return f"it is refused: {applied.refusals}"
    if op_type in count_operators(applied.model):
        return "it is left"
    made = ir.to_proto(applied.model)
    onnx.checker.check_model(made, full_check=True)
    levels = [session(made, optimise=optimise) for optimise in (False, True)]
    if None in levels:
        return "ONNX Runtime does not run what was made"
    found = [array for level in levels if level is not None for array in level.run(None, feeds)]
    for before, after in zip([*expected, *expected], found, strict=True):
        if before.shape != after.shape:
            return f"shape {before.shape} became {after.shape}"
        scale = np.abs(before).max(initial=1.0)
        if scale > _GREATEST or np.isnan(scale):
            continue  # activations without bounds grow from step to step, and their errors with them
        if not np.allclose(before, after, rtol=1e-4, atol=1e-5 * scale):
            return f"{before} became {after}; {helper.printable_graph(model.graph)}"
    return ""
