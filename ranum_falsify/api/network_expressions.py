"""Networks as properties write them, such as `N[2:-3]`, made from that text as data: nothing of it runs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from typing import Any

from ranum_falsify.errors import UsageError
from ranum_falsify.network import Graph

_LONGEST, _SHOWN = 1000, 100


def build_network(text: str, names: Collection[str], load: Callable[[str], Graph]) -> Graph:
    """Return the network that a text means.

    Args:
        text: A name, `NETWORK[2:-3, 1]`, `free(NETWORK, 'W')` or `NETWORK.compose(NETWORK)`.
        names: Names of networks.
        load: Returns the network of a name.

    Raises:
        UsageError: The text means no network, or one of another name.
        ModelError: A model cannot be read, or has no such part.
    """

    def build(node: ast.expr) -> Graph:
        match node:
            case ast.Name(id=name) if name in names:
                return load(name)
            case ast.Subscript(value=inner, slice=index):
                return build(inner)[_index(index)]
            case ast.Call(func=ast.Name(id="free"), args=[inner, *freed], keywords=[]):
                return build(inner).free([str(ast.literal_eval(name)) for name in freed])
            case ast.Call(func=ast.Attribute(value=outer, attr="compose"), args=[inner], keywords=[]):
                return build(outer).compose(build(inner))
        raise ValueError(ast.dump(node))

    try:
        if text in names:
            return load(text)
        if len(text) > _LONGEST:
            raise ValueError(text)
        return build(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        known = ", ".join(sorted(names))
        raise UsageError(f"network {text[:_SHOWN]!r}: is not part of {known}; search again") from error


def _index(node: ast.expr) -> Any:
    """Return what is between brackets: integers, slices of them, and tuples of both."""
    match node:
        case ast.Slice(lower=lower, upper=upper, step=None):
            return slice(*(None if end is None else ast.literal_eval(end) for end in (lower, upper)))
        case ast.Tuple(elts=parts):
            return tuple(_index(part) for part in parts)
    return ast.literal_eval(node)
