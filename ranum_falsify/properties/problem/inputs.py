"""One name for all inputs of a network that takes several."""

from __future__ import annotations

from typing import Any

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.formula.terms import Variable
from ranum_falsify.properties.language.walk import shorten


class AllInputs(tuple[Variable, ...]):
    """What x stands for in `N(x)` where N takes several inputs: all of them; `x[1]` is the second."""

    def __getitem__(self, index: Any) -> Any:
        picked = super().__getitem__(index)
        return AllInputs(picked) if isinstance(index, slice) else picked


def pair(first: Any, second: Any, source: Any) -> list[tuple[Any, Any]]:
    """Pair all inputs with one bound for all of them, or with a bound for each."""
    count = len(first) if isinstance(first, AllInputs) else len(second)
    sides = []
    for side in (first, second):
        is_many = isinstance(side, tuple | list)
        if is_many and len(side) != count:
            raise PropertyError(f"property: {count} inputs, but {len(side)} bounds: {shorten(source)}")
        sides.append(list(side) if is_many else [side] * count)
    return list(zip(*sides, strict=True))
