"""Elements of tensors as VNN-LIB names them, as expressions of DNNP.

A query over images compares hundreds of thousands of elements with numbers.  DNNV's own expressions for that, one
subscript and one comparison for each, take tens of microseconds apiece; these hold any number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from dnnv.properties import Expression
from dnnv.properties.expressions import And, Or

BoundKind = Literal["<=", "<", ">=", ">", "==", "!="]
"""A comparison of an element, on the left, with a number."""


class NamedTensor(Expression):
    """An input or output by the name that a query gives it.

    Args:
        name: Its name.
        value: The symbol or the network's application that it is.
        shape: Its shape; None if elements are counted in row-major order, through all inputs or outputs of the network.
        dtype: Its element type; None if the query does not say.
    """

    def __init__(self, name: str, value: Expression, shape: tuple[int, ...] | None, dtype: str | None) -> None:
        super().__init__()
        self.name = name
        self.tensor = value
        self.shape = shape
        self.dtype = dtype

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return self.name

    def write(self, index: tuple[int, ...]) -> str:
        """Return an element's name."""
        if self.shape is None:
            return "_".join((self.name, *map(str, index)))
        return f"{self.name}[{','.join(map(str, index))}]" if index else self.name


class Elements(Expression):
    """Elements of a tensor.

    Args:
        tensor: The tensor.
        indices: An index for each element, all of one length; of a tensor without a shape, a single number counts in
            row-major order.
    """

    def __init__(self, tensor: NamedTensor, indices: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.tensor = tensor
        self.indices = np.array(indices, dtype=np.int64)

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        names = [self.tensor.write(tuple(index)) for index in self.indices[:3].tolist()]
        return ", ".join([*names, "..."] if len(self.indices) > len(names) else names)


class ElementBounds(Expression):
    """Comparisons of elements with numbers, all of which must be true.

    Args:
        elements: The elements.
        kind: The comparison, with the element on its left.
        values: A number for each element.
    """

    def __init__(self, elements: Elements, kind: BoundKind, values: Sequence[float]) -> None:
        super().__init__()
        self.elements = elements
        self.kind = kind
        self.values = np.array(values, dtype=np.float64)

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        values = [f"{value:.9g}" for value in self.values[:3]]
        return f"{self.elements} {self.kind} {', '.join([*values, '...'] if len(self.values) > 3 else values)}"


class AllOf(And):
    """A conjunction that is equal to no other one: hashes of all that thousands of boxes hold would take long."""

    def __hash__(self) -> int:
        return id(self)


class AnyOf(Or):
    """A disjunction that is equal to no other one."""

    def __hash__(self) -> int:
        return id(self)
