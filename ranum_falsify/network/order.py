"""Topological order of nodes, without recursion and by their identity."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect

_T = TypeVar("_T")


def operands_in(op: Operation) -> Iterator[Operation]:
    """Yield the operations that an operation reads, in field order; tuples and lists are searched."""
    for value in op.__dict__.values():
        if isinstance(value, Operation):
            yield value
        elif isinstance(value, list | tuple):
            yield from (item for item in value if isinstance(item, Operation))


def maker_of(tensor: Operation) -> Operation:
    """Return the node that computes a tensor, which may be one of several that it gives."""
    return tensor.operation if isinstance(tensor, OutputSelect) else tensor


def topological_order(
    outputs: Iterable[Operation], *, stop: Callable[[Operation], bool] | None = None
) -> list[Operation]:
    """Return every operation that the outputs depend on, operands before users, each once.

    The search does not go beyond operations for which `stop` is true.
    """
    return order_depth_first(outputs, lambda op: () if stop is not None and stop(op) else operands_in(op))


def find_between(causes: Iterable[Operation], op: Operation, *, most: float = math.inf) -> list[Operation]:
    """Return the nodes on all paths from some operations to another, without these, in topological order.

    There are none if there are more than `most`.
    """
    first = {id(cause) for cause in causes}
    seen: dict[int, Operation] = {id(op): op}
    waiting = deque([op])
    while waiting and len(seen) <= 2 * most:
        for operand in operands_in(waiting.popleft()):
            if id(operand) not in seen and id(operand) not in first:
                seen[id(operand)] = operand
                waiting.append(operand)
    reached, found = set(first), list[Operation]()
    for inner in topological_order([op], stop=lambda inner: id(inner) not in seen):
        if id(inner) in seen and any(id(operand) in reached for operand in operands_in(inner)):
            reached.add(id(inner))
            found.append(inner)
    return found if len(found) <= most else []


def order_depth_first(last: Iterable[_T], needs: Callable[[_T], Iterable[_T]]) -> list[_T]:
    """Return the given objects and all that they need, each once, and after what it needs if there is no cycle.

    Objects that are in such an order already keep it. `graphlib` instead goes by generations, in which more tensors
    are alive at a time, and compares nodes by value, which in DNNV recurses and equates twins; here identity decides.
    """
    done: set[int] = set()
    order: list[_T] = []
    stack: list[tuple[_T, Iterator[_T]]] = []
    for root in last:
        if id(root) not in done:
            done.add(id(root))
            stack.append((root, iter(needs(root))))
        while stack:
            item, needed = stack[-1]
            new = next((other for other in needed if id(other) not in done), None)
            if new is None:
                order.append(item)
                stack.pop()
            else:
                done.add(id(new))
                stack.append((new, iter(needs(new))))
    return order
