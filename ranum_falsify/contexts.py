"""DNNV's contexts, in each thread its own.

In a context DNNV keeps the symbols, networks and parameters of a property by their names.  It notes the current one
for the whole process: of two properties that threads build at the same time, one took the parameters of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import Any

_entered: ContextVar[tuple[Any, ...]] = ContextVar("_entered", default=())


def repair_contexts(module: ModuleType) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Let each thread enter contexts for itself.

    Args:
        module: DNNV's module of contexts.

    Returns:
        Its function that tells the current context, and the one to put in its place.
    """
    original: Callable[[], Any] = module.get_context
    if original.__module__ == __name__:
        return original, original

    def get_context() -> Any:
        entered = _entered.get()
        return entered[-1] if entered else original()  # that of expressions outside of any

    module.Context.__enter__, module.Context.__exit__ = _enter, _leave
    return original, get_context


def _enter(context: Any) -> Any:
    _entered.set((*_entered.get(), context))
    return context


def _leave(context: Any, *_: object) -> None:
    _entered.set(_entered.get()[:-1])
