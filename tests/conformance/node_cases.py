"""ONNX's own node tests, run through read and evaluate."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.backend.test.case.node import collect_testcases

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.errors import ModelError
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import Graph, find, read, spec_of
from ranum_falsify.network.narrow import NARROW
from ranum_falsify.network.tensorise import list_lowered
from ranum_falsify.network.unrolling import is_loop

__all__ = ["COMPOUND", "cases_by_operator", "is_left_out", "left_out", "problem"]

COMPOUND = "compound"
"""Group of the cases with several nodes: ONNX functions written out."""

_CARRIERS = {
    helper.tensor_dtype_to_np_dtype(number): helper.tensor_dtype_to_np_dtype(kind.carrier)
    for number, kind in NARROW.items()
}

_OF_OPSET = "does not load the newest opset"
"""How a reason ends that holds for some versions of ONNX Runtime alone."""

_LIST = Path(__file__).with_name("left_out.txt")


@cache
def left_out() -> Mapping[str, str]:
    """Return the reasons why cases are expected to fail, by name or pattern."""
    lines = (line.partition("#")[0].strip() for line in _LIST.read_text(encoding="utf-8").splitlines())
    pairs = (line.partition(":") for line in lines if line)
    found = {name.strip(): reason.strip() for name, _, reason in pairs}
    return {name: reason for name, reason in found.items() if not (reason.endswith(_OF_OPSET) and _loads_newest())}


def _loads_newest() -> bool:
    """Tell whether ONNX Runtime loads models of the newest opset of the installed onnx."""
    opset = onnx.defs.onnx_opset_version()
    g = ModelBuilder(
        "newest", opset=opset, ir_version=onnx.helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
    )
    g.output(g.node("Abs", g.input("x", [1])), [1])
    try:
        onnxruntime.InferenceSession(g.build().SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:  # ONNX Runtime names no class for that
        return False
    return True


def is_left_out(name: str) -> bool:
    """Tell whether a case is expected to fail."""
    return any(fnmatchcase(name, pattern) for pattern in left_out())


@cache
def cases_by_operator() -> Mapping[str, Mapping[str, Any]]:
    """Return the cases of operators that have a row, or are unrolled: by operator, then by name."""
    groups: dict[str, dict[str, Any]] = defaultdict(dict)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        assert case.model is not None, case.name
        if all(_is_known(node) for node in _nodes(case.model.graph)):
            nodes = case.model.graph.node
            groups[nodes[0].op_type if len(nodes) == 1 else COMPOUND][case.name] = case
    return groups


def _is_known(node: onnx.NodeProto) -> bool:
    known = find(node.op_type, node.domain) is not None or is_loop(node)
    return known or (node.domain, node.op_type) in list_lowered()


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def problem(case: Any) -> str | None:
    """Return on one line why a case fails, None if it passes.

    A case runs as it is and, if its operators read operands as shapes or axes, again with those as constants.  It
    passes if outputs are those expected and lie within the bounds for its inputs.
    """
    outputs = [
        item for value in case.data_sets[0][1] for item in (value if isinstance(value, list) else [_array(value)])
    ]
    model, given = _spread_sequences(case.model, [_array(value) for value in case.data_sets[0][0]])
    static = _static_inputs(model.graph) & set(given)
    lowered = any(find(node.op_type, node.domain) is None for node in _nodes(model.graph))
    # Numbers of narrow types and strings are read as constants alone.
    narrow = {i.name for i in model.graph.input if i.type.tensor_type.elem_type in (*NARROW, onnx.TensorProto.STRING)}
    run = partial(_attempt, case, model, given, outputs)
    found = run((static if lowered else set()) | narrow)
    return found if found is None or static <= narrow else run(static | narrow)


def _spread_sequences(model: onnx.ModelProto, inputs: Sequence[Any]) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model that takes the tensors of its sequences, and makes these of them; and its inputs by name."""
    if not any(isinstance(value, list) for value in inputs):
        return model, dict(zip([info.name for info in model.graph.input], inputs, strict=False))
    given: dict[str, Any] = {}
    spread = onnx.ModelProto()
    spread.CopyFrom(model)
    del spread.graph.input[:]
    for info, value in zip(model.graph.input, inputs, strict=False):
        items = {info.name: value}
        if isinstance(value, list):
            items = {f"{info.name}_{place}": np.asarray(item) for place, item in enumerate(value)}
            op_type = "SequenceConstruct" if items else "SequenceEmpty"
            spread.graph.node.insert(0, helper.make_node(op_type, list(items), [info.name]))
        for name, item in items.items():
            kind = helper.np_dtype_to_tensor_dtype(item.dtype)
            spread.graph.input.append(helper.make_tensor_value_info(name, kind, item.shape))
        given |= items
    return spread, given


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _static_inputs(graph: onnx.GraphProto) -> set[str]:
    """Return the inputs that rows read as arrays; for a written-out function, all its integer inputs."""
    if len(graph.node) > 1:
        floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
        tensors = [i for i in graph.input if i.type.HasField("tensor_type")]
        return {i.name for i in tensors if i.type.tensor_type.elem_type not in floats}
    node = graph.node[0]
    spec = find(node.op_type, node.domain)
    if spec is None:
        # Positions, sizes and what steers a loop are to be known before a model is read.
        kinds = (onnx.TensorProto.INT64, onnx.TensorProto.BOOL)
        return {i.name for i in graph.input if i.type.tensor_type.elem_type in kinds}
    names = {name for name, operand in zip(node.input, spec.operands, strict=False) if operand in spec.static}
    return names & {i.name for i in graph.input}


