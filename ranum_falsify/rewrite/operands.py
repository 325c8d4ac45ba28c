"""Operands of a pass, as its `check` and `rewrite` ask: rank, lengths, axes, constants, element type, opset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite.rewrite import Op, RefusedError, default_opset, is_standard, operand


def integer_attribute(node: ir.Node, name: str, default: int) -> int:
    """Return an integer attribute of a node.

    Raises:
        RefusedError: It is a parameter of a local function.
    """
    found = given_attribute(node, name)
    return default if found is None else int(found.as_int())


def given_attribute(node: ir.Node, name: str) -> ir.Attr | None:
    """Return an attribute of a node, None where it does not have it.

    Raises:
        RefusedError: It is a parameter of a local function.
    """
    found = node.attributes.get(name)
    if found is not None and found.is_ref():
        raise RefusedError(f"attribute {name!r} is a parameter of a local function; inline it first")
    return found


def float_attribute(node: ir.Node, name: str, default: float) -> float:
    """Return a float attribute of a node; a default is the float32 number that it would be.

    Raises:
        RefusedError: It is a parameter of a local function.
    """
    found = given_attribute(node, name)
    return float(np.float32(default if found is None else found.as_float()))


def text_attribute(node: ir.Node, name: str, default: str) -> str:
    """Return a text attribute of a node.

    Raises:
        RefusedError: It is a parameter of a local function.
    """
    found = given_attribute(node, name)
    return default if found is None else found.as_string()


def integers_attribute(node: ir.Node, name: str, default: Sequence[int]) -> list[int]:
    """Return an attribute of a node that holds integers.

    Raises:
        RefusedError: It is a parameter of a local function.
    """
    found = given_attribute(node, name)
    return list(default) if found is None else [int(value) for value in found.as_ints()]


_INTEGER_CONSTANTS = 9  # opset
_DOUBLE_EXTREMES = 8  # opset

FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
WIDE_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
NARROW_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def limits_of(dtype: ir.DataType) -> tuple[float, float, float]:
    """Return the greatest float of an element type, the least normal one, and how far the next one above 1 is."""
    finfo: Any = ml_dtypes.finfo
    info = finfo(dtype.numpy())
    return float(info.max), float(info.smallest_normal), float(info.eps)


def opset_at(context: Any) -> int:
    """Return the opset of the default domain where a match is."""
    scope = context.graph_or_function
    return default_opset(scope if isinstance(scope, ir.Function) else context.model)


def node_of(value: ir.Value) -> ir.Node:
    """Return the node that computes what a pattern bound to a name."""
    node = value.producer()
    assert node is not None
    return node


def dtype_of(value: ir.Value, among: Sequence[ir.DataType]) -> ir.DataType:
    """Return the element type of an operand.

    Raises:
        RefusedError: It is not known, or not among those allowed.
    """
    if value.dtype is None:
        raise RefusedError(f"the element type of {value.name!r} is not known")
    if value.dtype not in among:
        names = ", ".join(dtype.name.lower() for dtype in among)
        raise RefusedError(f"{value.name!r} holds {value.dtype.name.lower()}; {names} are handled")
    return value.dtype


def element_type(node: ir.Node, among: Sequence[ir.DataType] = FLOATS) -> ir.DataType:
    """Return the element type of a node whose operands all have the same.

    Raises:
        RefusedError: It is not known, or not among those allowed.
    """
    known = (value for value in node.inputs if value is not None and value.dtype is not None)
    return dtype_of(next(known, None) or operand(node, 0), among)


def rank_of(value: ir.Value) -> int:
    """Return the rank of an operand.

    Raises:
        RefusedError: It is not known.
    """
    if value.shape is None:
        raise RefusedError(f"the rank of {value.name!r} is not known; give the model shapes")
    return len(value.shape)


def check_images(value: ir.Value) -> None:
    """Check that an operand has spatial axes, after those of the batch and the channels.

    Raises:
        RefusedError: It has none, or its rank is not known.
    """
    if rank_of(value) < 3:
        raise RefusedError("its images have no axis")


def length_of(value: ir.Value, axis: int) -> int:
    """Return the length of an operand along an axis.

    Raises:
        RefusedError: It is not fixed, or 0.
    """
    assert value.shape is not None
    length = value.shape[axis]
    if not isinstance(length, int):
        raise RefusedError(f"axis {axis} of {value.name!r} has no fixed length; give the model static shapes")
    if not length:
        raise RefusedError(f"axis {axis} of {value.name!r} is empty")
    return length


def shape_of(value: ir.Value) -> list[int | None]:
    """Return the shape of an operand, None for lengths that are not fixed.

    Raises:
        RefusedError: Its rank is not known.
    """
    rank_of(value)
    assert value.shape is not None
    return [length if isinstance(length, int) else None for length in value.shape]


def check_shape(value: ir.Value, shape: Sequence[int | None]) -> None:
    """Check that the model says no other shape of a result than it has; some shapes that ONNX infers are wrong.

    Raises:
        RefusedError: It does.
    """
    said = shape if value.shape is None else shape_of(value)
    pairs = zip(said, shape, strict=False)
    if len(said) != len(shape) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise RefusedError(f"its result has shape {list(shape)}, and the model says {said}; correct the model")


def optional(node: ir.Node, place: int) -> ir.Value | None:
    """Return an operand of a node, None where it is left out."""
    return node.inputs[place] if place < len(node.inputs) else None


def required_constant(value: ir.Value | None, what: str) -> np.ndarray:
    """Return the value of a constant operand; `what` starts the sentence that it is not: "its axes are".

    Raises:
        RefusedError: It can change, or is left out.
    """
    array = None if value is None else constant_array(value)
    if array is None:
        raise RefusedError(f"{what} not constant")
    return array


def constant_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the value of a constant operand, None where it can change; Identity of a constant is one."""
    if value.is_graph_input():
        return None
    node = value.producer()
    if node is not None and is_identity(node) and node.inputs[0] is not None:
        return constant_tensor(node.inputs[0])
    return ir.convenience.get_const_tensor(value)


