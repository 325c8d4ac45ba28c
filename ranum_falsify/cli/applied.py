"""Networks as properties write them, such as `N[2:-3]`, made from that text as data: nothing of it runs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranum_falsify.cli.usage import UsageError
from ranum_falsify.config import HalfPrecision

if TYPE_CHECKING:
    from ranum_falsify.network import Graph

__all__ = ["build_network"]

_LONGEST, _SHOWN = 1000, 100


def build_network(text: str, models: Mapping[str, Path], dims: Mapping[str, int], dtype: HalfPrecision | None) -> Graph:
    """Return the network that a text means.

    Args:
        text: A name, `NETWORK[2:-3, 1]`, `free(NETWORK, 'W')` or `NETWORK.compose(NETWORK)`.
        models: Model files by name.
        dims: Sizes of symbolic dimensions, as far as a network has them.
        dtype: Half precision that the networks are converted to, None to leave them as they are.

    Raises:
        UsageError: The text means no network, or one of another name.
        ModelError: A model cannot be read, or has no such part.
    """
    import ranum_falsify.operators  # noqa: F401 - fills the registry; imports torch
    from ranum_falsify.cli.loading import dims_by_network
    from ranum_falsify.network import read
    from ranum_falsify.network.precision import convert_precision

    sizes = dims_by_network(models, dims)

    def load(name: str) -> Graph:
        graph = read(models[name], dims=sizes[name])
        return graph if dtype is None else convert_precision(graph, dtype)

    def build(node: ast.expr) -> Graph:
        match node:
            case ast.Name(id=name) if name in models:
                return load(name)
            case ast.Subscript(value=inner, slice=index):
                return build(inner)[_index(index)]
            case ast.Call(func=ast.Name(id="free"), args=[inner, *names], keywords=[]):
                return build(inner).free([str(ast.literal_eval(name)) for name in names])
            case ast.Call(func=ast.Attribute(value=outer, attr="compose"), args=[inner], keywords=[]):
                return build(outer).compose(build(inner))
        raise ValueError(ast.dump(node))

    try:
        if text in models:
            return load(text)
        if len(text) > _LONGEST:
            raise ValueError(text)
        return build(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        known = ", ".join(sorted(models))
        raise UsageError(f"network {text[:_SHOWN]!r}: is not part of {known}; search again") from error


def _index(node: ast.expr) -> Any:
    """Return what is between brackets: integers, slices of them, and tuples of both."""
    match node:
        case ast.Slice(lower=lower, upper=upper, step=None):
            return slice(*(None if end is None else ast.literal_eval(end) for end in (lower, upper)))
        case ast.Tuple(elts=parts):
            return tuple(_index(part) for part in parts)
    return ast.literal_eval(node)
