"""How an operator depends on its operands, as a row says it: linearly, or along a curve with linear bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from dnnv.nn import Operation

from ranum_falsify.config import Runtime
from ranum_falsify.domain.attributes import has_denormals
from ranum_falsify.domain.linear.relaxations import Relaxation
from ranum_falsify.domain.linear.rows import RowFunction
from ranum_falsify.domain.site import IntervalRule
from ranum_falsify.network import spec_of
from ranum_falsify.network.registry import TorchFunction

Terms = Callable[[Operation, Sequence[tuple[int, ...]], tuple[int, ...]], int]
"""`terms(op, shapes, output)`: the largest number of rounded operations that an element of the output goes through."""


def _count_few(op: Operation, shapes: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
    return len(shapes) + 2


def summation(op: Operation, shapes: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
    """Count the elements of the first operand that are reduced to one of the output."""
    return math.prod(shapes[0]) // max(1, math.prod(output)) + 2


def pooling(op: Operation, shapes: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
    """Count the elements of a window."""
    return math.prod(int(size) for size in op.kernel_shape) + 2


def contraction(op: Operation, shapes: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
    """Count the products of a matrix product or convolution: the most that the second operand allows."""
    second = shapes[1]
    if len(second) < 2:
        return math.prod(second) + 2
    if len(shapes[0]) == len(second) == len(output) >= 3 and hasattr(op, "group"):
        return math.prod(second) // max(min(second[0], second[1]), 1) + 2
    return max(second[-1], second[-2]) + 2


@dataclass(frozen=True, kw_only=True)
class Affine:
    """Linear in its operands of floating type, except for a constant.

    Attributes:
        operands: Names of the operands that may be computed; the others must be constants.  None for all.
        factors: Those that are multiplied with each other: linear as long as at most one of them is computed.
        terms: Length of its sums.
        subtracted: Constants that are subtracted, so that they enter magnitudes with the opposite sign.
        divisors: Constants that divide.
        function: Its function, of one result, if the row's would round to its own element type or is more than that.
    """

    operands: tuple[str, ...] | None = None
    factors: tuple[str, ...] = ()
    terms: Terms = _count_few
    subtracted: tuple[str, ...] = ()
    divisors: tuple[str, ...] = ()
    function: TorchFunction | None = None


@dataclass(frozen=True, kw_only=True)
class Quotient:
    """The first operand divided by the second: a product with a reciprocal if the second is computed."""


@dataclass(frozen=True, kw_only=True)
class AffineThenCurve:
    """A curve of a linear function, if one node computes both.

    Attributes:
        inner: The linear function; it names its function.
        bounds: Bounds the result of the linear function.
        outer: The curve.
        last: The operation that the curve is of, whose row names its kernel.
    """

    inner: Affine
    bounds: IntervalRule
    outer: Relaxation
    last: Operation


@dataclass(frozen=True, kw_only=True)
class UnivariateOf:
    """A curve of an operation, of which a node multiplies two functions.

    Attributes:
        operand: The operation.
        curve: What the node computes of it.
        stray: Bounds the most by which its results may differ from that, besides a few roundings.
        otherwise: The product of the node's operands, for where there is no curve; None if it is not one of these.
    """

    operand: Operation
    curve: Relaxation
    stray: IntervalRule
    otherwise: Affine | None


@dataclass(frozen=True, kw_only=True)
class Extremum:
    """The greatest or the least of some elements.

    Attributes:
        windows: `fn(op, *operands)`: with their elements' positions in place of the operands, those from which each
            result is chosen, along a last dimension; -1 for none.
        greatest: Whether it is the greatest.
    """

    windows: TorchFunction
    greatest: bool = True


@dataclass(frozen=True, kw_only=True)
class Rowwise:
    """A function of rows of the first operand, or of what the node makes of several; it is the node's first output.

    Attributes:
        dims: `dims(op, rank)`: the dimensions that make up a row.
        function: `fn(op, dtype, runtimes, size)`: the function of rows of a number of elements; None if none is known.
        inner: What the rows are made of, if not the first operand; it names its function and its operands.
        bounds: Bounds the result of that.
        outer: What the node makes of the results, in place of the first operand, and of its other operands.
    """

    dims: Callable[[Operation, int], Sequence[int]]
    function: Callable[[Operation, torch.dtype, tuple[Runtime, ...], int], RowFunction | None]
    inner: Affine | None = None
    bounds: IntervalRule | None = None
    outer: Affine | None = None


@dataclass(frozen=True)
class RowDecomposition:
    """A function of rows that several nodes compute.

    Attributes:
        dims: The dimensions that make up a row.
        function: `fn(dtype, runtimes, size)`: the function of rows of a number of elements.
    """

    dims: Sequence[int]
    function: Callable[[torch.dtype, tuple[Runtime, ...], int], RowFunction]


@dataclass(frozen=True, kw_only=True)
class DecomposedRows:
    """A node that may be the last of several that compute a function of rows of an operation.

    Attributes:
        operand: The operation.
        rows: `fn(site, *operands)`: what the nodes compute; None if it is no such function.
        otherwise: How the node depends on its own operands, for where it is none.
    """

    operand: Operation
    rows: Callable[..., RowDecomposition | None]
    otherwise: Quotient


LinearForm = Affine | AffineThenCurve | Extremum | UnivariateOf | Quotient | Relaxation | Rowwise | DecomposedRows
"""A row's `linear`: this, or a function of the node that returns it, or None: bounded by its interval alone."""


def form_of(op: Operation) -> LinearForm | None:
    """Return how a node depends on its operands; None if its row does not say, or runtimes read it differently."""
    form = None if has_denormals(op) else spec_of(op).linear
    if form is None or isinstance(form, LinearForm):
        return form
    made: LinearForm | None = form(op)
    return made
