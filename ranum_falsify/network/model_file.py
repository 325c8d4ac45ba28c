"""ONNX files: loading, and the checks that need no knowledge of operators."""

from __future__ import annotations

import difflib
import math
import zlib
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from ranum_falsify.errors import ModelError
from ranum_falsify.file_content import is_compressed, largest_content, name_foreign
from ranum_falsify.model_builder import copy_without
from ranum_falsify.network.functions import first_line, inline_functions
from ranum_falsify.network.nesting import attribute_graphs, names_read
from ranum_falsify.network.order import order_depth_first
from ranum_falsify.network.resource_limits import TOO_MUCH_MEMORY, OversizeError, allow_for, content_of
from ranum_falsify.network.tensors import ONNX_TO_NUMPY

OLDEST_OPSET = 7
"""ONNX Runtime runs models from this opset on (https://onnxruntime.ai/docs/reference/compatibility.html)."""

_UNSTATED_OPSET = 21
_LARGEST = 2**31 - 1  # bytes of a protobuf message
_PACKED = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}  # bits of an element
_OVERSIZE = "decompress it yourself if you trust it, or save the model with external data"


def load_model(path: Path) -> onnx.ModelProto:
    """Return the model of a file, local functions inlined, external data loaded.

    The file may be compressed by gzip; external data lies beside it, not compressed.

    Raises:
        ModelError: The file is missing, is not ONNX, is truncated, too large, or its external data is missing.
    """
    try:
        model = onnx.load_model_from_string(model_bytes(path))
        onnx.load_external_data_for_model(model, check_external_data(model, path))
    except DecodeError as error:
        raise ModelError(f"{path}: {describe_wrong(path)}") from error
    except MemoryError as error:
        raise ModelError(f"{path}: {TOO_MUCH_MEMORY}") from error
    except (onnx.checker.ValidationError, ValueError, OSError) as error:
        raise ModelError(f"{path}: cannot be loaded ({first_line(error)}); export it again") from error
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"{path}: holds no graph; give the path of an ONNX model")
    try:
        model = inline_functions(model)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    for name in _names(model.graph):
        if not isinstance(name, str):
            raise ModelError(f"{path}: the name {name!r} is not UTF-8 text; export it again")
    return model


