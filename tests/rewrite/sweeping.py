"""Random cases of passes: a model of one operator, what the pass makes of it, and whether both compute the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from ranum_falsify.rewrite.apply import apply_pass
from ranum_falsify.rewrite.catalogue import find_pass
from ranum_falsify.rewrite.model import count_operators
from ranum_falsify.rewrite.verify import Guarantee

FLOATS: dict[int, Any] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.FLOAT16: np.float16,
}
INTEGERS: dict[int, Any] = {TensorProto.INT32: np.int32, TensorProto.INT64: np.int64}
KINDS = FLOATS | INTEGERS
OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25)
_ALWAYS = ("needs opset 9; convert the model",)
_INPUTS = 3  # of each model

Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, and what the pass may do with it.

    Attributes:
        model: The model.
        shapes: The shapes of its inputs, symbolic dimensions replaced.
        refusable: Parts of reasons for which the pass may refuse it.
        gain: By how much rounding of the inputs counts in the outputs, for passes with a tolerance.
        floor: How large numbers on the way are whatever the inputs.
        most: The greatest magnitude of inputs, as a share of the greatest float.
        reach: How large ordinary and huge inputs may be.
        fits: Whether neither model overflows on inputs.
    """

    model: onnx.ModelProto
    shapes: Mapping[str, tuple[int, ...]]
    refusable: Sequence[str] = ()
    gain: float = 1.0
    floor: float = 0.0
    most: float = 0.25
    reach: float = np.inf
    fits: Callable[[Feeds], bool] = lambda feeds: True


@dataclass(frozen=True)
class Fault:
    """A case that went wrong."""

    pass_name: str
    seed: int
    what: str


def session(model: onnx.ModelProto, *, optimise: bool = False) -> ort.InferenceSession | None:
    """The model on ONNX Runtime, without optimisations unless asked for; None where it has no kernel for it."""
    options = ort.SessionOptions()
    if not optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return None


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, case: Case, *, infinite: bool) -> np.ndarray:
    """Random elements: ordinary, with ties, with zeros of both signs, tiny, huge."""
    if np.issubdtype(dtype, np.integer):
        limit = int(rng.choice([2, 100, np.iinfo(dtype).max]))
        return rng.integers(-limit, limit, shape, dtype=dtype)
    info = np.finfo(dtype)
    most = min(float(info.max) * case.most, case.reach)
    kinds = (
        lambda: rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4),
        lambda: rng.integers(-2, 3, shape) * 1.0,
        lambda: rng.choice([0.0, -0.0, 1.0], shape),
        lambda: rng.integers(-3, 4, shape) * float(info.smallest_subnormal),
        lambda: rng.choice([-1, 1], shape) * most * rng.random(shape),
        lambda: 1 + rng.integers(0, 3, shape) * float(info.eps),
    )
    array = kinds[int(rng.integers(len(kinds)))]()
    if infinite:
        array = np.where(rng.random(shape) < 0.3, rng.choice([np.inf, -np.inf, np.nan], shape), array)
    else:
        array = np.clip(array, -most, most)
    return np.asarray(array).astype(dtype)


def check_case(pass_name: str, case: Case, rng: np.random.Generator) -> str | None:
    """What is wrong with a case; "" if nothing is, None if the pass refused it or it does not run."""
    old = session(case.model)
    if old is None:
        return None
    found = find_pass(pass_name)
    applied = apply_pass(found, ir.from_proto(case.model))
    if applied.model is None:
        reason = applied.refusals[0].reason if applied.refusals else "without a reason"
        return None if any(part in reason for part in (*case.refusable, *_ALWAYS)) else f"it is refused: {reason}"
    fault = _operator_fault(pass_name, case, applied.model)
    if fault:
        return fault
    made = ir.to_proto(applied.model)
    try:
        onnx.checker.check_model(made, full_check=True)
    except Exception as error:
        return f"the ONNX checker refuses it: {error}; {helper.printable_graph(case.model.graph)[:3000]}"
    new, new_default = session(_exposed(made)), session(made, optimise=True)
    old_default = session(case.model, optimise=True) or old
    if new is None or new_default is None:
        return "ONNX Runtime does not run the new model"
    guarantee = found.spec.guarantee
    kinds = {value.name: KINDS[value.type.tensor_type.elem_type] for value in case.model.graph.input}
    for _ in range(_INPUTS):
        infinite = guarantee.kind == "equality" and guarantee.everywhere and bool(rng.random() < 0.3)
        feeds = {name: values(rng, shape, kinds[name], case, infinite=infinite) for name, shape in case.shapes.items()}
        if not case.fits(feeds):
            continue
        try:
            before, before_default = old.run(None, feeds), old_default.run(None, feeds)
        except Exception:
            return None  # ONNX Runtime has no such kernel after all
        fault = _fault(case, guarantee, feeds, before, new.run(None, feeds))
        if not fault:
            after = new_default.run(None, feeds)
            faults = [_fault(case, guarantee, feeds, expected, after) for expected in (before_default, before)]
            fault = f"at the default level, {faults[0]}" if all(faults) else ""
        if fault:
            return f"{fault}; {helper.printable_graph(case.model.graph)[:3000]}; {feeds}"
    return ""


def _operator_fault(pass_name: str, case: Case, made: ir.Model) -> str:
    """Operators that should be gone, or that the pass does not say it makes."""
    spec = find_pass(pass_name).spec
    old, new = count_operators(ir.from_proto(case.model)), count_operators(made)
    left = (set(new) & set(spec.takes)) - set(spec.gives)
    if left:
        return f"{left} is left"
    unsaid = set(new) - set(old) - set(spec.gives)
    return f"it makes {unsaid}, which it does not say" if unsaid else ""


