"""Quotients by what is reduced from the dividend, and how it was broadcast back before the division."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ranum_falsify.rewrite.operands import constant_array, integer_attribute
from ranum_falsify.rewrite.passes.expressions import Reduction, made_by, operand, reduction, same_tensor, scalar_of


def quotient_of(node: ir.Node) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Yield dividend and divisor of a Div, or of a Mul by a reciprocal on either side."""
    if node.op_type == "Div":
        yield operand(node, 0), operand(node, 1)
        return
    for position in (0, 1):
        inverse = made_by(operand(node, position), "Reciprocal", "Div")
        if inverse is None:
            continue
        if inverse.op_type == "Reciprocal":
            yield operand(node, 1 - position), operand(inverse, 0)
        elif scalar_of(operand(inverse, 0), operand(inverse, 1)) == 1:
            yield operand(node, 1 - position), operand(inverse, 1)


def kept_reduction(value: ir.Value, like: ir.Value, *op_types: str) -> Reduction | None:
    """Return a reduction of a tensor of the shape of `like`, of which a value is the broadcast."""
    inner = kept_value(value, like)
    node = made_by(inner, *op_types)
    if node is None:
        return None
    found = reduction(node)
    return found if is_kept(value, like, inner, found) else None


def kept_value(value: ir.Value, like: ir.Value) -> ir.Value:
    """Return what is broadcast to the shape of `like`: a value less Expand, Tile and what gives its dimensions back."""
    while True:
        node = made_by(value, "Identity", "Expand", "Tile", "Unsqueeze", "Reshape")
        if node is None:
            return value
        value = operand(node, 0)


def is_kept(value: ir.Value, like: ir.Value, inner: ir.Value, found: Reduction) -> bool:
    """Tell whether what is reduced along axes is broadcast back along these, and along no others.

    Args:
        value: What is broadcast.
        like: A tensor of the shape that was reduced.
        inner: What is reduced.
        found: How it was.
    """
    while value is not inner:
        node = made_by(value, "Identity", "Expand", "Tile", "Unsqueeze", "Reshape")
        if node is None:
            return False
        source = operand(node, 0)
        if node.op_type in ("Unsqueeze", "Reshape"):
            return not found.keepdims and _has_lengths_1(value, like, found) and same_tensor(source, inner)
        if node.op_type in ("Expand", "Tile") and not _is_within(node, value, like):
            return False
        value = source
    return found.keepdims


def _has_lengths_1(value: ir.Value, like: ir.Value, found: Reduction) -> bool:
    """Tell whether a value has the shape of a tensor, with length 1 along the axes that were reduced."""
    if value.shape is None or like.shape is None or len(value.shape) != len(like.shape):
        return False
    pairs = enumerate(zip(value.shape, like.shape, strict=True))
    return all(dim == 1 if axis in found.axes else _is_equal(dim, whole) for axis, (dim, whole) in pairs)


def _is_within(node: ir.Node, value: ir.Value, like: ir.Value) -> bool:
    """Tell whether Expand or Tile does no more than the broadcast of a division by the value would."""
    if node.op_type == "Expand":
        shape = made_by(operand(node, 1), "Shape")
        if shape is not None and not shape.attributes and _same_shape(operand(shape, 0), like):
            return True
    if like.shape is None:
        return False
    repeats = _lengths(operand(node, 1)) if node.op_type == "Tile" else None
    if repeats is not None and len(repeats) == len(like.shape):
        return all(count == 1 or count == dim for count, dim in zip(repeats, like.shape, strict=True))
    if value.shape is None or len(value.shape) != len(like.shape):
        return False
    if all(isinstance(dim, int) and dim > 1 for dim in like.shape):
        return True  # any other length would be an error
    return all(dim == 1 or _is_equal(dim, whole) for dim, whole in zip(value.shape, like.shape, strict=True))


def _lengths(value: ir.Value) -> list[int] | None:
    """Return integers that are constants, or lengths of dimensions; None where they are not known."""
    array = constant_array(value)
    if array is not None:
        return [int(one) for one in array.reshape(-1)]
    node = made_by(value, "Concat", "Shape", "Identity")
    if node is None:
        return None
    if node.op_type == "Shape":
        shape = operand(node, 0).shape
        if shape is None:
            return None
        end = integer_attribute(node, "end", len(shape))
        known = [dim for dim in shape[integer_attribute(node, "start", 0) : end]]
        return [int(dim) for dim in known if isinstance(dim, int)] if all(isinstance(d, int) for d in known) else None
    parts = [None if one is None else _lengths(one) for one in node.inputs]
    return None if any(part is None for part in parts) else [one for part in parts for one in part or ()]


def _is_equal(one: int | ir.SymbolicDim, other: int | ir.SymbolicDim) -> bool:
    if isinstance(one, int) or isinstance(other, int):
        return one == other
    return one.value is not None and one == other


def _same_shape(one: ir.Value, other: ir.Value) -> bool:
    if same_tensor(one, other):
        return True
    node = made_by(other, "Exp")
    return node is not None and same_tensor(operand(node, 0), one)
