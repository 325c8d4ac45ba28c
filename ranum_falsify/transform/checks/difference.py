"""The difference of two models as one network, for the engines that search and prove.

Its output is, for each element of each output, by how much the two are further apart than they may be.  An input at
which it is positive shows a broken promise; a proof that it never is proves the promise for the whole box, wherever
ONNX Runtime computes both models.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.compose
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from ranum_falsify.config import ProveConfig, SearchConfig
from ranum_falsify.decide import falsify
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.network import read
from ranum_falsify.network.functions import inline_functions
from ranum_falsify.properties.language.parse import parse_dnnp
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.transform.checks.comparing import Tolerance
from ranum_falsify.transform.checks.inputs import Box
from ranum_falsify.transform.guarantee import Guarantee
from ranum_falsify.transform.model import has_external_data, to_proto

__all__ = ["DifferenceAnswer", "decide_difference"]

_OUTPUT = "difference"


@dataclass(frozen=True)
class DifferenceAnswer:
    """What search and proof found of the difference.

    Attributes:
        how: `proved`, `searched N s`, or `not searched (why)`.
        inputs: Inputs on which the models seem to differ by more than they may, None where none were found.
    """

    how: str
    inputs: Mapping[str, np.ndarray] | None = None


def decide_difference(
    old: ir.Model,
    new: ir.Model,
    *,
    box: Box,
    shapes: Mapping[str, tuple[int, ...]],
    guarantee: Guarantee,
    tolerance: Tolerance,
    timeout: float,
    seed: int = 0,
    threads: int = 1,
) -> DifferenceAnswer:
    """Prove that two models differ by no more than they may in a box, or search for an input at which they do.

    Args:
        old: The model before.
        new: The model after.
        box: Where inputs lie, each between two numbers.
        shapes: The shapes of the inputs, which have sizes for symbolic dimensions.
        guarantee: `equality` or `tolerance`.
        tolerance: How far outputs may be apart.
        timeout: Seconds.
        seed: Seed of the search.
        threads: Threads of torch and ONNX Runtime.
    """
    reason = _find_obstacle(old, new, box, shapes, guarantee)
    if reason:
        return DifferenceAnswer(f"not searched ({reason})")
    began = time.monotonic()
    try:
        graph = read(_subtract(old, new, guarantee, tolerance), dims=_name_dims(old, shapes))
        problem = reduce(parse_dnnp(_state(list(shapes), box), Path("the difference")), {"N": graph})
        prove = ProveConfig(timeout=timeout / 2, runtimes=("onnxruntime",))
        config = SearchConfig(timeout=timeout, seed=seed, processors=threads, prove=prove)
        result = falsify(problem, config)
    except RanumFalsifyError as error:
        return DifferenceAnswer(f"not searched ({error})")
    if result.verdict == "holds":
        return DifferenceAnswer("proved")
    how = f"searched {time.monotonic() - began:.0f} s"
    if result.counterexample is None:
        return DifferenceAnswer(how)
    return DifferenceAnswer(how, dict(zip(shapes, result.counterexample.inputs.values(), strict=True)))


def _find_obstacle(
    old: ir.Model, new: ir.Model, box: Box, shapes: Mapping[str, tuple[int, ...]], guarantee: Guarantee
) -> str:
    """Return why the models cannot be subtracted, empty where they can."""
    if guarantee.kind == "metric":
        return "metrics are of samples"
    without = [name for name in shapes if name not in box or any(np.ndim(bound) for bound in box[name])]
    if without:
        return f"input {without[0]!r} has no range; give --box"
    if old.opset_imports != new.opset_imports:
        return "the opsets differ"
    if has_external_data(old) or has_external_data(new):
        return "weights lie in files of their own"
    return ""


def _name_dims(model: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the sizes of symbolic dimensions, by input and axis."""
    return {
        f"{value.name}:{axis}": shapes[value.name or ""][axis]
        for value in model.graph.inputs
        for axis, dim in enumerate(value.shape or ())
        if value.name in shapes and (not isinstance(dim, int) or dim < 0)
    }


