"""Subgraphs that an input steers: the branches of an `If`, the body of a loop whose length is not known.

Each becomes a graph of its own, over the tensors that it reads from around it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input
from dnnv.nn.utils import TensorDetails

from ranum_falsify.errors import ModelError, ShapesError, UnsupportedOperatorError
from ranum_falsify.network.blackbox import BlackBox
from ranum_falsify.network.construction import Construction, NotUnrolledError
from ranum_falsify.network.fields import initializers_of
from ranum_falsify.network.graph import Graph
from ranum_falsify.network.model_file import check_structure
from ranum_falsify.network.nesting import list_makers, name_of, names_captured
from ranum_falsify.network.order import topological_order
from ranum_falsify.network.registry import row_of
from ranum_falsify.network.tensors import torch_dtype
from ranum_falsify.network.trace import Run, Scope, Traced, UnfitBranch, constant
from ranum_falsify.network.unrolling import check_branch

_MOST_BYTES = 2**28
"""Size of what a loop may collect: each sample of a search has rows of its own."""


def inline_branch(builder: Construction, node: onnx.NodeProto, condition: bool, scope: Scope) -> None:
    """Add the nodes of the branch of an `If` that is always chosen."""
    wanted = "then_branch" if condition else "else_branch"
    graph = next((a.g for a in node.attribute if a.name == wanted), None)
    if graph is None:
        raise ModelError(f"node {node.name or node.output[0]!r} (If) needs attribute {wanted!r}")
    check_branch(node, graph)
    inner = scope.child(initializers_of(graph))
    names = [output.name for output in graph.output]
    order = check_structure(graph, outer=frozenset(scope.names()))
    # What an input decides is named by its path, what is never otherwise as if it had no condition.
    with builder.path.inside(node, wanted, shows=not scope[node.input[0]].is_constant):
        builder.build(order, inner, names)
    for outer_name, name in zip(node.output, names, strict=True):
        scope[outer_name] = inner[name]


def build_branches(
    builder: Construction,
    node: onnx.NodeProto,
    graphs: Mapping[str, onnx.GraphProto],
    scope: Scope,
    fields: dict[str, Any],
) -> list[Traced]:
    """Build the branches as graphs over the tensors they capture; return those tensors as operands."""
    captured = [name for name in names_captured(node) if not scope[name].is_constant]
    fields["captured"] = tuple(scope[name].source for name in captured)
    for attribute, graph in sorted(graphs.items()):
        check_branch(node, graph)
        order = check_structure(graph, outer=frozenset(scope.names()))
        inner = scope.child(initializers_of(graph), is_apart=True)
        inputs = [_declare(builder, inner, name, scope[name]) for name in captured]
        names = [output.name for output in graph.output]
        try:
            with builder.path.inside(node, attribute, names=False):
                builder.build(order, inner, names)
        except UnsupportedOperatorError:
            raise
        except ModelError as error:
            fields[attribute] = UnfitBranch(f"{error}, or bound the input that chooses the branch to one value")
            continue
        fields[attribute] = _close(builder, inner, inputs, names)
    return [scope[name] for name in captured]


def choose_condition(condition: Traced | None, fields: Mapping[str, Any]) -> Traced:
    """Return an example condition that chooses a branch which can run at the given dimensions.

    Raises:
        ShapesError: Neither can, or the condition has not one element.
    """
    assert condition is not None, "an If has a condition"
    chosen = bool(condition.number())
    for value in (chosen, not chosen):
        branch = fields["then_branch" if value else "else_branch"]
        if not isinstance(branch, UnfitBranch):
            return replace(condition, example=torch.full_like(condition.tensor(), value))
    raise ShapesError(branch.error)


def build_body(builder: Construction, node: onnx.NodeProto, scope: Scope) -> Graph:
    """Build the body of a loop as a graph.

    Its inputs are the number of an iteration, the condition, the states, and the tensors that it captures.

    Raises:
        NotUnrolledError: The iterations do not hand on tensors of the same shapes.
        ModelError: An iteration cannot run.
    """
    body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
    order = check_structure(body, outer=frozenset(scope.names()))
    captured, states = names_captured(node), list(node.input[2:])
    names, taken = [info.name for info in body.output], [info.name for info in body.input]
    if len(taken) != 2 + len(states) or len(names) < 1 + len(states):
        raise NotUnrolledError("its body does not take what it is given")
    if not all(scope[name].fixed_shape for name in (*states, *captured)):
        raise NotUnrolledError("an input decides the shape of what its iterations read")
    steering = [constant(np.array(0, np.int64)), constant(np.array(True))]
    inner = scope.child(initializers_of(body), is_apart=True)
    given = zip((*taken, *captured), (*steering, *(scope[name] for name in (*states, *captured))), strict=True)
    inputs = [_declare(builder, inner, name, traced) for name, traced in given]
    with builder.path.inside(node, "body"):
        builder.build(order, inner, names)
        for name, before in zip(names[1:], states, strict=False):
            _check_state(inner[name], scope[before].details)
        return _close(builder, inner, inputs, names)


def describe_written(
    builder: Construction, node: onnx.NodeProto, body: Graph, scope: Scope
) -> list[TensorDetails] | None:
    """Return shape and dtype of what a loop writes, from its body; None if it collects rows and their number varies.

    Args:
        builder: Builds the graph that the loop belongs to.
        node: The loop.
        body: Its body, from :func:`build_body`.
        scope: What it reads.

    Raises:
        ModelError: The rows are too large.
    """
    states = [scope[name].details for name in node.input[2:]]
    names = body.output_names[1 + len(states) :]
    if not any(node.output[len(states) :]):
        return states
    limit, condition = (builder.decide(scope[name]) if name else None for name in node.input[:2])
    runs = not node.input[1] or condition == 1
    if limit is None or not runs or not hands_on_condition(body) or not all(name in body.shapes for name in names):
        return None
    limit = max(limit, 0)
    rows = [TensorDetails((limit, *body.shapes[name].shape), body.shapes[name].dtype) for name in names]
    size = sum(math.prod(row.shape) * np.dtype(row.dtype).itemsize for row in rows)
    if size > _MOST_BYTES:
        raise ModelError(
            f"node {name_of(node)!r} ({node.op_type}): its {limit:,} iterations collect {size:,} bytes, "
            f"and no more than {_MOST_BYTES:,} are looked at; give it fewer iterations"
        )
    return [*states, *rows]


def hands_on_condition(body: Graph) -> bool:
    """Tell whether a loop with this body ends at its trip count only: a condition that is true stays true."""
    ends, condition = body.output_operations[0], body.inputs[1]
    before = topological_order([ends])
    others = (op for op in before if op is not condition)
    if any(isinstance(op, Input) or isinstance(op, BlackBox) or _is_random(op) for op in others):
        return False
    true = [torch.ones(()).to(torch_dtype(one.dtype)).expand(one.shape) for one in body.input_details]
    (found,) = body.cut_after([ends]).evaluate(true)
    return bool(found.all())


def _is_random(op: Operation) -> bool:
    spec = row_of(op)
    return spec is not None and spec.is_random(op)


def _check_state(after: Traced, before: TensorDetails) -> None:
    shapes = tuple(after.details.shape), tuple(before.shape)
    if not after.fixed_shape or shapes[0] != shapes[1] or after.details.dtype != before.dtype:
        raise NotUnrolledError("its iterations hand on tensors of several shapes")


def _declare(builder: Construction, inner: Scope, name: str, outer: Traced) -> Input:
    """Add a tensor from around a subgraph to it, as an input."""
    op = Input(np.array(outer.details.shape, dtype=np.int64), outer.details.dtype, name=builder.names.take(name))
    run = Run(lambda: (outer.tensor(),), [outer])
    inner.define(name, op, outer.details, run, fixed_shape=outer.fixed_shape)
    return op


def _close(builder: Construction, inner: Scope, inputs: Sequence[Input], names: Sequence[str]) -> Graph:
    """Return what was built in a scope as a graph."""
    outputs = [builder.as_operation(inner, name) for name in names]
    return Graph(
        outputs,
        inputs=tuple(inputs),
        output_names=tuple(names),
        details=inner.details,
        opset=builder.opset,
        options=builder.options,
        folded=list_makers((*outputs, *inner.conditioned), builder.folded),
        shapes={name: inner[name].details for name in names if inner[name].fixed_shape},
        conditioned=inner.conditioned,
    )
