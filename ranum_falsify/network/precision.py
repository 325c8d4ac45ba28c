"""A network as if converted to half precision.

float16 by ONNX Runtime's own converter (https://onnxruntime.ai/docs/performance/model-optimizations/float16.html),
so that the answer is about the model that users would run.  No runtime has CPU kernels for bfloat16: there each
operator computes in float32 and its result is rounded to bfloat16, as accelerators do.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import get_args

import ml_dtypes
import numpy as np
import onnx
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect
from onnx import TensorProto

from ranum_falsify.config import HalfPrecision
from ranum_falsify.errors import ModelError
from ranum_falsify.network.graph import Graph
from ranum_falsify.network.model_file import check_structure
from ranum_falsify.network.nesting import names_read
from ranum_falsify.network.reader import read
from ranum_falsify.process.starting import turn

_SUFFIXES = ("_cast_to_fp16_node", "_cast_to_fp32_node", "_to_bfloat16", "_from_bfloat16")
"""Suffixes of the names of nodes that a conversion adds after or before a tensor."""


def convert_precision(graph: Graph, dtype: HalfPrecision, keep: Collection[str] = ()) -> Graph:
    """Return a network converted to half precision: inputs, weights, operators and outputs.

    Args:
        graph: The network in float32.
        dtype: Element type to convert to.
        keep: Names of nodes that stay in float32 (`node_block_list` of the converters).  Tensors between two of them
            stay in float32 too.

    Raises:
        ModelError: The network cannot be converted.
    """
    if dtype not in get_args(HalfPrecision):
        raise ModelError(f"element type {dtype!r}: give one of {', '.join(get_args(HalfPrecision))}")
    model = _name_nodes(graph)
    if dtype == "bfloat16":
        _round_results(model, _float32_tensors(graph), frozenset(keep))
    else:
        model = _float16(model, keep)
    try:
        options = graph.options
        return read(model, dims=options.dims, assumed=options.assumed, strict=options.strict, sample=options.sample)
    except ModelError as error:
        raise ModelError(f"the network converted to {dtype} cannot be read: {error}") from error


def is_conversion(name: str) -> bool:
    """Tell whether a node of a converted network was added by the conversion."""
    return name.endswith(_SUFFIXES)


def original_node(name: str, graph: Graph) -> str:
    """Return the name of the original node whose result a node of the converted network computes or rounds.

    Args:
        name: Name of a node of the converted network.
        graph: The original network.
    """
    if not is_conversion(name):
        return name
    tensor = next(name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix))
    return next((op.name for op in graph.nodes if tensor in op.output_names), tensor)


def _name_nodes(graph: Graph) -> onnx.ModelProto:
    """Return a copy of the model in which nodes are named as in the graph and tensors have types."""
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    by_output = {output: op for op in graph.nodes for output in op.output_names if output}
    for node in model.graph.node:
        for output in node.output:
            if output in by_output:
                node.name = by_output[output].name
    del model.graph.value_info[:]
    known = {info.name for info in (*model.graph.input, *model.graph.output)}
    for tensor, (kind, shape) in _types(graph).items():
        if tensor not in known:
            model.graph.value_info.append(onnx.helper.make_tensor_value_info(tensor, kind, shape))
    return model


def _types(graph: Graph) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return element type and shape of every tensor that depends on an input, by ONNX name."""
    types: dict[str, tuple[int, tuple[int, ...]]] = {}
    for op in graph.order:
        for tensor, source in _tensors(op):
            details = graph.details.get(source.name)
            if details is not None:
                types[tensor] = (onnx.helper.np_dtype_to_tensor_dtype(np.dtype(details.dtype)), tuple(details.shape))
    return types


def _tensors(op: Operation) -> Iterator[tuple[str, Operation]]:
    if isinstance(op, OutputSelect):
        yield op.operation.output_names[op.index], op
    elif not isinstance(op, Input) and len([name for name in op.output_names if name]) == 1:
        yield next(name for name in op.output_names if name), op


def _float32_tensors(graph: Graph) -> set[str]:
    return {tensor for tensor, (kind, _) in _types(graph).items() if kind == TensorProto.FLOAT}


# float16 --------------------------------------------------------------------------------------------------------


