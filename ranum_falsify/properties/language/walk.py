"""DNNP expressions: their parts, their text, and the evaluation of what their author wrote."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from dnnv.properties import Expression
from dnnv.properties.expressions import Symbol

from ranum_falsify.errors import PropertyError, RanumFalsifyError
from ranum_falsify.properties.language.elements import ElementBounds


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
