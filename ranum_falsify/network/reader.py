"""ONNX to operation graph: generic over operators, driven by their schemas and rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import torch
from dnnv.nn.operations import Input
from dnnv.nn.utils import TensorDetails

from ranum_falsify.errors import ModelError, UnsupportedTypeError, is_out_of_memory
from ranum_falsify.network.blackbox import is_black_box
from ranum_falsify.network.builder import GraphBuilder
from ranum_falsify.network.fields import initializers_of
from ranum_falsify.network.functions import inline_functions
from ranum_falsify.network.graph import Graph
from ranum_falsify.network.initializer_notices import describe_stored_infinities
from ranum_falsify.network.model_file import (
    check_structure,
    fix_model,
    free_model,
    is_given,
    load_model,
)
from ranum_falsify.network.naming import list_names
from ranum_falsify.network.narrow import widen_numbers
from ranum_falsify.network.resource_limits import TOO_MUCH_MEMORY
from ranum_falsify.network.sequence_accumulators import collect_lists
from ranum_falsify.network.shaped import ReadOptions
from ranum_falsify.network.size_search import find_sizes, symbolic_name
from ranum_falsify.network.string_inputs import describe_strings, number_strings
from ranum_falsify.network.tensorise import lower
from ranum_falsify.network.tensors import ONNX_TO_NUMPY, to_torch, torch_dtype
from ranum_falsify.network.trace import Run, Scope


def read(
    source: Path | str | onnx.ModelProto,
    *,
    dims: Mapping[str, int] | None = None,
    assumed: Mapping[str, int] = MappingProxyType({}),
    free: Sequence[str] = (),
    fixed: Mapping[str, np.ndarray] | None = None,
    strict: bool = False,
    sample: Mapping[str, np.ndarray] = MappingProxyType({}),
    known: Mapping[str, TensorDetails] = MappingProxyType({}),
) -> Graph:
    """Read an ONNX model.

    Args:
        source: A file or a loaded model.
        dims: Sizes of symbolic dimensions, by name or as `input:axis`.
        assumed: Sizes of those for which none is given, 1 if they are not here either; a notice says what they are.
        free: Initializers that become inputs, after the others.
        fixed: Inputs that become constants.
        strict: Whether a model with operators that have no row is refused, even if ONNX Runtime can evaluate them.
        sample: Values of inputs on which shapes are found out, where operands are shapes; zeros of what is left out.
        known: Shape and dtype, by name, of tensors for which both are the same for every input and all weights, if that
            is known already; the nodes that write them run only if their values are needed.

    Raises:
        ModelError: The model cannot be read; one line says why and what to do.
    """
    options = ReadOptions(
        dims=dict(dims or {}),
        assumed=dict(assumed),
        free=tuple(free),
        fixed=dict(fixed or {}),
        strict=strict,
        sample=dict(sample),
    )
    if isinstance(source, onnx.ModelProto):
        return _read(number_strings(inline_functions(source), fixed=options.fixed), options, known)
    return _read(number_strings(load_model(Path(source)), fixed=options.fixed), options, known, where=str(source))


def find_assumed_dims(
    source: Path | str | onnx.ModelProto,
    *,
    dims: Mapping[str, int] | None = None,
    strict: bool = False,
    runs: Callable[[Graph], bool] = lambda graph: True,
) -> dict[str, int]:
    """Return sizes with which a model can be read and run, found by trying, for the symbolic dimensions that have none.

    Args:
        source: A file or a loaded model for which sizes of 1 do not do.
        dims: See `read`.
        strict: See `read`.
        runs: Tells whether ONNX Runtime runs what was read.

    Returns:
        Sizes for the `assumed` of `read`; where none help, those with which most can be read.

    Raises:
        ModelError: The model cannot be read, whatever its sizes.
    """
    proto = inline_functions(source) if isinstance(source, onnx.ModelProto) else load_model(Path(source))
    model, options = number_strings(proto), ReadOptions(dims=dict(dims or {}), strict=strict)

    def progress(sizes: Mapping[str, int]) -> float:
        reader = _Reader(model, replace(options, assumed=sizes), {})
        try:
            graph = reader.graph()
        except ModelError:
            return len(reader.scope.tensors)
        if not graph.is_too_small and runs(graph):
            return math.inf
        return len(reader.scope.tensors) + 0.5

    return find_sizes(model, [*read_inputs(model, dims=dims).assumed_dims], progress)


def read_inputs(source: Path | str | onnx.ModelProto, *, dims: Mapping[str, int] | None = None) -> Graph:
    """Return a graph of the model's inputs alone; its output is the first of them.

    Args:
        source: A file or a loaded model.
        dims: Sizes of symbolic dimensions.

    Raises:
        ModelError: The model cannot be read.
    """
    model = onnx.ModelProto()
    model.CopyFrom(number_strings(source if isinstance(source, onnx.ModelProto) else load_model(Path(source))))
    given = {tensor.name for tensor in model.graph.initializer}
    first = next((info for info in model.graph.input if info.name not in given), None)
    if first is None:
        raise ModelError("the model takes no input")
    outputs = [first] * len(model.graph.output)
    del model.graph.node[:], model.graph.output[:]
    model.graph.output.extend(outputs)
    return read(model, dims=dims)


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
        known: See `read`.
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


class _Reader(GraphBuilder):
    def __init__(self, model: onnx.ModelProto, options: ReadOptions, known: Mapping[str, TensorDetails]) -> None:
        given = fix_model(free_model(model, options.free), options.fixed)
        super().__init__(lower(collect_lists(widen_numbers(given))), options, known)
        self.source = model
        self.scope = Scope(initializers_of(self.model.graph))
        self.assumed_dims = dict[str, int]()
        self._unset = dict[str, dict[str, None]]()
        self.unused_dims = set(options.dims)

    def graph(self) -> Graph:
        order = check_structure(self.model.graph)
        self.check_operators()
        scope = self.scope
        self.notices += [*describe_strings(self.source), *describe_stored_infinities(scope.tensors)]
        inputs = self._inputs(scope)
        if self.unused_dims:
            known = ", ".join(sorted({*self._collect_symbolic()})) or "none"
            raise ModelError(f"--dim {sorted(self.unused_dims)[0]}: no such symbolic dimension; the model has {known}")
        names = [output.name for output in self.model.graph.output]
        self.build(order, scope, names)
        constants = (name for node in self.model.graph.node if not node.input for name in node.output)
        written = {name: scope.tensors[name] for name in constants if name in scope.tensors}
        self.notices += describe_stored_infinities(written, "constant")
        # What ONNX Runtime alone evaluates is found out anew by trying.
        shapes = {
            name: traced.details
            for name, traced in scope.tensors.items()
            if traced.fixed_shape and not is_black_box(traced.source)
        }
        return Graph(
            [self.as_operation(scope, name) for name in names],
            inputs=inputs,
            output_names=tuple(names),
            details=scope.details,
            source=self.source,
            opset=self.opset,
            options=self.options,
            notices=tuple(self.notices),
            assumed_dims=self.assumed_dims,
            is_too_small=self.is_too_small,
            folded=tuple(self.folded),
            shapes=shapes,
            origins=self.origins,
            conditioned=scope.conditioned,
            is_tried=not self.known,
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
            values = (self.options.example or self.options.sample).get(info.name)
            make = partial(_zeros, info.name, shape, dtype) if values is None else partial(_given, values.astype(dtype))
            run = Run(make)
            scope.define(info.name, op, TensorDetails(shape, dtype), run)
            if not self.known:
                run.make_examples()
            inputs.append(op)
        for dim, of in self._unset.items():
            size = self.assumed_dims[dim]
            why = "" if size == 1 else ", because 1 is too small"
            named = list_names("input", [*of])
            self.notices.append(
                f"symbolic dimension {dim} of {named} is taken as {size}{why}; set it with --dim {dim}=VALUE"
            )
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
            named = symbolic_name(info, axis)
            size = self.options.dims.get(key, self.options.assumed.get(named, 1))
            if size < 1:
                raise ModelError(f"--dim {key}={size}: a dimension must be at least 1")
            if key not in self.options.dims:
                self.assumed_dims[named] = size
                self._unset.setdefault(named, {})[info.name] = None
            shape.append(size)
        return tuple(shape)

    def _collect_symbolic(self) -> Iterable[str]:
        for info in self.model.graph.input:
            for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                if not is_given(dim):
                    yield dim.dim_param or f"{info.name}:{axis}"


def _zeros(name: str, shape: tuple[int, ...], dtype: np.dtype) -> tuple[torch.Tensor]:
    try:
        return (torch.zeros(shape, dtype=torch_dtype(dtype)),)
    except RuntimeError as error:
        raise ModelError(f"input {name!r} of shape {list(shape)} does not fit into memory; make it smaller") from error


def _given(array: np.ndarray) -> tuple[torch.Tensor]:
    return (to_torch(array),)


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