def model_bytes(path: Path) -> bytes:
    """Return what a model's file holds, decompressed if gzip compressed it.

    Raises:
        ModelError: It cannot be read, or holds more than a model can.
    """
    try:
        return content_of(path, most=largest_content(path) if is_compressed(path) else _LARGEST, grow=True)
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file; give the path of an ONNX model") from error
    except IsADirectoryError as error:
        raise ModelError(f"{path}: is a directory; give the path of an ONNX model") from error
    except PermissionError as error:
        raise ModelError(f"{path}: permission denied; make the file readable") from error
    except OversizeError as error:
        raise ModelError(f"{path}: {error}; {_OVERSIZE}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise ModelError(f"{path}: cannot be read ({first_line(error)}); give the whole file") from error


def describe_wrong(path: Path) -> str:
    """Return what a file is that holds no ONNX model, and what to do."""
    return name_foreign(path) or "not an ONNX model, or truncated; export it again"


def _names(graph: onnx.GraphProto) -> Iterator[str | bytes]:
    """Yield the names in a graph and its subgraphs; protobuf returns bytes for a string that is not text."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
        for child in attribute_graphs(node):
            yield from _names(child)


def check_external_data(model: onnx.ModelProto, path: Path) -> str:
    """Check that all external data of a model exists, and return its folder.

    The limit of memory grows by what the tensors need, whatever the size of the files.

    Raises:
        ModelError: A file is missing, or too short for a tensor.
    """
    total = 0
    for tensor in tensors_of(model):
        if not onnx.external_data_helper.uses_external_data(tensor):
            continue
        data = onnx.external_data_helper.ExternalDataInfo(tensor)
        file = path.parent / data.location
        if not file.exists():
            raise ModelError(
                f"{path}: its external data file {str(file)!r} is missing (tensor {tensor.name!r}); "
                "put it there, under the name that it was exported with"
            )
        needed, there = _bytes_of(tensor), file.stat().st_size - (data.offset or 0)
        if file.is_file() and needed > max(there, 0):
            raise ModelError(
                f"{path}: its external data file {str(file)!r} is too short: tensor {tensor.name!r} needs {needed:,} "
                f"bytes, and has {max(there, 0):,}; export it again"
            )
        total += needed
    allow_for(total)
    return str(path.parent)


def _bytes_of(tensor: onnx.TensorProto) -> int:
    if tensor.data_type not in onnx.helper.get_all_tensor_dtypes():
        raise ValueError(f"tensor {tensor.name!r} has no element type")
    name = onnx.TensorProto.DataType.Name(tensor.data_type)
    bits: int = _PACKED.get(name) or 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    count: int = math.prod(tensor.dims)
    return -(-count * bits // 8)


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors in a model: in its graph, its subgraphs and its local functions."""
    parts: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while parts:
        part = parts.pop()
        if isinstance(part, onnx.GraphProto):
            yield from part.initializer
        for node in part.node:
            for attribute in node.attribute:
                yield from (attribute.t, *attribute.tensors)
            parts.extend(attribute_graphs(node))


def opset_of(model: onnx.ModelProto) -> int:
    """Return the opset of the default domain.

    Raises:
        ModelError: The model states none, or one older than ONNX Runtime runs or newer than the `onnx` package knows.
    """
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    newest = onnx.defs.onnx_opset_version()
    if not versions and model.opset_import and all(node.domain not in ("", "ai.onnx") for node in model.graph.node):
        # It needs none; what is written of it may be of any that runtimes know.
        return _UNSTATED_OPSET
    if not versions:
        raise ModelError("model has no opset of the default domain; export it again")
    if not OLDEST_OPSET <= versions[0] <= newest:
        raise ModelError(
            f"model has opset {versions[0]}, but {OLDEST_OPSET} to {newest} are supported; "
            "convert it with onnx.version_converter or install a newer onnx"
        )
    return int(versions[0])


def is_given(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Tell whether a dimension has a size; a name, nothing, or a negative number stands for a symbolic one."""
    return bool(dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0)


def check_structure(graph: onnx.GraphProto, outer: frozenset[str] = frozenset()) -> list[onnx.NodeProto]:
    """Return the graph's nodes in topological order.

    Args:
        graph: The graph.
        outer: Names of tensors in enclosing graphs.

    Raises:
        ModelError: Two nodes write one name, a name is read but never written, or there is a cycle.
    """
    given = {item.name for item in (*graph.input, *graph.initializer)}
    given |= {sparse.values.name for sparse in graph.sparse_initializer} | outer
    written = Counter(name for node in graph.node for name in node.output if name)
    for name, times in written.items():
        if times > 1 or name in given - outer:
            raise ModelError(f"tensor {name!r} is written more than once; export the model again")
    reads = [list(names_read(node)) for node in graph.node]
    for reader, name in _readers(graph, reads):
        if name not in given and name not in written:
            raise ModelError(f"{reader} reads {name!r}, which nothing writes; export the model again")
    return _sort_nodes(graph, reads, given)


def _readers(graph: onnx.GraphProto, reads: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    for node, names in zip(graph.node, reads, strict=True):
        for name in names:
            yield f"node {node.name or node.op_type!r}", name
    for output in graph.output:
        yield "the graph's output", output.name


def _sort_nodes(graph: onnx.GraphProto, reads: Sequence[Sequence[str]], given: Container[str]) -> list[onnx.NodeProto]:
    """Return the nodes, each after those that write what it reads, in the file's order where that is one."""
    nodes = list(graph.node)
    writers = {name: node for node in nodes for name in node.output if name not in given}
    needs = {
        id(node): [writers[name] for name in names if name in writers] for node, names in zip(nodes, reads, strict=True)
    }
    order = order_depth_first(nodes, lambda node: needs[id(node)])
    seen: set[int] = set()
    for node in order:
        if not all(id(needed) in seen for needed in needs[id(node)]):
            raise ModelError(f"node {node.name or node.op_type!r} is part of a cycle; export the model again")
        seen.add(id(node))
    return order


def free_model(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return the model with initializers as inputs, after the others and in the given order.

    Raises:
        ModelError: A name is not an initializer.
    """
    if not names:
        return model
    initializers = {i.name: i for i in model.graph.initializer}
    freed = copy_without(model, names)
    inputs = [i for i in freed.graph.input if i.name not in names]
    for name in dict.fromkeys(names):
        if name not in initializers:
            near = difflib.get_close_matches(name, initializers) or sorted(initializers)[:8]
            raise ModelError(f"free: no initializer is named {name!r}; there are {', '.join(near) or 'none'}")
        tensor = initializers[name]
        inputs.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tuple(tensor.dims)))
    del freed.graph.input[:]
    freed.graph.input.extend(inputs)
    return freed


def free_first_dimension(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with a first dimension of any size in its inputs; the other shapes follow from that."""
    given = {initializer.name for initializer in model.graph.initializer}
    freed = onnx.ModelProto()
    freed.CopyFrom(model)
    del freed.graph.value_info[:]
    for info in (*freed.graph.input, *freed.graph.output):
        dims = info.type.tensor_type.shape.dim
        if info.name not in given and dims:
            dims[0].dim_param = "samples"
    return freed


def fix_model(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return the model with inputs as initializers of these values.

    Raises:
        ModelError: A name is not an input, or a value does not fit the input's shape or element type.
    """
    if not values:
        return model
    given = {initializer.name for initializer in model.graph.initializer}
    inputs = {info.name: info for info in model.graph.input if info.name not in given}
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for name, value in values.items():
        if name not in inputs:
            raise ModelError(f"fixed: no input is named {name!r}; there are {', '.join(inputs) or 'none'}")
        array = _fit(inputs[name], np.asarray(value))
        fixed.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    free = [info for info in fixed.graph.input if info.name not in values]
    del fixed.graph.input[:]
    fixed.graph.input.extend(free)
    # Older models must list their initializers as inputs.
    fixed.ir_version = max(fixed.ir_version, 4)
    return fixed


def _fit(info: onnx.ValueInfoProto, value: np.ndarray) -> np.ndarray:
    kind = info.type.tensor_type
    dtype = ONNX_TO_NUMPY.get(kind.elem_type, value.dtype)
    if not np.can_cast(value.dtype, dtype, casting="same_kind"):
        raise ModelError(f"fixed: input {info.name!r} holds {dtype}, the value given holds {value.dtype}")
    wanted = [dim.dim_value or -1 for dim in kind.shape.dim] if kind.HasField("shape") else [-1] * value.ndim
    if len(wanted) != value.ndim or any(w not in (-1, s) for w, s in zip(wanted, value.shape, strict=True)):
        shape = tuple("?" if size < 0 else size for size in wanted)
        raise ModelError(f"fixed: input {info.name!r} has shape {shape}, the value given has {value.shape}")
    return value.astype(dtype)
