"""Topological order of DNNV operation graphs, without recursion and by identity of the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dnnv.nn import Operation

__all__ = ["operands_in", "topological_order"]


def operands_in(op: Operation) -> Iterator[Operation]:
    """Yield the operations that an operation reads, in field order; tuples and lists are searched."""
    for value in op.__dict__.values():
        if isinstance(value, Operation):
            yield value
        elif isinstance(value, list | tuple):
            yield from (item for item in value if isinstance(item, Operation))


def topological_order(outputs: Iterable[Operation]) -> list[Operation]:
    """Return every operation that the outputs depend on, operands before users, each once.

    DNNV compares nodes by value, which recurses and equates equal twins; here identity decides.
    """
    done: set[int] = set()
    order: list[Operation] = []
    stack: list[tuple[Operation, Iterator[Operation]]] = []
    for output in outputs:
        if id(output) not in done:
            done.add(id(output))
            stack.append((output, operands_in(output)))
        while stack:
            op, operands = stack[-1]
            operand = next((o for o in operands if id(o) not in done), None)
            if operand is None:
                order.append(op)
                stack.pop()
            else:
                done.add(id(operand))
                stack.append((operand, operands_in(operand)))
    return order
