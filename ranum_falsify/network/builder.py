"""Nodes of an operation graph from those of an ONNX graph, and its subgraphs.

Nodes are built in topological order and evaluated once on an example input while they are built.  That gives every
tensor's shape, folds what no input reaches (shape arithmetic included) and resolves `If` on constant conditions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect
from dnnv.nn.utils import TensorDetails

from ranum_falsify.errors import (
    ModelError,
    ShapesError,
    SmallOperandError,
    UnsupportedAttributeError,
    UnsupportedOperatorError,
)
from ranum_falsify.network.blackbox import describe_domain, is_bounded, make_engine, spec_of_black_box, title_of
from ranum_falsify.network.construction import Construction, NotUnrolledError, TooLargeError
from ranum_falsify.network.error_context import explain_errors
from ranum_falsify.network.evaluate import apply
from ranum_falsify.network.fields import fields_of
from ranum_falsify.network.graph import Graph
from ranum_falsify.network.nesting import attribute_graphs, names_captured, names_read
from ranum_falsify.network.registry import OperatorSpec, find, make_node, schema_of, spec_of
from ranum_falsify.network.subgraphs import (
    build_body,
    build_branches,
    choose_condition,
    describe_written,
    inline_branch,
)
from ranum_falsify.network.tensors import details_of, to_numpy, torch_dtype
from ranum_falsify.network.trace import Run, Scope, Traced, constant
from ranum_falsify.network.unrolling import is_loop, unroll

_ADVICE = "write it with operators of ONNX, as the body of a local function of the model for instance"


class GraphBuilder(Construction):
    """Builds the nodes of one model."""

    def check_operators(self) -> None:
        """Look for operators without a row.

        Raises:
            UnsupportedOperatorError: There are some, and the options say that they are refused.
        """
        if self.options.strict and (refusal := self._list_unsupported()):
            raise UnsupportedOperatorError(f"{refusal}; `ranum-falsify operators` lists what is supported")

    def _list_unsupported(self) -> str:
        """Return the sentence that lists all operators without a row; an empty one if there are none."""
        missing: Counter[str] = Counter()
        pending = [self.model.graph]
        while pending:
            for node in pending.pop().node:
                known = is_loop(node) or find(node.op_type, node.domain) is not None
                if not known or self.find_schema(node) is None:
                    missing[title_of(node.op_type, node.domain)] += 1
                pending.extend(attribute_graphs(node))
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
        noun, whose = ("operator", "its") if len(missing) == 1 else ("operators", "their")
        head = f"{len(missing)} unsupported {noun} at opset {self.opset} (with {whose} number of nodes)"
        return f"{head}: {listed}" if missing else ""

    def find_schema(self, node: onnx.NodeProto) -> onnx.defs.OpSchema | None:
        """Return the schema of a node, None where its opset has none."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset = self.opset if domain == "" else self.opsets.get(domain, 1)
        schema = schema_of(node.op_type, domain, opset)
        if schema is None or not schema.deprecated:
            return schema
        # GroupNormalization was deprecated as soon as it was defined, yet models have it and ONNX Runtime runs it.
        return schema if schema_of(node.op_type, domain, schema.since_version - 1) is None else None

    def build(self, order: Sequence[onnx.NodeProto], scope: Scope, keep: Sequence[str]) -> None:
        """Add nodes, in topological order, to a scope.

        Args:
            order: The nodes.
            scope: What they read, and what they write.
            keep: Names whose values on the example input are needed afterwards.
        """
        reads = [list(names_read(node)) for node in order]
        last = {name: position for position, names in enumerate(reads) for name in names}
        for name in keep:
            last.pop(name, None)
        for position, node in enumerate(order):
            if node.op_type == "If" and (condition := self.decide(scope[node.input[0]])) is not None:
                inline_branch(self, node, bool(condition), scope)
            elif is_loop(node):
                self._unroll(node, scope)
            else:
                self.add(node, scope)
            for name in reads[position]:
                if last.get(name) == position:
                    scope.forget_example(name)

    def add(self, node: onnx.NodeProto, scope: Scope) -> None:
        """Add a node, and what it writes to the scope."""
        spec, schema = find(node.op_type, node.domain), self.find_schema(node)
        if spec is None or schema is None:
            self._add_black_box(node, scope)
            return
        try:
            self._add_known(node, spec, schema, scope)
        except UnsupportedAttributeError as error:
            if self.options.strict:
                raise
            self.is_too_small |= isinstance(error, SmallOperandError)
            self._add_black_box(node, scope, str(error.__cause__ or error))

    def _add_known(self, node: onnx.NodeProto, spec: OperatorSpec, schema: onnx.defs.OpSchema, scope: Scope) -> None:
        subgraphs = {a.name: a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH}
        traced = {name: scope[name] for name in node.input if name}
        fields, operands = fields_of(node, spec, schema, traced, skip=subgraphs)
        fields |= {"opset": self.opset, "output_names": self.path.name_outputs(node)}
        if subgraphs:
            captured = build_branches(self, node, subgraphs, scope, fields)
            operands = [choose_condition(operands[0], fields), *captured]
        fixed_shape = _has_fixed_shape(spec, operands)
        op = make_node(spec, node.output[0], fields)
        foldable = not spec.is_random(op) and all(t is None or t.is_constant for t in operands)
        if foldable or (spec.shape_only and fixed_shape):
            if spec.shape_only:
                operands = [None if t is None else t.make_placeholder() for t in operands]
            values = self._run(node, spec, op, operands)
            with explain_errors(node, operands):
                arrays = tuple(to_numpy(value) for value in values)
            _check_outputs(node, self.path.title_of(node), len(arrays))
            scope.tensors.update(zip(node.output, map(constant, arrays), strict=False))
            if foldable:
                named = make_node(spec, self.path.title_of(node), fields)
                self.folded.append((named, arrays))
            return
        op = make_node(spec, self.path.title_of(node), fields)
        self._write(node, op, operands, scope, fixed_shape=fixed_shape)
        if spec.is_random(op):
            self.notices.append(f"node {op.name!r} ({node.op_type}) draws random numbers: results are nondeterministic")

    def _add_black_box(self, node: onnx.NodeProto, scope: Scope, why: str = "", body: Graph | None = None) -> None:
        """Add a node that only ONNX Runtime runs; it is never a constant, as no proof may rest on what it gives once.

        Args:
            node: The node.
            scope: What it reads, and what it writes.
            why: Why nothing is known of it, if not for want of a row.
            body: What it repeats, which bounds it all the same.
        """
        title = title_of(node.op_type, node.domain)
        why = f"{title}: {why.removeprefix(f'{title}: ')}" if why else f"operator {title} is not supported"
        if self.options.strict and body is None:
            raise UnsupportedOperatorError(f"node {self.path.title_of(node)!r}: {why}; --strict refuses it")
        captured = names_captured(node)
        reads = [(name, scope[name] if name else None) for name in (*node.input, *captured)]
        try:
            engine = make_engine(node, reads, self.opsets, self.model.ir_version)
        except UnsupportedOperatorError as error:
            listed = self._list_unsupported() or f"node {self.path.title_of(node)!r}: {why}"
            raise UnsupportedOperatorError(f"{listed}; {node.op_type}: {error}; {_ADVICE}") from error
        fields: dict[str, Any] = {
            "x": tuple(None if t is None else t.source for _, t in reads),
            "captured": tuple(captured) if any(attribute_graphs(node)) else None,
        }
        fields |= {
            "proto": node,
            "engine": engine,
            "why": why,
            "body": body,
            "output_names": self.path.name_outputs(node),
        }
        fields |= {"version": self.opsets.get(node.domain, 1), "opset": self.opset}
        domain = "" if node.domain == "ai.onnx" else node.domain
        written = None if body is None else describe_written(self, node, body, scope)
        stand_in = None
        if written is not None:
            engine.expect(written)
            stand_in = partial(_stand_in, [scope[name] for name in node.input[2:]], written)
        rigid = engine.rigid or written is not None
        spec = spec_of_black_box(node.op_type, domain, rigid=rigid, bounded=body is not None)
        op = make_node(spec, self.path.title_of(node), fields)
        operands = [traced for _, traced in reads]
        self._write(node, op, operands, scope, fixed_shape=_has_fixed_shape(spec, operands), stand_in=stand_in)
        self._notice(op.name, why, domain, bounded=body is not None)

    def _notice(self, name: str, why: str, domain: str, *, bounded: bool) -> None:
        """Say what it means that only ONNX Runtime runs a node, whose result has bounds all the same, or none."""
        so = "nothing is known of its result, and the network is never proved"
        if bounded:
            so = "its bounds are those of any number of iterations"
        self.notices.append(f"node {name!r}: {why}, so {so}; ONNX Runtime evaluates it")
        if (known := describe_domain(domain)) and known not in self.notices:
            self.notices.append(known)

    def _write(
        self,
        node: onnx.NodeProto,
        op: Operation,
        operands: Sequence[Traced | None],
        scope: Scope,
        *,
        fixed_shape: bool,
        stand_in: Callable[[], tuple[torch.Tensor, ...]] | None = None,
    ) -> None:
        """Add what a node writes to a scope.

        Args:
            node: The node.
            op: The operation that it becomes.
            operands: What it reads.
            scope: Where its outputs go.
            fixed_shape: Whether their shapes are the same for every input.
            stand_in: Returns tensors of the same shapes and dtypes, as good an example; a loop may not end on it.
        """
        evaluate: Callable[[], tuple[torch.Tensor, ...]] = partial(self._run, node, spec_of(op), op, operands)
        if stand_in is not None and self.options.example is None:
            evaluate = stand_in
        chosen, size = spec_of(op).chosen, self.options.sizes.get(op.output_names[0])
        if chosen is not None and size is not None:
            evaluate = partial(_resize, evaluate, chosen.axis(op), size)
        run = Run(evaluate, operands)
        known = self._find_known_details(node, scope) if fixed_shape else None
        if fixed_shape and scope.parent is None and stand_in is None and (known is None or node.domain):
            # A node that ONNX Runtime's optimiser made ran nowhere yet, and its row may refuse it.
            is_ready = all(t is None or t.has_value for t in operands)
            known = None if is_ready else self._find_details_without(node, op, operands) or known
        values = run.evaluate() if known is None else ()
        op.name = self.names.take(op.name)
        if (origin := self.path.origin_of(node)) is not None:
            self.origins[op.name] = origin
        written = known or [details_of(value) for value in values]
        _check_outputs(node, op.name, len(written))
        sources = list[Operation]()
        for index, (name, details) in enumerate(zip(node.output, written, strict=False)):
            if name:
                several = len(node.output) > 1
                source = OutputSelect(op, index, name=self.names.take(f"{op.name}:{name}")) if several else op
                scope.define(name, source, details, run, fixed_shape=fixed_shape)
                sources.append(source)
            else:
                run.outputs.append(None)
        if spec_of(op).is_conditioned(op):
            scope.conditioned += sources[:1]
        with explain_errors(node, operands):
            self.is_too_small |= _is_refused(op, operands)
        run.keep(values)

    def _find_known_details(self, node: onnx.NodeProto, scope: Scope) -> list[TensorDetails] | None:
        """Return shape and dtype of each output where they are known without a run; never in a subgraph."""
        if scope.parent is not None or not all(name in self.known for name in node.output):
            return None
        return [self.known[name] for name in node.output]

    def _find_details_without(
        self, node: onnx.NodeProto, op: Operation, operands: Sequence[Traced | None]
    ) -> list[TensorDetails] | None:
        """Return shape and dtype of each output, the same for all operands, if values of some are not there yet."""
        waiting = [t for t in operands if t is not None and not t.has_value]
        if not waiting or not all(_may_be_zero(t.details.dtype) for t in waiting):
            return None
        given = [t.make_placeholder() if t in waiting else t for t in operands]
        return [details_of(value) for value in self._run(node, spec_of(op), op, given)]

    def _run(
        self, node: onnx.NodeProto, spec: OperatorSpec, op: Operation, operands: Sequence[Traced | None]
    ) -> tuple[torch.Tensor, ...]:
        with explain_errors(node, operands), torch.no_grad():
            values = [None if t is None else t.value_for(spec, i) for i, t in enumerate(operands)]
            return apply(spec, op, values, example=True)

    # subgraphs --------------------------------------------------------------------------------------------------

    def _unroll(self, node: onnx.NodeProto, scope: Scope) -> None:
        """Add the nodes of all iterations, or the loop as one node.

        Raises:
            ShapesError: Neither can be: ONNX Runtime knows loops, but takes no operands of these shapes.
        """
        folded, notices, names = len(self.folded), len(self.notices), self.names.copy()
        conditioned = len(scope.conditioned)
        try:
            unroll(self, node, scope)
        except NotUnrolledError as error:
            if isinstance(error, TooLargeError) and self.path.is_nested:
                raise
            del self.folded[folded:], self.notices[notices:], scope.conditioned[conditioned:]
            self.names = names
            why, body = self._build_body(node, scope, error)
            try:
                self._add_black_box(node, scope, why, body)
            except UnsupportedOperatorError as refusal:
                if self.options.strict:
                    raise
                raise ShapesError(str(refusal)) from refusal

    def _build_body(self, node: onnx.NodeProto, scope: Scope, error: NotUnrolledError) -> tuple[str, Graph | None]:
        """Return why a loop is not unrolled, and what it repeats; None where that says nothing of the loop."""
        if not is_bounded(node.op_type, node.domain):
            return str(error), None
        folded, notices, names = len(self.folded), len(self.notices), self.names.copy()
        try:
            return str(error), build_body(self, node, scope)
        except (ModelError, NotUnrolledError) as reason:
            del self.folded[folded:], self.notices[notices:]
            self.names = names
            return f"{error}, and {reason}" if isinstance(reason, NotUnrolledError) else str(error), None

    # names ------------------------------------------------------------------------------------------------------

    def as_operation(self, scope: Scope, name: str) -> Operation:
        """Return the operation that writes a tensor, an Identity for a constant."""
        traced = scope[name]
        if isinstance(traced.source, Operation):
            return traced.source
        identity = find("Identity", "")
        assert identity is not None, "the row of Identity is always there"
        schema = schema_of("Identity", "", self.opset)
        assert schema is not None, "every opset has Identity"
        fields = {"x": traced.source, "version": schema.since_version, "opset": self.opset, "output_names": (name,)}
        op = make_node(identity, self.names.take(f"Constant_{name}"), fields)
        scope.define(name, op, traced.details, Run(partial(_one, traced.tensor)))
        return op


