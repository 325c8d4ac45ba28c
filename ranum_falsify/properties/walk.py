"""Walking through DNNP expressions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from dnnv.properties import Expression

__all__ = ["subexpressions"]


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
                pending.extend(
                    value for name, value in vars(item).items() if not name.startswith("_") and name != "ctx"
                )
        elif isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, list | tuple) and any(isinstance(part, Expression) for part in item):
            pending.extend(item)
