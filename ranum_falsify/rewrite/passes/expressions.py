"""Reading expressions upwards from a node: sums, squares, roots, and what only moves or casts elements.

Exporters write one function in many ways: constants on either side, `a - b` as `a + (-b)`, squares as powers, and
casts and reshapes in between.  What is read here is the function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite.operands import axes_of, constant_array, integer_attribute, new_node
from ranum_falsify.rewrite.rewrite import Op, Plan, RefusedError, is_standard, operand

WIDTHS = {ir.DataType.FLOAT16: 1, ir.DataType.FLOAT: 2, ir.DataType.DOUBLE: 3}
"""Element types that stable forms exist for, the narrowest first."""

# Each passes on elements of its first operand, and computes nothing.
_MOVES = (
    "Identity",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Flatten",
    "Expand",
    "Tile",
    "Slice",
    "Gather",
    "GatherElements",
    "GatherND",
)

# What exporters compute twice where the program writes it twice.
_REPEATABLE = ("Add", "Sub", "Mul", "Div", "Neg", "Exp", "Pow", "Abs", "Sigmoid", "Softmax", "Tanh", "ReduceMean")


def made_by(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """Return the node that computes a value, None if it is not of these operators."""
    node = None if value is None else value.producer()
    if node is None or not is_standard(node) or node.op_type not in op_types:
        return None
    return node if node.outputs[0] is value else None


def same_tensor(one: ir.Value, other: ir.Value, depth: int = 4) -> bool:
    """Tell whether two values are the same tensor, perhaps by way of Identity, or computed twice in the same way."""
    one, other = _identical(one), _identical(other)
    if one is other:
        return True
    if depth == 0:
        return False
    first = made_by(one, *_REPEATABLE)
    second = None if first is None else made_by(other, first.op_type)
    if first is None or second is None:
        return _same_constant(one, other)
    if dict(first.attributes) != dict(second.attributes) or len(first.inputs) != len(second.inputs):
        return False
    return all(
        a is b or (a is not None and b is not None and same_tensor(a, b, depth - 1))
        for a, b in zip(first.inputs, second.inputs, strict=True)
    )


def _same_constant(one: ir.Value, other: ir.Value) -> bool:
    arrays = constant_array(one), constant_array(other)
    if arrays[0] is None or arrays[1] is None or arrays[0].dtype != arrays[1].dtype:
        return False
    return np.array_equal(arrays[0], arrays[1])


def _identical(value: ir.Value) -> ir.Value:
    while (node := made_by(value, "Identity")) is not None:
        value = operand(node, 0)
    return value


def scalar_of(value: ir.Value | None, beside: ir.Value | None = None) -> Fraction | None:
    """Return the number that all elements of a constant are, None if it is no such constant.

    Args:
        value: The constant.
        beside: The other operand, whose shape the result must have.
    """
    array = None if value is None else _uniform(value)
    if array is None or (beside is not None and _obstacle(array, beside)):
        return None
    return Fraction(float(array.reshape(-1)[0]))


def _uniform(value: ir.Value) -> np.ndarray | None:
    array = constant_array(value)
    if array is None or array.size == 0 or array.dtype.kind == "b":
        return None
    numbers = array.astype(np.float64)
    return numbers if np.isfinite(numbers).all() and (numbers == numbers.reshape(-1)[0]).all() else None


def _obstacle(array: np.ndarray, beside: ir.Value) -> str:
    """Return why a constant may change the shape of the other operand, empty if it does not."""
    shape = beside.shape
    if array.ndim == 0 or (shape is not None and array.size == 1 and array.ndim <= len(shape)):
        return ""
    if shape is not None and all(isinstance(dim, int) for dim in shape):
        sizes = tuple(int(dim) for dim in shape if isinstance(dim, int))
        try:
            if np.broadcast_shapes(array.shape, sizes) == sizes:
                return ""
        except ValueError:
            pass
    return f"the constant {array.reshape(-1)[0]:g} has shape {list(array.shape)}, which may add dimensions"


@dataclass
class SumTerms:
    """A constant, and tensors that are added or subtracted.

    Attributes:
        constant: The sum of all constants.
        plus: What is added.
        minus: What is subtracted.
        obstacle: Why the sum may have another shape than its only tensor, empty if it has not.
    """

    constant: Fraction = Fraction(0)
    plus: list[ir.Value] = field(default_factory=list)
    minus: list[ir.Value] = field(default_factory=list)
    obstacle: str = ""

    def check_shape(self) -> None:
        """Check that constants add no dimensions.

        Raises:
            RefusedError: They may.
        """
        if self.obstacle:
            raise RefusedError(self.obstacle)


def read_sum(value: ir.Value) -> SumTerms:
    """Return the terms of a sum; of any other tensor, it alone."""
    found, arrays = SumTerms(), list[np.ndarray]()
    _collect(value, 1, found, arrays)
    terms = [*found.plus, *found.minus]
    if terms:
        widest = max(terms, key=lambda term: -1 if term.shape is None else len(term.shape))
        found.obstacle = next((why for array in arrays if (why := _obstacle(array, widest))), "")
    return found


def _collect(value: ir.Value, sign: int, found: SumTerms, arrays: list[np.ndarray]) -> None:
    array = _uniform(value)
    if array is not None:
        found.constant += sign * Fraction(float(array.reshape(-1)[0]))
        arrays.append(array)
        return
    node = made_by(value, "Add", "Sub", "Neg", "Identity")
    if node is None:
        (found.plus if sign > 0 else found.minus).append(value)
        return
    first = -sign if node.op_type == "Neg" else sign
    _collect(operand(node, 0), first, found, arrays)
    if node.op_type in ("Add", "Sub"):
        _collect(operand(node, 1), sign if node.op_type == "Add" else -sign, found, arrays)


def scaled_of(value: ir.Value) -> tuple[ir.Value, Fraction]:
    """Return a value less its constant factors, and these."""
    factor = Fraction(1)
    while (node := made_by(value, "Mul", "Div", "Neg", "Identity")) is not None:
        if len(node.inputs) == 1:
            value, factor = operand(node, 0), -factor if node.op_type == "Neg" else factor
            continue
        for position in (0, 1) if node.op_type == "Mul" else (0,):
            inner = operand(node, position)
            constant = scalar_of(operand(node, 1 - position), inner)
            if constant:
                value, factor = inner, factor * constant if node.op_type == "Mul" else factor / constant
                break
        else:
            break
    return value, factor


def square_of(value: ir.Value) -> ir.Value | None:
    """Return x of x * x, or of x to the power of 2."""
    node = made_by(value, "Mul", "Pow")
    if node is None:
        return None
    x, other = operand(node, 0), operand(node, 1)
    if node.op_type == "Mul":
        return x if same_tensor(x, other) else None
    return x if scalar_of(other, x) == 2 else None


def root_of(value: ir.Value) -> ir.Value | None:
    """Return x of the square root of x, or of x to the power of 1/2."""
    node = made_by(value, "Sqrt", "Pow")
    if node is None:
        return None
    x = operand(node, 0)
    return x if node.op_type == "Sqrt" or scalar_of(operand(node, 1), x) == Fraction(1, 2) else None


def sigmoid_of(value: ir.Value) -> tuple[ir.Value, int] | None:
    """Return x, and 1, of the sigmoid of x; or x and -1 of the sigmoid of -x.

    It may be written out: 1 / (1 + exp(x)), which has the sign -1, or exp(x) / (1 + exp(x)).
    """
    node = made_by(value, "Sigmoid", "Div", "Reciprocal")
    if node is None:
        return None
    if node.op_type == "Sigmoid":
        return operand(node, 0), 1
    total = read_sum(operand(node, len(node.inputs) - 1))
    exponential = made_by(total.plus[0], "Exp") if len(total.plus) == 1 else None
    if exponential is None or total.minus or total.constant != 1 or total.obstacle:
        return None
    z = operand(exponential, 0)
    if node.op_type == "Div" and scalar_of(operand(node, 0), z) != 1:
        above = made_by(operand(node, 0), "Exp")
        return (z, 1) if above is not None and same_tensor(operand(above, 0), z) else None
    negation = made_by(z, "Neg")
    return (z, -1) if negation is None else (operand(negation, 0), 1)


@dataclass(frozen=True)
class Reduction:
    """A tensor that is reduced along some axes.

    Attributes:
        x: The tensor.
        axes: The axes, none of them negative, in order.
        keepdims: Whether they stay, with length 1.
    """

    x: ir.Value
    axes: Sequence[int]
    keepdims: bool

    def is_along(self, other: Reduction) -> bool:
        """Tell whether it treats the same axes as another in the same way."""
        return list(self.axes) == list(other.axes) and self.keepdims == other.keepdims


def reduction(node: ir.Node, x: ir.Value | None = None) -> Reduction:
    """Return what a reduction reduces.

    Raises:
        RefusedError: Its axes are not known.
    """
    return Reduction(operand(node, 0) if x is None else x, axes_of(node), bool(integer_attribute(node, "keepdims", 1)))


def squares_of(value: ir.Value, *op_types: str) -> Reduction | None:
    """Return x of the sum of the squares of x, or of another reduction of them."""
    node = made_by(value, *op_types or ("ReduceSum", "ReduceSumSquare"))
    if node is None:
        return None
    x = operand(node, 0) if node.op_type == "ReduceSumSquare" else square_of(operand(node, 0))
    return None if x is None else reduction(node, x)


def norm_of(value: ir.Value) -> tuple[Reduction, Fraction] | None:
    """Return x of the Euclidean norm of x, and what is added to the sum of squares."""
    node = made_by(value, "ReduceL2")
    if node is not None:
        return reduction(node), Fraction(0)
    inner = root_of(value)
    if inner is None:
        return None
    total = read_sum(inner)
    if len(total.plus) != 1 or total.minus or total.constant < 0:
        return None
    squares = squares_of(total.plus[0])
    if squares is None:
        return None
    total.check_shape()
    return squares, total.constant


@dataclass(frozen=True)
class Wrapped:
    """A value, less what moves and casts it.

    Attributes:
        inner: What is moved.
        moves: The nodes that move it, the last one first.
        dtype: The widest element type on the way.
    """

    inner: ir.Value
    moves: Sequence[ir.Node]
    dtype: ir.DataType

    def again(self, op: Op, value: ir.Value) -> ir.Value:
        """Move another value in the same way."""
        for node in reversed(self.moves):
            value = new_node(op, node.op_type, value, *node.inputs[1:], **dict(node.attributes))
        return value

    def around(self, plan: Plan, dtype: ir.DataType) -> Plan:
        """Return how to move what is built in the widest element type, and to cast it to another."""

        def build(op: Op) -> ir.Value:
            moved = self.again(op, plan(op))
            return moved if self.dtype == dtype else op.Cast(moved, to=dtype)

        return build


def unwrap(value: ir.Value, dtype: ir.DataType) -> Wrapped:
    """Strip data movement and float-to-float casts from a value.

    Args:
        value: The value.
        dtype: The element type in which it is to be computed; a wider one on the way takes its place.
    """
    moves: list[ir.Node] = []
    while True:
        node = made_by(value, *_MOVES, "Cast")
        if node is None:
            return Wrapped(value, moves, dtype)
        source = operand(node, 0)
        if node.op_type == "Cast":
            if source.dtype not in WIDTHS:
                return Wrapped(value, moves, dtype)
            dtype = max(dtype, source.dtype, key=lambda one: WIDTHS.get(one, 0))
        else:
            moves.append(node)
        value = source


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
