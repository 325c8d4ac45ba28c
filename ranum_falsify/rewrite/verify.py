"""Decorators that say what a pass guarantees, and thereby how it is verified after it ran.

Without arguments, or with those of `Guarantee`: `@verify.equality` and `@verify.equality(everywhere=False)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

from ranum_falsify.rewrite.guarantee import Guarantee, set_guarantee

_Class = TypeVar("_Class", bound=type[Any])


def _decorated(cls: _Class, guarantee: Guarantee) -> _Class:
    set_guarantee(cls, guarantee)
    return cls


def _decorator(kind: Literal["equality", "tolerance", "metric"], cls: Any, **fields: bool) -> Any:
    guarantee = Guarantee(kind=kind, **fields)
    return (lambda below: _decorated(below, guarantee)) if cls is None else _decorated(cls, guarantee)


@overload
def equality(cls: _Class) -> _Class: ...
@overload
def equality(*, signed_zero: bool = True, everywhere: bool = True) -> Callable[[_Class], _Class]: ...
def equality(cls: Any = None, *, signed_zero: bool = True, everywhere: bool = True) -> Any:
    """Promise that all outputs are equal, bit for bit."""
    return _decorator("equality", cls, signed_zero=signed_zero, everywhere=everywhere)


@overload
def tolerance(cls: _Class) -> _Class: ...
@overload
def tolerance(*, everywhere: bool = False) -> Callable[[_Class], _Class]: ...
def tolerance(cls: Any = None, *, everywhere: bool = False) -> Any:
    """Promise that all outputs are equal within a tolerance."""
    return _decorator("tolerance", cls, everywhere=everywhere)


@overload
def metric(cls: _Class) -> _Class: ...
@overload
def metric(*, everywhere: bool = False) -> Callable[[_Class], _Class]: ...
def metric(cls: Any = None, *, everywhere: bool = False) -> Any:
    """Promise that metrics of the outputs stay within limits, which the user sets."""
    return _decorator("metric", cls, everywhere=everywhere)