def _float16(model: onnx.ModelProto, keep: Collection[str]) -> onnx.ModelProto:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with turn(), _silence():
        try:
            # Constants have no type in the graph, and a tensor without a type is not converted.
            half: onnx.ModelProto = convert_float_to_float16(
                onnx.shape_inference.infer_shapes(model), node_block_list=list(keep)
            )
        except Exception as error:
            raise ModelError(f"ONNX Runtime's converter cannot convert the network to float16: {error}") from error
    _connect_float32(half)
    return half


def _connect_float32(model: onnx.ModelProto) -> None:
    """Let nodes that stay in float32 read each other's results unrounded, as `onnxconverter_common` does.

    Casts that nothing reads any more are left out, as ONNX Runtime would run them.  If such a node reads a tensor
    twice, the converter also casts the tensor twice, to the same name.
    """
    added = [node for node in model.graph.node if node.name.endswith(_SUFFIXES)]
    narrowing = {n.output[0]: n.input[0] for n in added if _is_cast(n, TensorProto.FLOAT16)}
    widening = [n for n in added if _is_cast(n, TensorProto.FLOAT) and n.input[0] in narrowing]
    direct = {n.output[0]: narrowing[n.input[0]] for n in widening}
    written: set[str] = set()
    nodes = []
    for node in model.graph.node:
        node.input[:] = [direct.get(tensor, tensor) for tensor in node.input]
        if not written.issuperset(node.output):
            nodes.append(node)
            written.update(node.output)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    order = check_structure(model.graph)
    read, used = {info.name for info in model.graph.output}, []
    for node in reversed(order):
        if not (node.name.endswith(_SUFFIXES) and read.isdisjoint(node.output)):
            used.append(node)
            read.update(names_read(node))
    del model.graph.node[:]
    model.graph.node.extend(reversed(used))


def _is_cast(node: onnx.NodeProto, kind: int) -> bool:
    return node.op_type == "Cast" and any(a.name == "to" and a.i == kind for a in node.attribute)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the converter's remarks on weights that it clamps off standard error."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


# bfloat16 -------------------------------------------------------------------------------------------------------


def _round_results(model: onnx.ModelProto, tensors: Collection[str], keep: Collection[str]) -> None:
    """Round inputs, weights and results to bfloat16, except the results of nodes to keep."""
    nodes = list(model.graph.node)
    kept = {y for node in nodes if node.name in keep for y in node.output}
    inputs = [x for x in _float32_inputs(model) if x not in kept]
    _round_weights(model, keep)
    for node in nodes:
        for position, x in enumerate(node.input):
            if x in inputs:
                node.input[position] = f"{x}_rounded"
            elif x in kept and x in tensors and node.name in keep:
                node.input[position] = f"{x}_unrounded"
    del model.graph.node[:], model.graph.value_info[:]
    for x in inputs:
        model.graph.node.extend(_roundtrip(x, f"{x}_rounded", x))
    for node in nodes:
        rounded = [y for y in node.output if y in tensors]
        node.output[:] = [f"{y}_unrounded" if y in tensors else y for y in node.output]
        model.graph.node.append(node)
        for y in rounded:
            model.graph.node.extend(_roundtrip(f"{y}_unrounded", y, y))


def _float32_inputs(model: onnx.ModelProto) -> list[str]:
    given = {initializer.name for initializer in model.graph.initializer}
    return [
        info.name
        for info in model.graph.input
        if info.name not in given and info.type.tensor_type.elem_type == TensorProto.FLOAT
    ]


def _round_weights(model: onnx.ModelProto, keep: Collection[str]) -> None:
    read_in_half = {x for node in model.graph.node if node.name not in keep for x in node.input}
    for initializer in model.graph.initializer:
        if initializer.data_type == TensorProto.FLOAT and initializer.name in read_in_half:
            array = onnx.numpy_helper.to_array(initializer).astype(ml_dtypes.bfloat16).astype(np.float32)
            initializer.CopyFrom(onnx.numpy_helper.from_array(array, initializer.name))


def _roundtrip(source: str, target: str, name: str) -> list[onnx.NodeProto]:
    middle = f"{target}_bfloat16"
    return [
        onnx.helper.make_node("Cast", [source], [middle], f"{name}_to_bfloat16", to=TensorProto.BFLOAT16),
        onnx.helper.make_node("Cast", [middle], [target], f"{name}_from_bfloat16", to=TensorProto.FLOAT),
    ]