def _attempt(
    case: Any, model: onnx.ModelProto, given: Mapping[str, Any], outputs: Sequence[Any], fixed: set[str]
) -> str | None:
    try:
        graph = read(model, fixed={name: given[name] for name in fixed})
        results = graph(*(given[name] for name in graph.input_names), squeeze=False)
    except ModelError as error:
        return str(error)
    values = not any(spec_of(op).is_random(op) for op in graph.nodes)
    outputs = [_widen(value) for value in outputs]
    for name, ours, theirs in zip(graph.output_names, results, outputs, strict=True):
        if found := _difference(ours, theirs, case, values=values):
            return f"output {name}: {found}"
    return _outside(graph, given, outputs, case) if values else None


def _widen(value: Any) -> Any:
    """Return an array of a narrow type as one of the type that stands for it."""
    return value.astype(_CARRIERS[value.dtype]) if getattr(value, "dtype", None) in _CARRIERS else value


def _outside(graph: Graph, given: Mapping[str, Any], outputs: Sequence[Any], case: Any) -> str | None:
    """Return which finite elements lie outside of the bounds for these very inputs, None if none does."""
    if not all(isinstance(given[name], np.ndarray | np.generic) for name in graph.input_names):
        return None
    points = [Interval.point(np.asarray(given[name])) for name in graph.input_names]
    for name, bounds, theirs in zip(graph.output_names, IntervalAnalysis(graph).run(points), outputs, strict=True):
        if bounds is None or not isinstance(theirs, np.ndarray | np.generic):
            continue
        y = np.asarray(theirs).astype(np.float64)
        _, atol = _tolerance(np.asarray(theirs), y, case)
        low, high = (end.expand(bounds.shape).double().numpy() for end in (bounds.lower, bounds.upper))
        stray = case.rtol * np.abs(y) + atol
        with np.errstate(invalid="ignore"):
            outside = np.isfinite(y) & ((y < low - stray) | (y > high + stray))
        if outside.any():
            return f"output {name}: {outside.sum()} of {outside.size} elements lie outside of the bounds"
    return None


def _tolerance(ours: np.ndarray, theirs: np.ndarray, case: Any) -> tuple[float, float]:
    """Return the relative and the absolute tolerance of a case, no less than the rounding errors of its type."""
    if ours.dtype.itemsize == 2 and ours.dtype.kind not in "iu":
        step = 2.0**-7 if ours.dtype == ml_dtypes.bfloat16 else 2.0**-10
        return max(case.rtol, 4 * step), max(case.atol, 2 * step)
    if ours.dtype != np.float32:
        return case.rtol, case.atol
    # Sums of numbers err by a share of the greatest of them.
    return case.rtol, max(case.atol, 2.0**-22 * float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)))


def _difference(ours: np.ndarray, theirs: Any, case: Any, *, values: bool) -> str | None:
    if not isinstance(theirs, np.ndarray | np.generic):
        return f"{type(theirs).__name__} expected"
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return f"{ours.dtype}{ours.shape}, {theirs.dtype}{theirs.shape} expected"
    if not values:
        return None
    rtol, atol = _tolerance(ours, np.asarray(theirs), case)
    if ours.dtype.kind not in "biuc":
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    close = np.isclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)
    return None if close.all() else f"{(~close).sum()} of {close.size} elements differ"
