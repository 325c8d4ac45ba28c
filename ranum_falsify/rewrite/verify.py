"""Decorators that say what a pass guarantees, and thereby how it is verified after it ran.

Without arguments, or with those of `Guarantee`: `@verify.equality` and `@verify.equality(everywhere=False)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

_ATTRIBUTE = "verified_guarantee"


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """How the outputs of the new model compare with those of the old one.

    Attributes:
        kind: `equality`: bit for bit, NaN equal to NaN; `tolerance`: within a relative and an absolute tolerance;
            `metric`: within limits of metrics that the user chooses.
        signed_zero: Whether equality tells zeros of different signs apart.
        everywhere: Whether it holds on all inputs, or on those where no operator of the old model receives invalid
            input.
    """

    kind: Literal["equality", "tolerance", "metric"]
    signed_zero: bool = True
    everywhere: bool = True

    def __str__(self) -> str:
        sign = "" if self.signed_zero else ", zeros of either sign equal"
        where = "" if self.everywhere else ", on valid inputs"
        return f"{self.kind}{sign}{where}"


def guarantee_of(cls: type[Any]) -> Guarantee | None:
    """Return the guarantee of a pass, None where it has none of its own."""
    found = vars(cls).get(_ATTRIBUTE)
    return found if isinstance(found, Guarantee) else None


_Class = TypeVar("_Class", bound=type[Any])


def _decorator(kind: Literal["equality", "tolerance", "metric"], cls: Any, **fields: bool) -> Any:
    def decorate(below: _Class) -> _Class:
        setattr(below, _ATTRIBUTE, Guarantee(kind=kind, **fields))
        return below

    return decorate if cls is None else decorate(cls)


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
