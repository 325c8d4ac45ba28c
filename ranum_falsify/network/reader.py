"""ONNX to operation graph: generic over operators, driven by their schemas and rows.

Nodes are built in topological order and evaluated once on an example input while they are built.  That gives every
tensor's shape, folds what no input reaches (shape arithmetic included) and resolves `If` on constant conditions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect
from dnnv.nn.utils import TensorDetails

from ranum_falsify.errors import ModelError, UnsupportedOperatorError, UnsupportedTypeError, is_out_of_memory
from ranum_falsify.network.evaluate import apply
from ranum_falsify.network.explained import explain_errors
from ranum_falsify.network.fields import array_of, fields_of
from ranum_falsify.network.functions import inline_functions
from ranum_falsify.network.graph import Graph, ReadOptions
from ranum_falsify.network.guards import TOO_MUCH_MEMORY
from ranum_falsify.network.lowering import lower
from ranum_falsify.network.model_file import (
    check_structure,
    fix_model,
    free_model,
    is_given,
    load_model,
    opset_of,
)
from ranum_falsify.network.naming import UniqueNames
from ranum_falsify.network.nesting import attribute_graphs, names_captured, names_read
from ranum_falsify.network.registry import OperatorSpec, find, make_node, schema_of
from ranum_falsify.network.tensors import ONNX_TO_NUMPY, details_of, to_numpy, torch_dtype
from ranum_falsify.network.trace import Run, Scope, Traced, UnfitBranch, constant

__all__ = ["read"]


def read(
    source: Path | str | onnx.ModelProto,
    *,
    dims: Mapping[str, int] | None = None,
    free: Sequence[str] = (),
    fixed: Mapping[str, np.ndarray] | None = None,
) -> Graph:
    """Read an ONNX model.

    Args:
        source: A file or a loaded model.
        dims: Sizes of symbolic dimensions, by name or as `input:axis`; 1 where not given.
        free: Initializers that become inputs, after the others.
        fixed: Inputs that become constants.

    Raises:
        ModelError: The model cannot be read; one line says why and what to do.
    """
    options = ReadOptions(dims=dict(dims or {}), free=tuple(free), fixed=dict(fixed or {}))
    if isinstance(source, onnx.ModelProto):
        return _read(inline_functions(source), options)
    return _read(load_model(Path(source)), options, where=str(source))


def _read(
    model: onnx.ModelProto,
    options: ReadOptions,
    known: Mapping[str, TensorDetails] = MappingProxyType({}),
    *,
    where: str = "model",
) -> Graph:
    """Read a loaded model.

    Args:
        model: The model, without functions.
        options: How to read it.
        known: Shape and dtype of the tensors of the model for which both are the same for every input and all weights;
            the nodes that write them run only if their values are needed.
        where: The model's name in errors.
    """
    try:
        return _Reader(model, options, known).graph()
    except RecursionError as error:
        raise ModelError(f"{where}: subgraphs are nested too deeply; flatten them") from error
    except ModelError as error:
        raise type(error)(str(error) if str(error).startswith(where) else f"{where}: {error}") from error
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise ModelError(f"{where}: {TOO_MUCH_MEMORY}") from error
        raise


class _Reader:
    def __init__(self, model: onnx.ModelProto, options: ReadOptions, known: Mapping[str, TensorDetails]) -> None:
        self.source = model
        self.known = known
        self.model = lower(fix_model(free_model(model, options.free), options.fixed))
        self.options = options
        self.opset = opset_of(model)
        self.opsets = {entry.domain: entry.version for entry in model.opset_import}
        self.notices, self.unset_dims = list[str](), dict[str, None]()
        self.folded: list[tuple[Operation, tuple[np.ndarray, ...]]] = []
        self.names = UniqueNames()
        self.unused_dims = set(options.dims)

    def graph(self) -> Graph:
        order = check_structure(self.model.graph)
        self._refuse_unsupported(self.model.graph)
        scope = Scope(_initializers(self.model.graph))
        inputs = self._inputs(scope)
        if self.unused_dims:
            known = ", ".join(sorted(self._collect_symbolic())) or "none"
            raise ModelError(f"--dim {sorted(self.unused_dims)[0]}: no such symbolic dimension; the model has {known}")
        names = [output.name for output in self.model.graph.output]
        self._build(order, scope, names)
        shapes = {name: traced.details for name, traced in scope.tensors.items() if traced.fixed_shape}
        return Graph(
            [self._as_operation(scope, name) for name in names],
            inputs=inputs,
            output_names=tuple(names),
            details=scope.details,
            source=self.source,
            opset=self.opset,
            options=self.options,
            notices=tuple(self.notices),
            unset_dims=tuple(self.unset_dims),
            folded=tuple(self.folded),
            shapes=shapes,
            read_again=partial(_read, self.source, known=shapes),
        )

    # inputs -----------------------------------------------------------------------------------------------------

    def _inputs(self, scope: Scope) -> tuple[Input, ...]:
        inputs = []
        for info in self.model.graph.input:
            if info.name in scope.tensors:
                continue
            shape, dtype = self._shape(info), _element_type(info)
            op = Input(np.array(shape, dtype=np.int64), dtype, name=self.names.take(info.name))
            run = Run(partial(_zeros, info.name, shape, dtype))
            scope.define(info.name, op, TensorDetails(shape, dtype), run)
            if not self.known:
                run.make_examples()
            inputs.append(op)
        return tuple(inputs)

    def _shape(self, info: onnx.ValueInfoProto) -> tuple[int, ...]:
        if not info.type.tensor_type.HasField("shape"):
            raise ModelError(f"input {info.name!r} has no shape; export the model with input shapes")
        shape = []
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if is_given(dim):
                shape.append(dim.dim_value)
                continue
            place = f"{info.name}:{axis}"
            key = place if place in self.options.dims else dim.dim_param
            self.unused_dims -= {place, dim.dim_param}
            size = self.options.dims.get(key, 1)
            if size < 1:
                raise ModelError(f"--dim {key}={size}: a dimension must be at least 1")
            if key not in self.options.dims:
                named = dim.dim_param if dim.dim_param not in ("", "?", "-1") else place
                self.unset_dims[named] = None
                self.notices.append(
                    f"symbolic dimension {named} of input {info.name!r} is taken as 1; set it with --dim {named}=VALUE"
                )
            shape.append(size)
        return tuple(shape)

    def _collect_symbolic(self) -> Iterable[str]:
        for info in self.model.graph.input:
            for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                if not is_given(dim):
                    yield dim.dim_param or f"{info.name}:{axis}"

    # nodes ------------------------------------------------------------------------------------------------------

    def _refuse_unsupported(self, graph: onnx.GraphProto) -> None:
        missing: Counter[str] = Counter()
        pending = [graph]
        while pending:
            for node in pending.pop().node:
                domain = "" if node.domain == "ai.onnx" else node.domain
                if find(node.op_type, domain) is None or self._schema(node) is None:
                    missing[f"{domain}::{node.op_type}" if domain else node.op_type] += 1
                pending.extend(attribute_graphs(node))
        if missing:
            listed = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
            raise UnsupportedOperatorError(
                f"{len(missing)} unsupported operators at opset {self.opset} (with their number of nodes): {listed}; "
                "`ranum-falsify operators` lists what is supported"
            )

    def _schema(self, node: onnx.NodeProto) -> onnx.defs.OpSchema | None:
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset = self.opset if domain == "" else self.opsets.get(domain, 1)
        schema = schema_of(node.op_type, domain, opset)
        if schema is None or not schema.deprecated:
            return schema
        # GroupNormalization was deprecated as soon as it was defined, yet models have it and ONNX Runtime runs it.
        return schema if schema_of(node.op_type, domain, schema.since_version - 1) is None else None

    def _build(self, order: Sequence[onnx.NodeProto], scope: Scope, keep: Sequence[str]) -> None:
        reads = [list(names_read(node)) for node in order]
        last = {name: position for position, names in enumerate(reads) for name in names}
        for name in keep:
            last.pop(name, None)
        for position, node in enumerate(order):
            if node.op_type == "If" and (condition := scope.constant_value(node.input[0])) is not None:
                self._inline(node, bool(condition.reshape(-1)[0]), scope)
            else:
                self._add(node, scope)
            for name in reads[position]:
                if last.get(name) == position:
                    scope.forget_example(name)

    def _add(self, node: onnx.NodeProto, scope: Scope) -> None:
        spec, schema = find(node.op_type, node.domain), self._schema(node)
        assert spec is not None and schema is not None, "unsupported operators are refused before"
        subgraphs = {a.name: a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH}
        traced = {name: scope[name] for name in node.input if name}
        fields, operands = fields_of(node, spec, schema, traced, skip=subgraphs)
        fields["opset"] = self.opset
        if subgraphs:
            captured = self._branches(node, subgraphs, scope, fields)
            operands = [_choose_condition(operands[0], fields), *captured]
        fixed_shape = _has_fixed_shape(spec, operands)
        op = make_node(spec, node.output[0], fields)
        foldable = not spec.is_random(op) and all(t is None or t.is_constant for t in operands)
        if foldable or (spec.shape_only and fixed_shape):
            if spec.shape_only:
                operands = [None if t is None else t.make_placeholder() for t in operands]
            values = self._run(node, spec, op, operands)
            with explain_errors(node, operands):
                arrays = tuple(to_numpy(value) for value in values)
            scope.tensors.update(zip(node.output, map(constant, arrays), strict=False))
            if foldable:
                named = make_node(spec, node.name or f"{node.op_type}_{node.output[0]}", fields)
                self.folded.append((named, arrays))
            return
        op = make_node(spec, self.names.take(node.name or f"{node.op_type}_{node.output[0]}"), fields)
        run = Run(partial(self._run, node, spec, op, operands), operands)
        known = self._find_known_details(node, scope) if fixed_shape else None
        values = run.evaluate() if known is None else ()
        if spec.is_random(op):
            self.notices.append(f"node {op.name!r} ({node.op_type}) draws random numbers: results are nondeterministic")
        written = known or [details_of(value) for value in values]
        for index, (name, details) in enumerate(zip(node.output, written, strict=False)):
            if name:
                several = len(node.output) > 1
                source = OutputSelect(op, index, name=self.names.take(f"{op.name}:{name}")) if several else op
                scope.define(name, source, details, run, fixed_shape=fixed_shape)
            else:
                run.outputs.append(None)
        run.keep(values)

    def _find_known_details(self, node: onnx.NodeProto, scope: Scope) -> list[TensorDetails] | None:
        """Return shape and dtype of each output where they are known without a run; never in a subgraph."""
        if scope.parent is not None or not all(name in self.known for name in node.output):
            return None
        return [self.known[name] for name in node.output]

    def _run(
        self, node: onnx.NodeProto, spec: OperatorSpec, op: Operation, operands: Sequence[Traced | None]
    ) -> tuple[torch.Tensor, ...]:
        with explain_errors(node, operands), torch.no_grad():
            return apply(spec, op, [None if t is None else t.value_for(spec, i) for i, t in enumerate(operands)])

    # subgraphs --------------------------------------------------------------------------------------------------

    def _inline(self, node: onnx.NodeProto, condition: bool, scope: Scope) -> None:
        wanted = "then_branch" if condition else "else_branch"
        graph = next((a.g for a in node.attribute if a.name == wanted), None)
        if graph is None:
            raise ModelError(f"node {node.name or node.output[0]!r} (If) needs attribute {wanted!r}")
        inner = scope.child(_initializers(graph))
        names = [output.name for output in graph.output]
        self._build(check_structure(graph, outer=frozenset(scope.names())), inner, names)
        for outer_name, name in zip(node.output, names, strict=True):
            scope[outer_name] = inner[name]

    def _branches(
        self, node: onnx.NodeProto, graphs: Mapping[str, onnx.GraphProto], scope: Scope, fields: dict[str, Any]
    ) -> list[Traced]:
        """Build the branches as graphs over the tensors they capture; return those tensors as operands."""
        captured = [name for name in names_captured(node) if not scope[name].is_constant]
        fields["captured"] = tuple(scope[name].source for name in captured)
        for attribute, graph in sorted(graphs.items()):
            order = check_structure(graph, outer=frozenset(scope.names()))
            inner = scope.child(_initializers(graph))
            inputs = []
            for name in captured:
                outer = scope[name]
                shape, dtype = outer.details.shape, outer.details.dtype
                op = Input(np.array(shape, dtype=np.int64), dtype, name=self.names.take(name))
                run = Run(partial(_one, outer.tensor), [outer])
                inner.define(name, op, outer.details, run, fixed_shape=outer.fixed_shape)
                inputs.append(op)
            names = [output.name for output in graph.output]
            try:
                self._build(order, inner, names)
            except ModelError as error:
                fields[attribute] = UnfitBranch(f"{error}, or bound the input that chooses the branch to one value")
                continue
            outputs = [self._as_operation(inner, name) for name in names]
            fields[attribute] = Graph(
                outputs,
                inputs=tuple(inputs),
                output_names=tuple(names),
                details=inner.details,
                opset=self.opset,
                options=self.options,
            )
        return [scope[name] for name in captured]

    # names ------------------------------------------------------------------------------------------------------

    def _as_operation(self, scope: Scope, name: str) -> Operation:
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


def _initializers(graph: onnx.GraphProto) -> dict[str, Traced]:
    dense = {tensor.name: constant(_array(tensor.name, tensor)) for tensor in graph.initializer}
    return dense | {s.values.name: constant(_array(s.values.name, s)) for s in graph.sparse_initializer}


def _one(value: Callable[[], torch.Tensor]) -> tuple[torch.Tensor]:
    return (value(),)


def _zeros(name: str, shape: tuple[int, ...], dtype: np.dtype) -> tuple[torch.Tensor]:
    try:
        return (torch.zeros(shape, dtype=torch_dtype(dtype)),)
    except RuntimeError as error:
        raise ModelError(f"input {name!r} of shape {list(shape)} does not fit into memory; make it smaller") from error


def _has_fixed_shape(spec: OperatorSpec, operands: Sequence[Traced | None]) -> bool:
    folded = [None if t is None else t.is_constant for t in operands]
    return all(t is None or t.fixed_shape for t in operands) and spec.has_fixed_shape(folded)


def _choose_condition(condition: Traced | None, fields: Mapping[str, Any]) -> Traced:
    """Return an example condition that chooses a branch which can run at the given dimensions.

    Raises:
        ModelError: Neither can.
    """
    assert condition is not None, "an If has a condition"
    chosen = bool(condition.tensor().reshape(-1)[0])
    for value in (chosen, not chosen):
        branch = fields["then_branch" if value else "else_branch"]
        if not isinstance(branch, UnfitBranch):
            return replace(condition, example=torch.full_like(condition.tensor(), value))
    raise ModelError(branch.error)


def _element_type(info: onnx.ValueInfoProto) -> np.dtype:
    if not info.type.HasField("tensor_type"):
        raise UnsupportedTypeError(f"input {info.name!r} is not a tensor; only tensors are supported")
    try:
        dtype = ONNX_TO_NUMPY[info.type.tensor_type.elem_type]
        torch_dtype(dtype)
        if dtype.kind == "c":
            raise UnsupportedTypeError("complex numbers have no order, so no box bounds them")
    except (KeyError, UnsupportedTypeError) as error:
        kind = info.type.tensor_type.elem_type
        known = onnx.TensorProto.DataType.Name(kind) if kind in onnx.TensorProto.DataType.values() else kind
        raise UnsupportedTypeError(f"input {info.name!r} has element type {known}, which is not supported") from error
    return dtype


def _array(name: str, tensor: onnx.TensorProto | onnx.SparseTensorProto) -> np.ndarray:
    try:
        return array_of(tensor)
    except (ValueError, TypeError, KeyError, IndexError, RuntimeError, AssertionError) as error:
        why = str(error)[:80]
        raise ModelError(f"initializer {name!r} is malformed ({why}); export the model again") from error
