"""Freed weights, and what a property says about how they are trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ranum_falsify.errors import PropertyError
from ranum_falsify.network import Graph
from ranum_falsify.properties.formula.terms import Trainable
from ranum_falsify.properties.language.vocabulary import LossName
from ranum_falsify.properties.language.walk import shorten


def check_free(expression: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Graph, Trainable]:
    """Return the network of `free(N, "W", loss=loss("cost"))`, and what is said about its training.

    Args:
        expression: The call, for messages.
        args: Its arguments.
        kwargs: Its keyword arguments.

    Raises:
        PropertyError: It is written otherwise.
    """
    loss = kwargs.get("loss", LossName(()))
    graph, *names = args or [None]
    is_written = isinstance(graph, Graph) and names and all(isinstance(name, str) for name in names)
    if not is_written or kwargs.keys() - {"loss"} or not isinstance(loss, LossName):
        raise PropertyError(
            f'property: {shorten(expression)}: write free(N, "W", "b"), with names of initializers, '
            'and loss=loss("cost") if they are trained'
        )
    return graph, Trainable(weights=tuple(names), loss=loss.names, one_hot=loss.one_hot, parts=loss.parts)