def _exposed(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose outputs are followed by all that it computes on the way."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    there = {value.name for value in made.graph.output}
    made.graph.output.extend(
        onnx.ValueInfoProto(name=name)
        for node in made.graph.node
        for name in node.output
        if name and name not in there and node.op_type != "Constant"
    )
    return made


def _fault(
    case: Case, guarantee: Guarantee, feeds: Feeds, before: Sequence[np.ndarray], after: Sequence[np.ndarray]
) -> str:
    for old, new in zip(before, after, strict=False):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            return f"{old.dtype}{old.shape} became {new.dtype}{new.shape}"
        fault = _value_fault(case, guarantee, feeds, old, new)
        if fault:
            return fault
    if all(np.isfinite(array).all() for array in (*feeds.values(), *before)):
        inside = [array for array in after[len(before) :] if array.dtype.kind == "f"]
        if not all(np.isfinite(array).all() for array in inside):
            return f"a number on the way is not finite: {inside}"
    return ""


def _value_fault(case: Case, guarantee: Guarantee, feeds: Feeds, old: np.ndarray, new: np.ndarray) -> str:
    if guarantee.kind == "tolerance" and old.dtype.kind == "f":
        info = np.finfo(old.dtype)
        sizes = [float(np.abs(array).max(initial=0)) for array in feeds.values() if array.dtype.kind == "f"]
        wide, other = old.astype(np.float64), new.astype(np.float64)
        finite = np.isfinite(wide)
        with np.errstate(over="ignore"):
            size = case.gain * max(sizes) + case.floor + np.abs(np.where(finite, wide, 0))
        bound = 16 * float(info.eps) * size + 4 * float(info.tiny)
        with np.errstate(invalid="ignore"):
            close = (np.abs(wide - other) <= bound) | ~finite
        return "" if close.all() else f"{old} became {new}, more than {bound.max()} apart"
    same = (old == new) | ((old != old) & (new != new))
    if guarantee.signed_zero and old.dtype.kind == "f":
        same &= (np.signbit(old) == np.signbit(new)) | (old != old)
    return "" if same.all() else f"{old} became {new}"


def make_node(op_type: str, operands: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    """A node."""
    return helper.make_node(op_type, list(operands), list(outputs), **attributes)


def model_case(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str], tuple[int, ...]]],
    opset: int,
    *,
    output: int = TensorProto.UNDEFINED,
    constants: Mapping[str, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
    **fields: Any,
) -> Case:
    """A case of nodes; inputs have an element type, a shape as the model says it, and one as it is."""
    kind = output or next(iter(inputs.values()))[0]
    graph = helper.make_graph(
        list(nodes),
        "case",
        [helper.make_tensor_value_info(name, kind, list(shape)) for name, (kind, shape, _) in inputs.items()],
        [
            onnx.ValueInfoProto(name=name, type=onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor(elem_type=kind)))
            for name in outputs
        ],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset < 21 else 10)
    shapes = {name: actual for name, (_, _, actual) in inputs.items()}
    return Case(model=onnx.shape_inference.infer_shapes(model), shapes=shapes, **fields)


def after_transpose(rng: np.random.Generator, case: Case, share: float = 0.3) -> Case:
    """A case whose input x, if it is one of floats, is transposed first, now and then: what follows may be fused."""
    value = case.model.graph.input[0]
    rank = len(case.shapes["x"])
    if rng.random() >= share or rank < 2 or value.type.tensor_type.elem_type not in FLOATS:
        return case
    order = [int(axis) for axis in rng.permutation(rank)]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for node in model.graph.node:
        node.input[:] = ["turned" if name == "x" else name for name in node.input]
    back = np.argsort(order)
    dims = [model.graph.input[0].type.tensor_type.shape.dim[int(axis)] for axis in back]
    shape = onnx.TensorShapeProto(dim=dims)
    model.graph.input[0].type.tensor_type.shape.CopyFrom(shape)
    model.graph.node.insert(0, make_node("Transpose", ["x"], ["turned"], perm=order))
    del model.graph.value_info[:]
    shapes = {**case.shapes, "x": tuple(case.shapes["x"][int(axis)] for axis in back)}
    return replace(case, model=onnx.shape_inference.infer_shapes(model), shapes=shapes)


def random_shape(
    rng: np.random.Generator, least: int = 1, most: int = 4, sizes: Sequence[int] = (1, 2, 3, 5, 7)
) -> tuple[int, ...]:
    """A shape of some rank."""
    return tuple(int(rng.choice(sizes)) for _ in range(int(rng.integers(least, most + 1))))


def symbolic(rng: np.random.Generator, shape: Sequence[int], name: str = "x", share: float = 0.15) -> list[int | str]:
    """The shape as a model says it: now and then, a dimension has a name only."""
    return [f"{name}{i}" if rng.random() < share else size for i, size in enumerate(shape)]


def random_kind(rng: np.random.Generator, kinds: Sequence[int] = tuple(FLOATS)) -> int:
    """An element type."""
    return int(rng.choice(kinds))


Generator = Callable[[np.random.Generator], Case]


def sweep(pass_name: str, generate: Generator, cases: int, first: int = 0) -> Iterator[Fault | None]:
    """The fault of each case that the pass takes; None for one without."""
    for seed in range(first, first + cases):
        rng = np.random.default_rng((crc32(pass_name.encode()), seed))
        what = check_case(pass_name, generate(rng), rng)
        if what is not None:
            yield Fault(pass_name, seed, what) if what else None