def _state(names: Sequence[str], box: Box) -> str:
    """Return the property that the difference is nowhere positive."""
    variables = [f"x{number}" for number in range(len(names))]
    ranges = [
        f"{float(box[name][0])!r} <= {x} <= {float(box[name][1])!r}" for x, name in zip(variables, names, strict=True)
    ]
    premise = ranges[0] if len(ranges) == 1 else f"And({', '.join(ranges)})"
    text = f"Implies({premise}, N({', '.join(variables)}) <= 0)"
    for x in reversed(variables):
        text = f"Forall({x}, {text})"
    return f'from dnnv.properties import *\nN = Network("N")\n{text}\n'


def _subtract(old: ir.Model, new: ir.Model, guarantee: Guarantee, tolerance: Tolerance) -> onnx.ModelProto:
    """Return the network of the difference."""
    before, after = (inline_functions(to_proto(model)) for model in (old, new))
    names = [value.name for value in before.graph.output]
    kinds = {value.name: value.type.tensor_type.elem_type for value in before.graph.output}
    parts = [
        onnx.compose.add_prefix(model, prefix, rename_inputs=False)
        for model, prefix in ((before, "old/"), (after, "new/"))
    ]
    joined = onnx.ModelProto()
    joined.CopyFrom(parts[0])
    graph = joined.graph
    del graph.value_info[:], graph.output[:]
    graph.node.extend(parts[1].graph.node)
    graph.initializer.extend(parts[1].graph.initializer)
    ends = []
    for name in names:
        allowed = _allowance(kinds[name], tolerance) if guarantee.kind == "tolerance" else (0.0, 0.0)
        graph.node.extend(_differ(name, allowed))
        ends.append(f"{name}/flat")
    graph.initializer.append(numpy_helper.from_array(np.array([-1], dtype=np.int64), "flat"))
    graph.node.append(helper.make_node("Concat", ends, [_OUTPUT], name=_OUTPUT, axis=0))
    graph.output.append(helper.make_tensor_value_info(_OUTPUT, TensorProto.DOUBLE, [None]))
    return joined


def _allowance(kind: int, tolerance: Tolerance) -> tuple[float, float]:
    """Return the relative and the absolute tolerance of an output; integers and flags must be equal."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    is_float = dtype.kind == "f" or dtype.name == "bfloat16"
    return (tolerance.relative(dtype), tolerance.atol) if is_float else (0.0, 0.0)


def _differ(name: str, allowed: tuple[float, float]) -> Iterator[onnx.NodeProto]:
    """Yield what computes by how much more than allowed two outputs differ, in double precision and flat."""

    def node(op_type: str, inputs: Sequence[str], step: str, **attributes: int) -> onnx.NodeProto:
        operands = [operand if "/" in operand or operand == "flat" else f"{name}/{operand}" for operand in inputs]
        made = helper.make_node(op_type, operands, [f"{name}/{step}"], name=f"{name}/{step}")
        made.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        return made

    def constant(value: float, step: str) -> onnx.NodeProto:
        tensor = numpy_helper.from_array(np.array(value, dtype=np.float64))
        return helper.make_node("Constant", [], [f"{name}/{step}"], name=f"{name}/{step}", value=tensor)

    relative, absolute = allowed
    yield node("Cast", [f"old/{name}"], "wide_old", to=TensorProto.DOUBLE)
    yield node("Cast", [f"new/{name}"], "wide_new", to=TensorProto.DOUBLE)
    yield node("Sub", ["wide_new", "wide_old"], "signed")
    yield node("Abs", ["signed"], "distance")
    yield constant(relative, "relative")
    yield constant(absolute, "absolute")
    yield node("Abs", ["wide_old"], "size")
    yield node("Mul", ["size", "relative"], "share")
    yield node("Add", ["share", "absolute"], "allowed")
    yield node("Sub", ["distance", "allowed"], "excess")
    yield node("Reshape", ["excess", "flat"], "flat")
