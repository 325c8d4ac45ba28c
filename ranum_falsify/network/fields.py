"""Fields of a graph node from an ONNX node, by the operator's schema at the model's opset."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ranum_falsify.errors import ModelError, UnsupportedAttributeError
from ranum_falsify.network.registry import OperatorSpec
from ranum_falsify.network.tensors import name_type
from ranum_falsify.network.trace import Traced, constant

_FLAGS = frozenset(
    {
        *("across_channels", "align_corners", "allowzero", "antialias", "causal", "ceil_mode", "center_point_box"),
        *("channels_last", "count_include_pad", "detect_negative", "detect_positive", "do_rotary", "exclude_outside"),
        *("exclusive", "fmod", "input_forget", "interleaved", "inverse", "is_causal", "is_packed_batching", "keepdims"),
        *("largest", "layout", "linear_before_reset", "multi_class", "noop_with_empty_axes"),
        *("normalize_routing_weights", "normalize_variance", "one_class", "onesided", "past_present_share_buffer"),
        *("periodic", "reverse", "rotary_interleaved", "saturate", "select_last_index", "sliding_window_cache"),
        *("sorted", "spatial", "storage_order", "training_mode", "transA", "transB", "transBatchA", "transBatchB"),
        *("unidirectional", "upper", "use_sparse_mixer", "weight_prepacked", "zeros"),
    }
)
"""Attributes that are 0 or 1."""

_DATA = frozenset(
    {
        *("value", "value_float", "value_floats", "min", "max", "mask_filter_value", "extrapolation_value"),
        *("replaced_value_float", "imputed_value_floats", "keys_floats", "values_floats", "default_float"),
        *("nodes_values", "nodes_hitrates"),
    }
)
"""Attributes that hold data, which may be infinite or NaN: rows look at them themselves."""


def check_admitted(name: str, value: Any) -> None:
    """Check the value of an attribute of a node.

    Args:
        name: The attribute's ONNX name.
        value: Its value.

    Raises:
        UnsupportedAttributeError: Kernels differ in what they make of the value.
    """
    if name in _FLAGS and isinstance(value, int) and value not in (0, 1):
        raise UnsupportedAttributeError(f"attribute {name} is {value}, which kernels read differently; use 0 or 1")
    if name in _DATA:
        return
    for number in value if isinstance(value, tuple | array) else (value,):
        if isinstance(number, float) and not math.isfinite(number):
            raise UnsupportedAttributeError(f"attribute {name} is {number}; use a finite number")


_SINGLE, _DOUBLE = "tensor(float)", "tensor(double)"
_OPTIONAL_MISSING = onnx.AttributeProto.UNDEFINED


_LONG = 4096
"""Numbers of a list beyond which Python objects for each take more memory than a model should."""


def attribute_values(attributes: Iterable[onnx.AttributeProto]) -> dict[str, Any]:
    """Return attribute values by name: numbers, strings, tuples of them, and arrays for tensors.

    Long lists of numbers are sequences of the module `array`.
    """
    return {attribute.name: _attribute_value(attribute) for attribute in attributes}


def _attribute_value(attribute: onnx.AttributeProto) -> Any:
    for code, numbers in (("q", attribute.ints), ("d", attribute.floats)):
        if len(numbers) > _LONG:
            return array(code, numbers)
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, onnx.TensorProto | onnx.SparseTensorProto):
        try:
            return array_of(value)
        except (ValueError, TypeError, KeyError, IndexError, RuntimeError, AssertionError) as error:
            reason = str(error)[:80]
            raise ModelError(f"attribute {attribute.name!r} is malformed ({reason}); export the model again") from error
    if isinstance(value, list) or attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
        return tuple(sys.intern(item.decode()) if isinstance(item, bytes) else item for item in value)
    return value


def array_of(tensor: onnx.TensorProto | onnx.SparseTensorProto) -> np.ndarray:
    """Return a stored tensor as an array; NumPy or ONNX may raise almost any error if it is malformed."""
    if isinstance(tensor, onnx.TensorProto):
        return onnx.numpy_helper.to_array(tensor)
    values = onnx.numpy_helper.to_array(tensor.values)
    indices = onnx.numpy_helper.to_array(tensor.indices)
    dense = np.zeros(tuple(tensor.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def initializers_of(graph: onnx.GraphProto) -> dict[str, Traced]:
    """Return the constants that a graph stores, by name."""
    dense = {tensor.name: constant(_array(tensor.name, tensor)) for tensor in graph.initializer}
    return dense | {s.values.name: constant(_array(s.values.name, s)) for s in graph.sparse_initializer}


def _array(name: str, tensor: onnx.TensorProto | onnx.SparseTensorProto) -> np.ndarray:
    try:
        return array_of(tensor)
    except (ValueError, TypeError, KeyError, IndexError, RuntimeError, AssertionError) as error:
        why = str(error)[:80]
        raise ModelError(f"initializer {name!r} is malformed ({why}); export the model again") from error


def input_fields(spec: OperatorSpec, schema: onnx.defs.OpSchema, count: int) -> list[str]:
    """Return the field of each of a node's inputs, in order; the rest of a variadic input repeats its field.

    Raises:
        ModelError: The node has more inputs than the schema.
    """
    fields = []
    for position in range(count):
        if position >= len(schema.inputs) and not spec.variadic:
            raise ModelError(f"{schema.name} has {count} inputs, but at most {len(schema.inputs)} are allowed")
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        name = spec.field_of(formal.name)
        fields.append(name if name in spec.operands else spec.operands[min(position, len(spec.operands) - 1)])
    return fields


def fields_of(
    node: onnx.NodeProto,
    spec: OperatorSpec,
    schema: onnx.defs.OpSchema,
    traced: Mapping[str, Traced],
    *,
    skip: Container[str] = (),
) -> tuple[dict[str, Any], list[Traced | None]]:
    """Return a node's fields and its operands in the row's order.

    Args:
        node: The ONNX node.
        spec: The operator's row.
        schema: The operator's schema at the model's opset.
        traced: The node's inputs by name.
        skip: Attributes to leave out (subgraphs).

    Raises:
        ModelError: A required input or attribute is missing, or one is unknown.
        UnsupportedAttributeError: An attribute has a value that kernels read differently.
    """
    by_field: dict[str, Any] = {name: None for name in spec.operands}
    rest: list[Traced] = []
    names = input_fields(spec, schema, len(node.input))
    for name, tensor_name in zip(names, node.input, strict=True):
        if spec.variadic and name == spec.operands[-1]:
            if not tensor_name:
                title = f"node {node.name or node.op_type!r}: {node.op_type}"
                raise ModelError(f"{title} leaves out one of its repeated inputs; export the model again")
            rest.append(traced[tensor_name])
        elif tensor_name:
            by_field[name] = traced[tensor_name]
    attributes = _attributes(node, spec, schema, skip)
    for name in [name for name in attributes if name in by_field]:
        value = attributes.pop(name)
        if by_field[name] is None and value is not None:
            by_field[name] = constant(_as_operand(value))
    _check_required(node, schema, spec, by_field, rest)
    if not onnx.defs.has(schema.name, schema.domain):  # the row brought it
        _check_types(schema, [traced.get(name) for name in node.input])
    operands: list[Traced | None] = [by_field[name] for name in spec.operands]
    fields = {name: None if t is None else t.source for name, t in by_field.items()}
    if spec.variadic:
        operands = [*operands[:-1], *rest]
        fields[spec.operands[-1]] = tuple(t.source for t in rest)
    extra = {"version": schema.since_version, "output_names": tuple(node.output)}
    return fields | attributes | extra, operands


def _check_types(schema: onnx.defs.OpSchema, given: Sequence[Traced | None]) -> None:
    """Check the element types of a node's inputs against a schema that a row brings, which declares what it has.

    ONNX Runtime checks those of ONNX's schemas, and has kernels for more types of its own operators.

    Raises:
        UnsupportedAttributeError: The row does not have such inputs.
    """
    seen: dict[str, str] = {}
    for position, tensor in enumerate(given):
        if tensor is None:
            continue
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        kind = name_type(tensor.details.dtype)
        if kind == _DOUBLE and _SINGLE in formal.types:
            continue  # for derivatives; ONNX Runtime has no kernel
        if kind not in formal.types or (formal.is_homogeneous and seen.setdefault(formal.type_str, kind) != kind):
            raise UnsupportedAttributeError(f"input {formal.name} is a {kind} here, which is not supported")


def _as_operand(value: Any) -> np.ndarray:
    if isinstance(value, float) or (isinstance(value, tuple | array) and value and isinstance(value[0], float)):
        return np.asarray(value, dtype=np.float32)
    return np.asarray(value, dtype=np.int64)


def _attributes(
    node: onnx.NodeProto, spec: OperatorSpec, schema: onnx.defs.OpSchema, skip: Container[str]
) -> dict[str, Any]:
    given = attribute_values(a for a in node.attribute if a.name not in skip)
    if unknown := set(given) - set(schema.attributes):
        raise ModelError(f"node {node.name or node.op_type!r}: {node.op_type} has no attribute {sorted(unknown)[0]!r}")
    values: dict[str, Any] = {spec.field_of(name): None for name in spec.attributes if name not in skip}
    for name, formal in schema.attributes.items():
        if name in skip:
            continue
        if name in given:
            check_admitted(name, given[name])
            values[spec.field_of(name)] = given[name]
        elif formal.default_value.type != _OPTIONAL_MISSING:
            values[spec.field_of(name)] = _attribute_value(formal.default_value)
        elif formal.required:
            raise ModelError(f"node {node.name or node.op_type!r}: {node.op_type} needs attribute {name!r}")
    return values


def _check_required(
    node: onnx.NodeProto,
    schema: onnx.defs.OpSchema,
    spec: OperatorSpec,
    by_field: Mapping[str, Traced | None],
    rest: list[Traced],
) -> None:
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    for position, formal in enumerate(schema.inputs):
        missing = position >= len(node.input) or not node.input[position]
        if formal.option == single and missing:
            raise ModelError(f"node {node.name or node.op_type!r}: {node.op_type} needs input {formal.name!r}")
    if not schema.min_output <= len(node.output) <= schema.max_output:
        raise ModelError(
            f"node {node.name or node.op_type!r}: {node.op_type} has {len(node.output)} outputs, "
            f"but {schema.min_output} to {schema.max_output} are allowed"
        )
    if spec.variadic and not rest and not any(v is not None for v in by_field.values()):
        raise ModelError(f"node {node.name or node.op_type!r}: {node.op_type} has no input")
