"""DNNP expressions: elements of tensors as VNN-LIB names them, parts, text, and evaluation of what authors wrote."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from dnnv.properties import Expression
from dnnv.properties.expressions import And, Or, Symbol

from ranum_falsify.errors import PropertyError, RanumFalsifyError

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


def subexpressions(phi: Expression) -> Iterator[Expression]:
    """Yield an expression and all its parts, each object once, outer ones first.

    DNNV's own `iter` yields a part as often as it occurs, and keeps every list that it has yielded.
    """
    seen: set[int] = set()
    pending: deque[Any] = deque([phi])
    while pending:
        item = pending.popleft()
        if isinstance(item, Expression):
            if id(item) not in seen:
                seen.add(id(item))
                yield item
                if isinstance(item, ElementBounds):
                    pending.append(item.elements.tensor)  # there may be tens of thousands
                    continue
                pending.extend(
                    value for name, value in vars(item).items() if not name.startswith("_") and name != "ctx"
                )
        elif isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, list | tuple) and any(isinstance(part, Expression) for part in item):
            pending.extend(item)


def shorten(expression: object, limit: int = 80) -> str:
    """Return an expression on one line of at most `limit` characters."""
    text = " ".join(str(expression).split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def guard(expression: Any, compute: Callable[[], Any]) -> Any:
    """Evaluate what the property's author wrote; any failure becomes a `PropertyError`."""
    try:
        return compute()
    except RanumFalsifyError as error:
        text = str(error).removeprefix("property: ")
        raise type(error)(f"property: {shorten(expression)}: {text}") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PropertyError(f"property: {shorten(expression)}: {type(error).__name__}: {reason}") from error


def is_free_symbol(expression: Any) -> bool:
    """Whether an expression is a symbol without a value: a quantified input, or a mistake."""
    return type(expression) is Symbol and not expression.is_concrete


def index_text(index: Any) -> str:
    """Return an index as the property writes it between brackets."""
    parts = index if isinstance(index, tuple) else (index,)
    return ", ".join(
        f"{'' if p.start is None else p.start}:{'' if p.stop is None else p.stop}" if isinstance(p, slice) else str(p)
        for p in parts
    )
