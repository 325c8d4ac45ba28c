"""Topological order of DNNV operation graphs, without recursion and by identity of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dnnv.nn import Operation

__all__ = ["operands_in", "topological_order"]


def operands_in(op: Operation) -> Iterator[Operation]:
    """Yield the operations that an operation reads, in field order; tuples and lists are searched."""
    for value in op.__dict__.values():
        if isinstance(value, Operation):
            yield value
        elif isinstance(value, list | tuple):
            yield from (item for item in value if isinstance(item, Operation))


def topological_order(
    outputs: Iterable[Operation], *, stop: Callable[[Operation], bool] | None = None
) -> list[Operation]:
    """Return every operation that the outputs depend on, operands before users, each once.

    With `stop`, the way does not go further back than operations of which it is true.

    DNNV compares nodes by value, which recurses and equates equal twins; here identity decides.
    """

    def operands_of(op: Operation) -> Iterator[Operation]:
        return iter(()) if stop is not None and stop(op) else operands_in(op)

    done: set[int] = set()
    order: list[Operation] = []
    stack: list[tuple[Operation, Iterator[Operation]]] = []
    for output in outputs:
        if id(output) not in done:
            done.add(id(output))
            stack.append((output, operands_of(output)))
        while stack:
            op, operands = stack[-1]
            operand = next((o for o in operands if id(o) not in done), None)
            if operand is None:
                order.append(op)
                stack.pop()
            else:
                done.add(id(operand))
                stack.append((operand, operands_of(operand)))
    return order