def _one(value: Callable[[], torch.Tensor]) -> tuple[torch.Tensor]:
    return (value(),)


def _resize(value: Callable[[], tuple[torch.Tensor, ...]], axis: int, size: int) -> tuple[torch.Tensor]:
    (tensor,) = value()
    shape = list(tensor.shape)
    shape[axis] = size
    return (tensor.new_zeros(shape),)


def _check_outputs(node: onnx.NodeProto, title: str, results: int) -> None:
    if any(node.output[results:]):
        raise ModelError(f"node {title!r} ({node.op_type}) has {len(node.output)} outputs for {results} results")


def _has_fixed_shape(spec: OperatorSpec, operands: Sequence[Traced | None]) -> bool:
    folded = [None if t is None else t.is_constant for t in operands]
    return all(t is None or t.fixed_shape for t in operands) and spec.has_fixed_shape(folded)


def _is_refused(op: Operation, operands: Sequence[Traced | None]) -> bool:
    """Tell whether shapes and constants alone violate a condition of ONNX Runtime's."""
    spec = spec_of(op)
    given = {name: t for name, t in zip(spec.operands, operands, strict=False) if t is not None}
    decided = [
        condition
        for condition in spec.valid
        if condition.refuses
        and condition.decided_by
        and all(given[x].is_constant for x in condition.decided_by if x in given)
    ]
    if not decided:
        return False
    tensors = {name: (t if t.is_constant else t.make_placeholder()).tensor() for name, t in given.items()}
    return any(bool((condition.margin(op, tensors) < 0).any()) for condition in decided)


def _stand_in(states: Sequence[Traced], written: Sequence[TensorDetails]) -> tuple[torch.Tensor, ...]:
    """Return what a loop might write: the states that it begins with, and zeros, of which one is stored, for rows."""
    rows = written[len(states) :]
    zeros = (torch.zeros((), dtype=torch_dtype(one.dtype)).expand(tuple(one.shape)) for one in rows)
    return (*(traced.tensor() for traced in states), *zeros)


def _may_be_zero(dtype: np.dtype) -> bool:
    """Tell whether zeros are as good an example as others: wide integers may be sizes, axes or counts."""
    return np.issubdtype(dtype, np.floating) or dtype in (np.int8, np.uint8)
