"""Why inputs alone cannot be clipped: weights within their ranges with which an operator fails whatever the inputs are.

Where such weights exist, no box of inputs can be proved, not even a single point.  They are drawn from patterns: 0, an
end of the range, one end for the first element of a dimension and the other for the rest, and numbers of the model.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import torch
from onnx import helper
from torch import Tensor

from ranum_falsify.config import ProveConfig, Runtime, SearchConfig
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.kernels import families
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.order import operands_in, topological_order
from ranum_falsify.network.registry import row_of
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.operators.support.conditions import conditions_of, gradient_conditions
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.repair.abstraction.clipping import narrow
from ranum_falsify.repair.abstraction.ranges import KeptRange
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.prove.applications import box_of
from ranum_falsify.verify.prove.failing import AnalysisUpTo, surely_fails
from ranum_falsify.verify.prove.prover import Prover

if TYPE_CHECKING:
    from dnnv.nn import Operation

__all__ = ["find_obstacle", "fix_random_numbers"]

_TRIES, _SEEDS = 120, 4
_RUNTIMES: tuple[Runtime, ...] = ("onnxruntime", "torch")
_AVX2 = ("onnxruntime", "avx2")
_RANDOM = {"RandomUniformLike": 63 / 64, "RandomUniform": 63 / 64, "RandomNormal": 0.0, "RandomNormalLike": 0.0}
"""Numbers that random generators may draw; with this one, dropout keeps every element."""


def fix_random_numbers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose random numbers are constants that could have been drawn."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    nodes = list(fixed.graph.node)
    del fixed.graph.node[:]
    for node in nodes:
        if node.op_type not in _RANDOM:
            fixed.graph.node.append(node)
            continue
        shape, value = f"{node.output[0]}_shape", helper.make_tensor("value", 1, [1], [_RANDOM[node.op_type]])
        given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        source = (
            helper.make_node("Shape", [node.input[0]], [shape])
            if node.input
            else helper.make_node("Constant", [], [shape], value_ints=given["shape"])
        )
        fixed.graph.node.extend([source, helper.make_node("ConstantOfShape", [shape], node.output, value=value)])
    return fixed


@dataclass(frozen=True)
class _Draw:
    """A choice of all weights: bounds of each input of the graph, which those of weights are points of."""

    inputs: Sequence[Interval]


def find_obstacle(problem: Problem, at: Sequence[str]) -> str | None:
    """Return why no box of some tensors can be proved; None if that is not found out.

    Args:
        problem: A problem with one application, of a model without random numbers.
        at: The tensors that may be narrowed.
    """
    graph = problem.calls[0].graph
    names = dict(zip(graph.input_names, problem.calls[0].variables, strict=True))
    boxes = box_of(problem.inputs)
    box = {name: boxes[variable] for name, variable in names.items() if variable is not None}
    steep = any(goal.gradient for goal in problem.goals)
    suspects = _find_suspects(problem, graph)
    analyses = {
        (id(op), runtime): AnalysisUpTo(graph, op, runtimes=(runtime,)) for op in suspects for runtime in _RUNTIMES
    }
    with torch.no_grad():
        draws = list(_draw_weights(graph, box, [name for name in box if name not in at]))
        for draw in draws:
            for op in suspects:
                conditions = (*conditions_of(op), *(gradient_conditions(op) if steep else ()))
                for runtime in _RUNTIMES:
                    if surely_fails(analyses[id(op), runtime], draw.inputs, conditions):
                        return f"`{op.name}` fails whatever they are, for some weights: proved"
        if any(_is_apart(graph, draw, op) for op in suspects for draw in draws):
            return f"`{suspects[0].name}` fails whatever they are, for some weights: proved for kernels with AVX2"
    for draw, op in _draw_failures(problem, graph, box, at):
        if _is_cut_off(graph, draw, op, at):
            return f"`{op.name}` does not depend on them for some weights, and fails: replayed"
    return None


def _find_suspects(problem: Problem, graph: Graph) -> list[Operation]:
    """Return the operators that are open by themselves, not because of others."""
    proof = Prover(problem, ProveConfig(prove_timeout=0.0)).analyse()
    open_ones = {found.node for found in proof.operators.values() if not found.proved and not found.after}
    return [op for op in graph.nodes if op.name in open_ones]


# weights ----------------------------------------------------------------------------------------------------------


def _draw_weights(graph: Graph, box: Mapping[str, Interval], names: Sequence[str]) -> Iterator[_Draw]:
    patterns = {name: list(_patterns(box[name], _constants(graph))) for name in names}
    rng = random.Random(0)
    ends = [{name: box[name].expand()[end] for name in names} for end in (1, 0)]
    for weights in (*ends, *({name: rng.choice(patterns[name]) for name in names} for _ in range(_TRIES))):
        points = {name: Interval.of(value, value, box[name].shape) for name, value in weights.items()}
        yield _Draw([points.get(name, box[name]) for name in graph.input_names])


def _constants(graph: Graph) -> set[float]:
    """Return numbers of the model, and what cancels them."""
    arrays = [x for op in graph.nodes for x in spec_of(op).operands_of(op) if isinstance(x, np.ndarray)]
    found = {float(x.flat[0]) for x in arrays if x.size == 1 and x.dtype.kind == "f"}
    return found | {-number for number in found}


def _patterns(whole: Interval, numbers: set[float]) -> Iterator[Tensor]:
    low, high = whole.expand()
    for number in sorted({0.0, *numbers}):
        if bool((low <= number).all()) and bool((number <= high).all()):
            yield torch.full_like(low, number)
    yield from (low, high)
    for dim in {0, len(whole.shape) - 1} if whole.shape else ():
        shape = [1] * len(whole.shape)
        shape[dim] = whole.shape[dim]
        first = (torch.arange(whole.shape[dim]) == 0).reshape(shape)
        yield from (torch.where(first, high, low), torch.where(first, low, high))


# failures ---------------------------------------------------------------------------------------------------------


def _bounds(graph: Graph, draw: _Draw) -> IntervalAnalysis:
    analysis = IntervalAnalysis(graph, keep=True)
    with torch.no_grad():
        analysis.run(draw.inputs)
    return analysis


def _is_apart(graph: Graph, draw: _Draw, op: Operation) -> bool:
    """Tell whether an operator reads a softmax of logits so far apart that kernels with AVX2 give 0."""
    softmax = next((x for x in spec_of(op).operands_of(op) if _name_of(x) == "Softmax"), None)
    logits = None if softmax is None or _name_of(op) != "Log" else _bounds(graph, draw).bounds_of(softmax.x)
    if logits is None:
        return False
    gaps = logits.lower.amax(-1) - logits.upper.amin(-1)
    return bool(
        (gaps > -max(family.ends("Softmax")[0] for family in families() if family.runtime == "onnxruntime")).any()
    )


def _is_cut_off(graph: Graph, draw: _Draw, op: Operation, at: Sequence[str]) -> bool:
    """Tell whether what an operator reads is the same whatever the inputs are, since something before it is."""
    analysis, moving = _bounds(graph, draw), set(at)
    for inner in topological_order([op]):
        bounds = analysis.bounds_of(inner) if inner is not op else None
        reads = operands_in(inner)
        if any(x.name in moving for x in reads) and not (bounds is not None and bounds.is_point):
            moving.add(inner.name)
    return op.name not in moving


def _draw_failures(
    problem: Problem, graph: Graph, box: Mapping[str, Interval], at: Sequence[str]
) -> Iterator[tuple[_Draw, Operation]]:
    """Yield weights with which an operator fails, replayed, while the tensors at some places are at their centres."""
    centres = {
        name: to_numpy(((x.lower.double() + x.upper.double()) / 2).to(x.dtype).expand(x.shape))
        for name, x in box.items()
    }
    kept = [KeptRange(tensor=n, place="input", lower=centres[n], upper=centres[n], kept=0.0, least=0.0) for n in at]
    for seed in range(_SEEDS):
        config = SearchConfig(timeout=20.0, n_starts=16, n_steps=30, seed=seed, processors=1, prove=False)
        for found in falsify(narrow(problem, kept), config).operators:
            if found.verdict == "violated" and found.counterexample is not None:
                values = {name: torch.from_numpy(np.array(x)) for name, x in found.counterexample.inputs.items()}
                points = {n: Interval.of(x, x, box[n].shape) for n, x in values.items() if n in box and n not in at}
                draw = _Draw([points.get(name, box[name]) for name in graph.input_names])
                yield draw, next(op for op in graph.nodes if op.name == found.node)


def _name_of(field: Any) -> str:
    """Return the ONNX operator of what a node reads; none for a constant."""
    spec = None if field is None or isinstance(field, np.ndarray) else row_of(field)
    return "" if spec is None else spec.op_type