def constant_array(value: ir.Value) -> np.ndarray | None:
    """Return the elements of a constant operand, None where they can change."""
    tensor = constant_tensor(value)
    return None if tensor is None else np.asarray(tensor.numpy())


def is_identity(node: ir.Node) -> bool:
    """Tell whether a node gives what it gets."""
    return node.op_type == "Identity" and is_standard(node) and len(node.inputs) == 1


def is_finite(array: np.ndarray, dtype: ir.DataType = ir.DataType.DOUBLE) -> bool:
    """Tell whether all numbers are finite as an element type."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(array.astype(dtype.numpy()).astype(np.float64)).all())


def new_node(op: Op, op_type: str, *operands: ir.Value | None, **attributes: Any) -> ir.Value:
    """Return what a new node of an operator makes, whose name is known only now."""
    made: ir.Value = getattr(op, op_type)(*operands, **attributes)
    return made


def constant(op: Op, values: Any, dtype: ir.DataType) -> ir.Value:
    """Return a new constant of an element type."""
    return op.Constant(value=ir.tensor(np.asarray(values).astype(dtype.numpy())))


def check_integers(opset: int, dtype: ir.DataType = ir.DataType.INT64) -> None:
    """Check that an opset has constants of integers, such as those that hold axes or sizes.

    Raises:
        RefusedError: It has not.
    """
    if opset < _INTEGER_CONSTANTS:
        raise RefusedError(f"a constant of {dtype.name.lower()} needs opset {_INTEGER_CONSTANTS}; convert the model")


def check_double(operator: str, dtype: ir.DataType, opset: int) -> None:
    """Check that an opset has Max or Min of an element type.

    Raises:
        RefusedError: It has not.
    """
    if dtype == ir.DataType.DOUBLE and opset < _DOUBLE_EXTREMES:
        raise RefusedError(f"{operator} of double needs opset {_DOUBLE_EXTREMES}; convert the model")


def integer(op: Op, value: int) -> ir.Value:
    """Return a new constant that holds one index."""
    return op.Constant(value=ir.tensor(np.asarray(value, dtype=np.int64)))


def integers(op: Op, values: Sequence[int]) -> ir.Value:
    """Return a new constant that holds axes or sizes."""
    return op.Constant(value=ir.tensor(np.asarray(values, dtype=np.int64)))


def axis_of(node: ir.Node, default: int = 0) -> int:
    """Return the axis that a node names of its first operand, not negative.

    Raises:
        RefusedError: It is none, or the rank of the operand is not known.
    """
    rank, axis = rank_of(operand(node, 0)), integer_attribute(node, "axis", default)
    if not -rank <= axis < rank:
        raise RefusedError(f"axis {axis} is none of an operand of rank {rank}")
    return axis % rank


def axes_of(node: ir.Node) -> list[int]:
    """Return the axes of a reduction, none of them negative, in order.

    Raises:
        RefusedError: They are not constant, or not axes of the operand.
    """
    rank = rank_of(operand(node, 0))
    given = node.inputs[1] if len(node.inputs) > 1 else None
    axes: list[int] = []
    if given is not None:
        axes = [int(axis) for axis in required_constant(given, "its axes are").reshape(-1)]
    elif (found := given_attribute(node, "axes")) is not None:
        axes = list(found.as_ints())
    if not axes:
        return [] if integer_attribute(node, "noop_with_empty_axes", 0) else list(range(rank))
    if any(not -rank <= axis < rank for axis in axes):
        raise RefusedError(f"its axes {axes} are none of an operand of rank {rank}")
    return sorted({axis % rank for axis in axes})
