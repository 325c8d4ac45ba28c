"""Random cases of the four passes that lower to base operators: models, inputs, and what must come out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from ranum_falsify.transform.apply import apply_pass
from ranum_falsify.transform.catalogue import find_pass
from ranum_falsify.transform.model import count_operators

PASSES = ("transform_arg_max", "transform_arg_min", "transform_add", "transform_reduce_sum")
_FLOATS = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16}
_INTEGERS = {TensorProto.INT32: np.int32, TensorProto.INT64: np.int64}
_OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 17, 18, 20, 21)
_INPUTS = 3  # of each model


@dataclass(frozen=True)
class Fault:
    """A case that went wrong."""

    pass_name: str
    seed: int
    what: str


def session(model: onnx.ModelProto) -> ort.InferenceSession | None:
    """The model on ONNX Runtime without optimisations; None where it has no kernel for it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return None


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: type, *, infinite: bool) -> np.ndarray:
    """Random elements: ordinary, with ties, with zeros of both signs, tiny, huge."""
    if np.issubdtype(dtype, np.integer):
        limit = int(rng.choice([2, 100, np.iinfo(dtype).max]))
        return rng.integers(-limit, limit, shape, dtype=dtype)
    info = np.finfo(dtype)
    kinds = (
        lambda: rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4),
        lambda: rng.integers(-2, 3, shape) * 1.0,
        lambda: rng.choice([0.0, -0.0, 1.0], shape),
        lambda: rng.integers(-3, 4, shape) * float(info.smallest_subnormal),
        lambda: rng.choice([-1, 1], shape) * float(info.max) / 4 * rng.random(shape),
        lambda: 1 + rng.integers(0, 3, shape) * float(info.eps),
    )
    array = kinds[int(rng.integers(len(kinds)))]()
    if infinite:
        array = np.where(rng.random(shape) < 0.3, rng.choice([np.inf, -np.inf, np.nan], shape), array)
    return np.asarray(array).astype(dtype)


def check_case(pass_name: str, seed: int) -> str | None:
    """What is wrong with a case; "" if nothing is, None if the pass refused it or it does not run."""
    rng = np.random.default_rng((PASSES.index(pass_name), seed))
    model, dtype, shapes = _MODELS[pass_name](rng)
    old = session(model)
    if old is None:
        return None
    applied = apply_pass(find_pass(pass_name), ir.from_proto(model))
    if applied.model is None:
        return _refusal_fault(model, applied.refusals[0].reason if applied.refusals else "", dtype)
    left = set(count_operators(applied.model)) & set(find_pass(pass_name).spec.takes)
    if left:
        return f"{left} is left"
    made = ir.to_proto(applied.model)
    onnx.checker.check_model(made, full_check=True)
    new = session(made)
    if new is None:
        return "ONNX Runtime does not run the new model"
    for _ in range(_INPUTS):
        infinite = pass_name == "transform_add" and bool(rng.random() < 0.3)
        feeds = {name: values(rng, shape, dtype, infinite=infinite) for name, shape in shapes.items()}
        (before,), (after,) = old.run(None, feeds), new.run(None, feeds)
        fault = _fault(pass_name, feeds, before, after)
        if fault:
            return f"{fault}; {helper.printable_graph(model.graph)}; {feeds}"
    return ""


def _fault(pass_name: str, feeds: dict[str, np.ndarray], before: np.ndarray, after: np.ndarray) -> str:
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        return f"{before.dtype}{before.shape} became {after.dtype}{after.shape}"
    if pass_name == "transform_reduce_sum" and before.dtype.kind == "f":
        x = feeds["x"].astype(np.float64)
        terms = x.size // max(before.size, 1)
        # Each of two orders of summation is off by at most this; float16 may overflow on the way.
        info = np.finfo(before.dtype)
        scale = float(np.abs(x).max())
        if scale > float(info.max) / max(terms, 1):
            return ""  # a sum on the way may overflow, in one order or the other
        bound = 2 * (terms + 1) * float(info.eps) * terms * scale + float(info.tiny)
        close = np.isclose(before.astype(np.float64), after.astype(np.float64), rtol=0, atol=bound)
        return "" if close.all() else f"{before} became {after}, more than {bound} apart"
    same = (before == after) & (np.signbit(before) == np.signbit(after)) | ((before != before) & (after != after))
    return "" if same.all() else f"{before} became {after}"


def _refusal_fault(model: onnx.ModelProto, reason: str, dtype: type) -> str | None:
    """A refusal needs a reason, and is not for what the pass should handle."""
    if not reason:
        return "it is left without a reason"
    opset = model.opset_import[0].version
    takes_integers = opset >= 9 and model.graph.node[0].op_type == "Add"
    expected = (
        (np.issubdtype(dtype, np.integer) and not takes_integers)
        or opset < 9
        or "fixed length" in reason
        or "elements" in reason
    )
    return None if expected or "empty" in reason else f"it is refused: {reason}"


_Case = tuple[onnx.ModelProto, type, dict[str, tuple[int, ...]]]


def _shape(rng: np.random.Generator, least_rank: int = 1) -> tuple[int, ...]:
    rank = int(rng.integers(least_rank, 5))
    return tuple(int(rng.choice([1, 2, 3, 5, 7, 17])) for _ in range(rank))


def _types(rng: np.random.Generator, integers: bool) -> tuple[int, type]:
    table = _FLOATS | _INTEGERS if integers else _FLOATS
    return list(table.items())[int(rng.integers(len(table)))]


def _model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[int | str]]],
    output: int,
    opset: int,
    initializers: list[onnx.TensorProto] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "case",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [onnx.ValueInfoProto(name="y", type=onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor(elem_type=output)))],
        initializers or [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def _symbolic(rng: np.random.Generator, shape: tuple[int, ...], name: str = "x") -> list[int | str]:
    """The shape as the model says it: now and then, a dimension has a name only."""
    return [f"{name}{i}" if rng.random() < 0.15 else size for i, size in enumerate(shape)]


def _arg(op_type: str, rng: np.random.Generator) -> _Case:
    opset, shape = int(rng.choice(_OPSETS)), _shape(rng)
    kind, dtype = _types(rng, integers=False)
    attributes: dict[str, Any] = {"axis": int(rng.integers(0 if opset < 11 else -len(shape), len(shape)))}
    attributes |= {"keepdims": int(rng.integers(2))} if rng.random() < 0.8 else {}
    attributes |= {"select_last_index": int(rng.integers(2))} if opset >= 12 and rng.random() < 0.7 else {}
    node = helper.make_node(op_type, ["x"], ["y"], name="node", **attributes)
    return _model([node], {"x": (kind, _symbolic(rng, shape))}, TensorProto.INT64, opset), dtype, {"x": shape}


def _add(rng: np.random.Generator) -> _Case:
    shape = _shape(rng, 0)
    other = tuple(size if rng.random() < 0.7 else 1 for size in shape[int(rng.integers(len(shape) + 1)) :])
    shapes = (shape, other) if rng.random() < 0.5 else (other, shape)
    kind, dtype = _types(rng, integers=True)
    node = helper.make_node("Add", ["x", "b"], ["y"])
    inputs = {name: (kind, _symbolic(rng, shape, name)) for name, shape in zip("xb", shapes, strict=True)}
    return _model([node], inputs, kind, int(rng.choice(_OPSETS))), dtype, dict(zip("xb", shapes, strict=True))


def _sum(rng: np.random.Generator) -> _Case:
    opset, shape = int(rng.choice(_OPSETS)), _shape(rng)
    kind, dtype = _types(rng, integers=True)
    count = int(rng.integers(0, len(shape) + 1))
    least = 0 if opset < 11 else -len(shape)
    axes = sorted(int(axis) for axis in rng.permutation(len(shape))[:count])
    axes = [axis - len(shape) if least and rng.random() < 0.4 else axis for axis in axes]
    attributes: dict[str, Any] = {"keepdims": int(rng.integers(2))} if rng.random() < 0.8 else {}
    operands, constants = ["x"], []
    if opset < 13:
        attributes |= {"axes": axes} if axes else {}
    else:
        attributes |= {"noop_with_empty_axes": int(rng.integers(2))} if rng.random() < 0.5 else {}
        if axes or rng.random() < 0.5:
            operands.append("axes")
            constants.append(numpy_helper.from_array(np.array(axes, dtype=np.int64), "axes"))
    node = helper.make_node("ReduceSum", operands, ["y"], **attributes)
    model = _model([node], {"x": (kind, _symbolic(rng, shape))}, kind, opset, constants)
    return model, dtype, {"x": shape}


_MODELS = {
    "transform_arg_max": lambda rng: _arg("ArgMax", rng),
    "transform_arg_min": lambda rng: _arg("ArgMin", rng),
    "transform_add": _add,
    "transform_reduce_sum": _sum,
}


def sweep(pass_name: str, cases: int, first: int = 0) -> Iterator[Fault | None]:
    """The fault of each case that the pass takes; None for one without."""
    for seed in range(first, first + cases):
        what = check_case(pass_name, seed)
        if what is not None:
            yield Fault(pass_name, seed, what) if what else None
